//! A program under test: started, asked, stopped.

use std::{
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

/// An address of this machine with a port that is free.
pub const ANY_PORT: &str = "127.0.0.1:0";
/// Nothing takes this long unless it hangs.
const GENEROUS: Duration = Duration::from_secs(120);

/// A program, by the path that Cargo gives to integration tests: `env!("CARGO_BIN_EXE_confide")`.
#[derive(Clone, Copy, Debug)]
pub struct Program(pub &'static str);

impl Program {
    /// A command with these arguments and nothing on its standard input.
    pub fn command(self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.0);
        command.args(arguments).stdin(Stdio::null());
        command
    }

    /// Runs a command that ends by itself.
    ///
    /// # Panics
    /// Where it cannot be started, or writes something else than UTF-8.
    pub fn run(self, arguments: &[&str]) -> Ended {
        let output = self.command(arguments).output().expect("it starts");
        Ended {
            status: output.status.code(),
            stdout: String::from_utf8(output.stdout).expect("UTF-8 on standard output"),
            stderr: String::from_utf8(output.stderr).expect("UTF-8 on standard error"),
        }
    }

    /// Starts a command that runs until it is told to stop, and waits for its ready line.
    ///
    /// # Panics
    /// Where it ends, or says something else.
    pub fn start(self, arguments: &[&str]) -> Running {
        Running::start(&mut self.command(arguments))
    }
}

/// What a command that has ended said.
#[derive(Debug)]
pub struct Ended {
    /// Its exit status; none where a signal ended it.
    pub status: Option<i32>,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

impl Ended {
    /// Its standard output as JSON.
    ///
    /// # Panics
    /// Where that is no JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}{}", self.stdout, self.stderr))
    }
}

/// A running command that has said that it is ready; killed when it is dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
    /// Its ready line.
    pub ready: Value,
}

impl Running {
    /// Starts `command` and waits for its ready line; its standard error is the test's.
    ///
    /// # Panics
    /// Where it ends, or says something else.
    pub fn start(command: &mut Command) -> Self {
        let mut running = Self::spawn(command);
        let line = running.read_line();
        running.ready = serde_json::from_str(&line)
            .unwrap_or_else(|error| panic!("{command:?} says `{line}`: {error}"));
        running
    }

    /// The same for a command that may refuse to run: what it then writes to its standard error.
    ///
    /// # Errors
    /// Its standard error, where its first line is no ready line.
    ///
    /// # Panics
    /// Where it is silent.
    pub fn try_start(command: &mut Command) -> Result<Self, String> {
        let mut running = Self::spawn(command.stderr(Stdio::piped()));
        let mut errors = running.child.stderr.take();
        match serde_json::from_str(&running.read_line()) {
            Ok(ready) => running.ready = ready,
            Err(_) => {
                let mut text = String::new();
                let _ = errors.as_mut().map(|errors| errors.read_to_string(&mut text));
                return Err(text);
            }
        }
        Ok(running)
    }

    /// Starts a command of which no ready line is awaited.
    ///
    /// # Panics
    /// Where it cannot be started.
    pub fn spawn(command: &mut Command) -> Self {
        let child = command.stdout(Stdio::piped()).spawn().expect("it starts");
        Self { child, ready: Value::Null }
    }

    fn read_line(&mut self) -> String {
        let mut output = BufReader::new(self.child.stdout.take().expect("a pipe"));
        let (line, lines) = mpsc::channel();
        thread::spawn(move || {
            let mut first = String::new();
            let _ = output.read_line(&mut first);
            let _ = line.send(first);
        });
        lines.recv_timeout(GENEROUS).expect("it neither is ready nor ends")
    }

    /// Where it listens.
    ///
    /// # Panics
    /// Where its ready line has no `listen`.
    pub fn address(&self) -> String {
        self.ready["listen"].as_str().expect("an address in the ready line").to_owned()
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kills it.
    ///
    /// # Panics
    /// Where the system does not.
    pub fn kill(&mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it has ended");
    }

    /// Asks it to stop (SIGTERM) and waits for its end.
    ///
    /// # Panics
    /// Where it does not stop.
    pub fn terminate(mut self) -> ExitStatus {
        let id = self.child.id().to_string();
        let told = Command::new("kill").args(["-TERM", &id]).status().expect("kill runs");
        assert!(told.success());
        let until = Instant::now() + GENEROUS;
        loop {
            if let Some(status) = self.child.try_wait().expect("it can be waited for") {
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

/// A path as an argument of a command.
///
/// # Panics
/// Where it is not UTF-8.
pub fn text(path: &Path) -> &str {
    path.to_str().expect("a path of UTF-8")
}
