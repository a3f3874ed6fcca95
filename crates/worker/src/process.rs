//! The worker's process: its private folder, its ready line, its last output and its end.

use std::{
    fs::{self, Permissions},
    io::{self, BufRead, BufReader, Read},
    os::unix::{
        fs::PermissionsExt,
        process::{CommandExt, ExitStatusExt},
    },
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;

use crate::{
    error::WorkerError,
    message::{PROTOCOL, to_printable},
    options::{WorkerDeadlines, WorkerProgram},
};

/// The largest number of bytes of the process's standard error that are kept.
const ERROR_OUTPUT_BYTES_MAX: usize = 4 << 10;
/// The longest ready line, in bytes.
const READY_BYTES_MAX: u64 = 64 << 10;
/// The interval at which a wait checks whether the engine stops.
pub(crate) const TICK: Duration = Duration::from_millis(50);

/// A folder that only this user can enter. Dropping it removes the folder and its contents.
#[derive(Debug)]
pub(crate) struct PrivateFolder(TempDir);

impl PrivateFolder {
    pub(crate) fn create(parent: &Path) -> Result<Self, WorkerError> {
        let mut builder = tempfile::Builder::new();
        builder.prefix("confide-worker-").permissions(Permissions::from_mode(0o700));
        builder.tempdir_in(parent).map(Self).map_err(WorkerError::system("private folder"))
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.0.path().join("socket")
    }
}

/// A running worker. Dropping it kills the process.
#[derive(Debug)]
pub(crate) struct WorkerProcess {
    child: Child,
    /// The process's standard input. Nothing is written to it; closing it asks the worker to stop.
    input: Option<ChildStdin>,
    error_output: Arc<Mutex<Vec<u8>>>,
    stop: Duration,
}

impl WorkerProcess {
    /// Starts a worker and waits until it is ready.
    pub(crate) fn start(
        program: &WorkerProgram,
        model: &Path,
        socket: &Path,
        deadlines: &WorkerDeadlines,
        stopping: &AtomicBool,
    ) -> Result<Self, WorkerError> {
        // A worker that was killed leaves its socket behind.
        let _ = fs::remove_file(socket);
        let mut child = build_command(program, model, socket).spawn().map_err(|error| {
            let reason = error.to_string();
            WorkerError::Program { program: program.python.clone(), reason }
        })?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let errors = child.stderr.take();
        let error_output = Arc::new(Mutex::new(Vec::new()));
        let mut process =
            Self { child, input, error_output: Arc::clone(&error_output), stop: deadlines.stop };
        let (line, lines) = mpsc::sync_channel(1);
        let spawned = thread::Builder::new()
            .name("worker-output".into())
            .spawn(move || read_ready_line(output, &line))
            .and_then(|_| {
                let keep = move || log_and_keep_stderr(errors, &error_output);
                thread::Builder::new().name("worker-errors".into()).spawn(keep)
            });
        spawned.map_err(WorkerError::system("thread"))?;
        let started = Instant::now();
        loop {
            match lines.recv_timeout(TICK) {
                Ok(line) => return process.check_ready_line(&line).map(|()| process),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(WorkerError::ProcessEnded { ending: process.describe_ending() });
                }
                Err(RecvTimeoutError::Timeout) if stopping.load(Ordering::Acquire) => {
                    return Err(WorkerError::Stopped);
                }
                Err(RecvTimeoutError::Timeout) if started.elapsed() > deadlines.start => {
                    return Err(WorkerError::TimedOut {
                        what: "ready line",
                        limit: deadlines.start,
                    });
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    fn check_ready_line(&mut self, line: &str) -> Result<(), WorkerError> {
        let value: Value = serde_json::from_str(line).unwrap_or_default();
        if value["ready"] == true && value["protocol"] == PROTOCOL {
            return Ok(());
        }
        if line.is_empty() {
            return Err(WorkerError::ProcessEnded { ending: self.describe_ending() });
        }
        let reason = format!("its ready line is {:?}", to_printable(line.trim_end()));
        Err(WorkerError::Protocol { reason })
    }

    /// Describes the end of the process by its exit status and its last line of standard error.
    /// Waits briefly for the status, and kills the process if it still runs.
    pub(crate) fn describe_ending(&mut self) -> String {
        let status = self.wait(Duration::from_millis(1500));
        let status = match status {
            Some(status) => describe_status(status),
            None => {
                self.kill();
                "it still ran and was killed".into()
            }
        };
        match self.last_error_line() {
            Some(line) => format!("{status}; its last output was: {line}"),
            None => format!("{status}; it had no output"),
        }
    }

    /// Asks the process to stop by closing its standard input, and kills it if it does not stop.
    pub(crate) fn stop(mut self) {
        self.input = None;
        self.wait(self.stop);
    }

    /// Adds a description of the process's end to an error that the end may have caused.
    pub(crate) fn add_ending(mut self, error: WorkerError) -> WorkerError {
        match self.child.try_wait() {
            Ok(None) => error,
            _ => {
                WorkerError::ProcessEnded { ending: format!("{error}; {}", self.describe_ending()) }
            }
        }
    }

    fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        let until = Instant::now() + limit;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if Instant::now() < until => thread::sleep(Duration::from_millis(5)),
                _ => return None,
            }
        }
    }

    fn kill(&mut self) {
        // Killing fails if the process has ended, and waiting if it was already waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// The last line of the process's standard error that is not blank.
    fn last_error_line(&self) -> Option<String> {
        // The thread that reads it may lag behind the end of the process.
        thread::sleep(Duration::from_millis(20));
        let error_output = self.error_output.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&error_output).into_owned();
        text.lines()
            .rev()
            .find(|line| !line.trim().is_empty())
            .map(|line| to_printable(line.trim()))
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

fn build_command(program: &WorkerProgram, model: &Path, socket: &Path) -> Command {
    let mut command = Command::new(&program.python);
    command.args(["-m", "confide.worker", "--socket"]).arg(socket).arg("--model").arg(model);
    command.args(["--device", &program.device, "--dtype", &program.dtype]);
    if let Some(slots) = program.slots {
        command.args(["--slots", &slots.to_string()]);
    }
    if let Some(seed) = program.random_weights {
        command.args(["--random-weights", &seed.to_string()]);
    }
    command.args(&program.more);
    if let Some(path) = &program.python_path {
        command.env("PYTHONPATH", path);
    }
    // Without this Python would import modules from the working folder.
    command.env("PYTHONSAFEPATH", "1").env("PYTHONUNBUFFERED", "1");
    // In a separate process group, Ctrl-C reaches only `confide serve`, which drains running
    // answers.
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    command
}

/// Reads the ready line and discards the rest, because a full pipe would stall the worker.
fn read_ready_line(output: Option<impl Read>, line: &mpsc::SyncSender<String>) {
    let Some(output) = output else { return };
    let mut output = BufReader::new(output);
    let mut first = String::new();
    if (&mut output).take(READY_BYTES_MAX).read_line(&mut first).is_ok() {
        let _ = line.send(first);
    }
    let _ = io::copy(&mut output, &mut io::sink());
}

/// Logs the worker's standard error, and keeps its last bytes.
fn log_and_keep_stderr(errors: Option<impl Read>, error_output: &Mutex<Vec<u8>>) {
    let Some(mut errors) = errors else { return };
    let mut block = [0; 4096];
    while let Ok(count @ 1..) = errors.read(&mut block) {
        let text = String::from_utf8_lossy(&block[..count]);
        text.lines().for_each(|line| tracing::info!(target: "worker", "{}", to_printable(line)));
        let mut error_output = error_output.lock().unwrap_or_else(PoisonError::into_inner);
        error_output.extend_from_slice(&block[..count]);
        let surplus = error_output.len().saturating_sub(ERROR_OUTPUT_BYTES_MAX);
        error_output.drain(..surplus);
    }
}

fn describe_status(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("it ended with status {code}"),
        (None, Some(signal)) => format!("it was killed by signal {signal}"),
        (None, None) => "it ended".into(),
    }
}
