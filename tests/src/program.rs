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
/// The longest wait of a test: what takes longer hangs.
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
    /// Panics if it cannot be started, or writes anything but UTF-8.
    pub fn run(self, arguments: &[&str]) -> CommandOutput {
        let output = self.command(arguments).output().expect("it starts");
        CommandOutput {
            status: output.status.code(),
            stdout: String::from_utf8(output.stdout).expect("UTF-8 on standard output"),
            stderr: String::from_utf8(output.stderr).expect("UTF-8 on standard error"),
        }
    }

    /// Starts a command that runs until it is told to stop, and waits for its ready line.
    ///
    /// # Panics
    /// Panics if it ends, or writes anything else first.
    pub fn start(self, arguments: &[&str]) -> Process {
        Process::start(&mut self.command(arguments))
    }
}

/// The exit status and output of a command that has ended.
#[derive(Debug)]
pub struct CommandOutput {
    /// The exit status; `None` if a signal ended it.
    pub status: Option<i32>,
    /// The standard output.
    pub stdout: String,
    /// The standard error.
    pub stderr: String,
}

impl CommandOutput {
    /// Parses the standard output as JSON.
    ///
    /// # Panics
    /// Panics if it is not JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}{}", self.stdout, self.stderr))
    }
}

/// A running command that has written its ready line; killed when it is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    /// The ready line, or null if none was awaited.
    pub ready: Value,
}

impl Process {
    /// Starts `command` and waits for its ready line; its standard error is the test's.
    ///
    /// # Panics
    /// Panics if it ends, or writes anything else first.
    pub fn start(command: &mut Command) -> Self {
        let mut running = Self::spawn(command);
        let line = running.read_line();
        running.ready = serde_json::from_str(&line)
            .unwrap_or_else(|error| panic!("{command:?} says `{line}`: {error}"));
        assert_eq!(running.ready["ready"], true, "{command:?} says `{line}`");
        running
    }

    /// Starts a command that may refuse to run.
    ///
    /// # Errors
    /// Returns its standard error if its first line is not a ready line.
    ///
    /// # Panics
    /// Panics if it is silent for two minutes.
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

    /// Starts a command without waiting for a ready line.
    ///
    /// # Panics
    /// Panics if it cannot be started.
    pub fn spawn(command: &mut Command) -> Self {
        let child = command.stdout(Stdio::piped()).spawn().expect("it starts");
        Self { child, ready: Value::Null }
    }

    fn read_line(&mut self) -> String {
        let mut output = BufReader::new(self.child.stdout.take().expect("a pipe"));
        let (line, lines) = mpsc::channel();
        thread::spawn(move || {
            let mut first = String::new();
            // An unreadable line is handed on as it is: the caller shows it and fails.
            let _ = output.read_line(&mut first);
            let _ = line.send(first);
        });
        lines.recv_timeout(GENEROUS).expect("it neither is ready nor ends")
    }

    /// The address that it listens on.
    ///
    /// # Panics
    /// Panics if its ready line has no `listen`.
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
    /// Panics if the system refuses.
    pub fn kill(&mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it has ended");
    }

    /// Asks it to stop (SIGTERM) and waits for its end.
    ///
    /// # Panics
    /// Panics if it does not stop within two minutes.
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

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A path as an argument of a command.
///
/// # Panics
/// Panics if the path is not UTF-8.
pub fn text(path: &Path) -> &str {
    path.to_str().expect("a path of UTF-8")
}
