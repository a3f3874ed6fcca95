//! The real program, started and stopped.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use confide_lora::{
    Adapter, Matrix, Pair, Projection, Site,
    holder::{Connect, Opened, Opening},
};
use confide_rlwe::ParameterSet;
use serde_json::Value;

/// Nothing here takes this long unless it hangs.
const GENEROUS: Duration = Duration::from_secs(60);
pub(crate) const PARAMETERS: &str = "toy-256-q100-flood40";
pub(crate) const WIDTH: usize = 64;
pub(crate) const TOY: [&str; 3] = ["--parameters", PARAMETERS, "--dangerous-parameters"];

pub(crate) fn parameters() -> ParameterSet {
    ParameterSet::dangerous_named(PARAMETERS).unwrap()
}

/// Plain TCP, as the cli opens it.
pub(crate) struct Tcp(pub(crate) String);

impl Connect for Tcp {
    fn connect(&self) -> Opening<'_> {
        Box::pin(async {
            let stream = tokio::net::TcpStream::connect(&self.0).await?;
            stream.set_nodelay(true)?;
            Ok(Opened { stream: Box::new(stream), simulated: false })
        })
    }

    fn host(&self) -> String {
        self.0.clone()
    }
}

pub(crate) struct Folder {
    pub(crate) path: PathBuf,
}

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let folder = format!("confide-adapter-host-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(folder);
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Folder { path }
    }

    /// An attester whose policy is content with any configuration: most tests here are about
    /// something else.
    pub(crate) fn simulate(&self, name: &str) -> PathBuf {
        self.attester(name, &["--dangerous-platform-scope"])
    }

    pub(crate) fn simulate_unpinned(&self, name: &str) -> PathBuf {
        self.attester(name, &[])
    }

    fn attester(&self, name: &str, more: &[&str]) -> PathBuf {
        let path = self.path.join(name);
        let arguments = ["attest", "--simulate", "tdx", "--out", text(&path)];
        let ended = run(&[&arguments[..], more].concat());
        assert_eq!(ended.status, Some(0), "{}", ended.stderr);
        path
    }

    /// q and v of one layer, rank 4.
    pub(crate) fn adapter(&self, name: &str) -> PathBuf {
        let matrix = |rows: usize, columns: usize, step: usize| {
            let value = |at: usize| ((at * step % 97) as f32 - 48.0) / 400.0;
            let values = (0..rows * columns).map(value).collect();
            Matrix { rows, columns, values }
        };
        let pair =
            |step| Pair { a: matrix(4, WIDTH, step), b: matrix(WIDTH, 4, step + 6), scale: 2.0 };
        let modules = BTreeMap::from([
            (Site { layer: 0, projection: Projection::Query }, pair(31)),
            (Site { layer: 0, projection: Projection::Value }, pair(41)),
        ]);
        let path = self.path.join(name);
        let adapter = Adapter { name: name.into(), base_model: None, modules };
        adapter.save(&path).unwrap();
        path
    }

    pub(crate) fn host(&self, adapter: &Path, more: &[&str]) -> Running {
        self.host_at("127.0.0.1:0", adapter, more)
    }

    /// Counts are forgotten where `more` does not say who keeps them.
    pub(crate) fn host_at(&self, listen: &str, adapter: &Path, more: &[&str]) -> Running {
        let arguments = ["adapter", "host", text(adapter), "--listen", listen];
        let kept = more.contains(&"--budget-file") || more.contains(&"--state");
        let forget = if kept { &[][..] } else { &["--dangerous-forget-budgets"] };
        start(&[&arguments[..], &TOY[..], forget, more].concat())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

pub(crate) struct Running {
    child: Child,
    pub(crate) ready: Value,
}

impl Running {
    pub(crate) fn address(&self) -> String {
        self.ready["listen"].as_str().unwrap().to_owned()
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The offline phase with this host.
    pub(crate) fn prepare(&self, more: &[&str]) -> Ended {
        let address = self.address();
        let arguments = ["adapter", "prepare", &address, "--adapter", "banking"];
        run(&[&arguments[..], &TOY[..], more].concat())
    }

    pub(crate) fn terminate(mut self) -> ExitStatus {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        let until = Instant::now() + GENEROUS;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < until, "it does not stop: {}", self.ready);
            thread::sleep(Duration::from_millis(5));
        }
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

pub(crate) fn run(arguments: &[&str]) -> Ended {
    let output = command(arguments).stderr(Stdio::piped()).output().unwrap();
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

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
