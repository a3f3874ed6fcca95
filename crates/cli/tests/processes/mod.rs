//! The real program, started and stopped, in a folder of its own.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use serde_json::Value;

/// Nothing here takes this long unless it hangs.
const GENEROUS: Duration = Duration::from_secs(60);
pub(crate) const ANY_PORT: &str = "127.0.0.1:0";

/// A folder of one test, removed at its end.
pub(crate) struct Folder {
    path: PathBuf,
}

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let root = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let path = root.join(format!("{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self { path }
    }

    /// A path in it, as arguments have it.
    pub(crate) fn at(&self, name: &str) -> String {
        self.path.join(name).to_str().unwrap().to_owned()
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path.join(name)).unwrap()
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        std::fs::write(self.path.join(name), content).unwrap();
        self.at(name)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.path.join(name).exists()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// A long-running command that has said that it is ready; killed when dropped.
pub(crate) struct Running {
    child: Child,
    pub(crate) ready: Value,
}

impl Running {
    pub(crate) fn address(&self) -> String {
        self.ready["listen"].as_str().unwrap().to_owned()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn start(arguments: &[&str]) -> Running {
    let mut child = command(arguments).stdout(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let (line, lines) = mpsc::channel();
    thread::spawn(move || {
        let mut first = String::new();
        let _ = out.read_line(&mut first);
        let _ = line.send(first);
    });
    // Owned before anything can fail, so that a failed test leaves no process behind.
    let mut running = Running { child, ready: Value::Null };
    let line = lines.recv_timeout(GENEROUS).expect("it does not say that it is ready");
    running.ready = serde_json::from_str(&line)
        .unwrap_or_else(|error| panic!("{arguments:?} says `{line}`: {error}"));
    running
}

pub(crate) struct Ended {
    pub(crate) status: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    /// What a command that went well says, as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}{}", self.stdout, self.stderr))
    }
}

/// A command that ends by itself.
pub(crate) fn run(arguments: &[&str]) -> Ended {
    let output = command(arguments).output().unwrap();
    Ended {
        status: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_confide"));
    command.args(arguments).stdin(Stdio::null());
    command
}
