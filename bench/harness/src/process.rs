//! Child processes with deadlines; none outlives its owner.

use std::{
    ffi::OsStr,
    fs::File,
    io::{BufRead, BufReader, Read, Write},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};

use crate::protocol::LINE_BYTES_MAX;

/// The interval at which a wait checks whether the run was interrupted.
const GLANCE: Duration = Duration::from_millis(50);
/// The most lines that wait to be read; with more the child waits.
const LINES_QUEUED_MAX: usize = 4096;
/// The time that a process gets to end before it is killed.
pub(crate) const GRACE: Duration = Duration::from_secs(5);

/// The reason why a line could not be sent or read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LineError {
    Deadline,
    ProcessEnded(String),
    TooLong,
    Interrupted,
}

impl std::fmt::Display for LineError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Deadline => write!(f, "silent past its deadline"),
            Self::ProcessEnded(how) => write!(f, "ended: {how}"),
            Self::TooLong => write!(f, "a line is longer than {LINE_BYTES_MAX} bytes"),
            Self::Interrupted => write!(f, "interrupted"),
        }
    }
}

enum OutputLine {
    Text(String),
    TooLong,
}

/// A process that speaks lines; its process group is ended when this is dropped.
pub(crate) struct LineProcess {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<OutputLine>,
}

impl LineProcess {
    /// Starts `argv` with its standard error appended to `log`.
    pub(crate) fn start(program: &Path, args: &[String], log: &Path) -> std::io::Result<Self> {
        let stderr = File::options().create(true).append(true).open(log)?;
        // A group of its own: Ctrl-C at the terminal reaches the harness alone, which then ends
        // its children in order.
        let mut child = Command::new(program)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .process_group(0)
            .spawn()?;
        let stdin = child.stdin.take();
        let (sender, lines) = sync_channel(LINES_QUEUED_MAX);
        if let Some(stdout) = child.stdout.take() {
            thread::spawn(move || read_lines(stdout, &sender));
        }
        Ok(Self { child, stdin, lines })
    }

    /// Returns the process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends one line.
    pub(crate) fn send(&mut self, line: &str) -> Result<(), LineError> {
        let sent = self
            .stdin
            .as_mut()
            .is_some_and(|stdin| writeln!(stdin, "{line}").and_then(|()| stdin.flush()).is_ok());
        if sent { Ok(()) } else { Err(LineError::ProcessEnded(self.describe_exit())) }
    }

    /// Reads the next line, before `deadline` and unless `stop` is set.
    pub(crate) fn read_line(
        &mut self,
        deadline: Instant,
        stop: &AtomicBool,
    ) -> Result<String, LineError> {
        loop {
            if stop.load(Ordering::Relaxed) {
                return Err(LineError::Interrupted);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left.min(GLANCE)) {
                Ok(OutputLine::Text(line)) => return Ok(line),
                Ok(OutputLine::TooLong) => return Err(LineError::TooLong),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(LineError::ProcessEnded(self.describe_exit()));
                }
                Err(RecvTimeoutError::Timeout) if left.is_zero() => {
                    return Err(LineError::Deadline);
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Discards lines that wait unread; true when there was one.
    pub(crate) fn discard_unread_lines(&mut self) -> bool {
        std::iter::from_fn(|| self.lines.try_recv().ok()).count() > 0
    }

    /// Asks the whole process group to end, by SIGTERM.
    pub(crate) fn terminate(&self) {
        self.signal_group(Signal::SIGTERM);
    }

    /// Closes standard input, waits, then kills.
    pub(crate) fn shut_down(mut self) -> Option<ExitStatus> {
        self.stdin = None;
        let deadline = Instant::now() + GRACE;
        while Instant::now() < deadline {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status);
            }
            self.discard_unread_lines();
            thread::sleep(Duration::from_millis(2));
        }
        None
    }

    fn describe_exit(&mut self) -> String {
        let deadline = Instant::now() + Duration::from_millis(500);
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return status.to_string(),
                Ok(None) if Instant::now() < deadline => thread::sleep(Duration::from_millis(2)),
                Ok(None) => return "closed its standard output".into(),
                Err(error) => return error.to_string(),
            }
        }
    }

    fn signal_group(&self, signal: Signal) {
        if let Ok(id) = i32::try_from(self.child.id()) {
            // A process that is gone already is what was wanted.
            let _ = killpg(Pid::from_raw(id), signal);
        }
    }
}

impl Drop for LineProcess {
    fn drop(&mut self) {
        self.signal_group(Signal::SIGKILL);
        let _ = self.child.wait();
    }
}

fn read_lines(stdout: impl Read, sender: &SyncSender<OutputLine>) {
    let mut reader = BufReader::new(stdout);
    loop {
        let mut bytes = Vec::new();
        let limit = LINE_BYTES_MAX as u64 + 1;
        match reader.by_ref().take(limit).read_until(b'\n', &mut bytes) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let line = if bytes.len() > LINE_BYTES_MAX {
            OutputLine::TooLong
        } else {
            let text = String::from_utf8_lossy(&bytes);
            OutputLine::Text(text.trim_end_matches(['\n', '\r']).to_owned())
        };
        let last = matches!(line, OutputLine::TooLong);
        if sender.send(line).is_err() || last {
            return;
        }
    }
}

/// Runs a command to its end; the error says how it failed and shows the end of its output.
pub(crate) fn run_to_end(
    program: &Path,
    args: &[impl AsRef<OsStr>],
    log: &PathBuf,
    deadline: Duration,
    stop: &AtomicBool,
) -> Result<(), String> {
    let open = || File::options().create(true).append(true).open(log);
    let (out, err) = (open(), open());
    let (Ok(out), Ok(err)) = (out, err) else {
        return Err(format!("cannot write {}", log.display()));
    };
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(err)
        .process_group(0)
        .spawn()
        .map_err(|error| error.to_string())?;
    match wait_or_kill(&mut child, Instant::now() + deadline, stop) {
        Ok(Some(status)) if status.success() => Ok(()),
        Ok(Some(status)) => Err(format!("{status}; {}", read_last_line(log))),
        Ok(None) if stop.load(Ordering::Relaxed) => Err("interrupted".into()),
        Ok(None) => Err(format!("not done after {deadline:?}")),
        Err(error) => Err(error.to_string()),
    }
}

/// Waits for a process to end; at the deadline, or when `stop` is set, it is killed and there is no status.
pub(crate) fn wait_or_kill(
    child: &mut Child,
    deadline: Instant,
    stop: &AtomicBool,
) -> std::io::Result<Option<ExitStatus>> {
    loop {
        match child.try_wait() {
            Ok(None) if Instant::now() < deadline && !stop.load(Ordering::Relaxed) => {
                thread::sleep(Duration::from_millis(5));
            }
            Ok(Some(status)) => return Ok(Some(status)),
            other => {
                let _ = child.kill();
                let _ = child.wait();
                return other;
            }
        }
    }
}

/// Returns the last line of a log, for a message.
pub(crate) fn read_last_line(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("(no output)");
    last.chars().take(300).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_back_and_an_ended_process_says_how() {
        let mut process = shell("read x; echo \"got $x\"; exit 3");
        process.send("hello").unwrap();
        assert_eq!(
            process.read_line(test_deadline(), &AtomicBool::new(false)).unwrap(),
            "got hello"
        );
        let end = process.read_line(test_deadline(), &AtomicBool::new(false)).unwrap_err();
        assert_eq!(end, LineError::ProcessEnded("exit status: 3".into()));
    }

    #[test]
    fn silence_ends_at_the_deadline_and_an_interrupt_at_once() {
        let mut process = shell("sleep 60");
        let deadline = Instant::now() + Duration::from_millis(30);
        assert_eq!(process.read_line(deadline, &AtomicBool::new(false)), Err(LineError::Deadline));
        assert_eq!(
            process.read_line(test_deadline(), &AtomicBool::new(true)),
            Err(LineError::Interrupted)
        );
    }

    #[test]
    fn a_line_without_end_is_refused() {
        let mut process = shell("head -c 100000 /dev/zero | tr '\\0' x; sleep 60");
        assert_eq!(
            process.read_line(test_deadline(), &AtomicBool::new(false)),
            Err(LineError::TooLong)
        );
    }

    #[test]
    fn dropping_ends_the_whole_group() {
        let process = shell("sleep 60 & sleep 60");
        let group = Pid::from_raw(i32::try_from(process.id()).unwrap());
        drop(process);
        let deadline = test_deadline();
        while killpg(group, None).is_ok() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
        assert!(killpg(group, None).is_err());
    }

    #[test]
    fn a_process_that_is_asked_to_end_does() {
        let status = shell("cat > /dev/null; exit 0").shut_down().unwrap();
        assert!(status.success());
    }

    fn shell(script: &str) -> LineProcess {
        let args = ["-c".to_owned(), script.to_owned()];
        LineProcess::start(Path::new("/bin/sh"), &args, Path::new("/dev/null")).unwrap()
    }

    fn test_deadline() -> Instant {
        Instant::now() + Duration::from_secs(20)
    }
}
