//! `confide-prover` as the back end: one process for each stage.

use std::{
    fs,
    io::{self, BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{ChildStderr, ChildStdout, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use wait4::Wait4;

use crate::{
    file::{APP_SEGMENTS_MAX, BODY_BYTES_MAX},
    launch::{LAUNCH_FAILED, Launcher},
    line::{
        Digest, LINE_LENGTH_MAX, PROTOCOL, ProofMode, ProverDescription, ProverMessage, Refusal,
        Stage, StageResult,
    },
    program::{Program, ProgramError},
    sealed::SealedMemfd,
    stages::{OnProgress, ProofPlan, Prover, ProverError, StageRun, StageUsage},
};

/// The longest input of a guest: the longest is a quote with its endorsements, some tens of KiB.
pub const INPUT_BYTES_MAX: usize = 1024 * 1024;

/// The longest output of the native stage: a statement.
const STATEMENT_BYTES_MAX: usize = 64 * 1024;

/// The largest number of lines of one process: a line a segment and phase, and there are at most some thousands.
const LINES_MAX: usize = 100_000;

/// The most bytes of a failed process's standard error that are kept.
const STDERR_BYTES_MAX: usize = 4 * 1024;

/// The longest that `describe` may take: it computes the commitments of some programs.
const DESCRIBE_DEADLINE: Duration = Duration::from_secs(300);

/// The longest that a stage other than proving may take. It takes seconds; a busy machine may take
/// many times that.
const STAGE_DEADLINE: Duration = Duration::from_secs(600);

/// The longest that proving may take. It takes minutes to hours; a day without an end is a fault.
const PROVE_DEADLINE: Duration = Duration::from_secs(24 * 60 * 60);

/// The time after SIGTERM at which a process that has not ended is killed.
const STOP_GRACE: Duration = Duration::from_secs(3);

/// `confide-prover`, found at a path. The file is read once: every stage runs what was hashed.
pub struct ExternalProver<'a> {
    path: PathBuf,
    program: OnceLock<Program>,
    launcher: Option<Launcher>,
    work: PathBuf,
    stop: StopHandle,
    progress: &'a OnProgress<'a>,
}

/// Ends the process that runs, and lets no other start. Clones stop the same work.
#[derive(Clone, Default)]
pub struct StopHandle {
    state: Arc<Mutex<ProverState>>,
}

#[derive(Default)]
struct ProverState {
    asked: bool,
    running: Option<Pid>,
}

impl<'a> ExternalProver<'a> {
    /// Makes a back end of the program at `path`, which is read when it is first asked for. What
    /// the program reads is in sealed memory: an input may be a secret, and stays nowhere. What it
    /// writes passes through files in `work`, a folder that exists and that nobody else can read.
    pub fn new(
        path: impl Into<PathBuf>,
        work: impl Into<PathBuf>,
        stop: StopHandle,
        progress: &'a OnProgress<'a>,
    ) -> Self {
        let program = OnceLock::new();
        let launcher = None;
        Self { path: path.into(), program, launcher, work: work.into(), stop, progress }
    }

    /// Has the processes end with this one even where it is killed. Each stage then takes some
    /// milliseconds more.
    pub fn with_launcher(self, launcher: Launcher) -> Self {
        Self { launcher: Some(launcher), ..self }
    }

    /// SHA-256 of the program: of what every stage of this runs, whatever becomes of the file.
    ///
    /// # Errors
    /// [`ProverError::Missing`], [`ProverError::NotStarted`] if it cannot be read, and
    /// [`ProverError::NotSealed`].
    pub fn sha256(&self) -> Result<Digest, ProverError> {
        self.open_program().map(Program::sha256)
    }

    fn open_program(&self) -> Result<&Program, ProverError> {
        if let Some(program) = self.program.get() {
            return Ok(program);
        }
        let program = Program::open_sealed(&self.path).map_err(|error| match error {
            ProgramError::Absent(error) => {
                ProverError::Missing { path: self.path.clone(), reason: error.to_string() }
            }
            ProgramError::Unreadable(error) => self.start_error(&error),
            ProgramError::Unsealed(error) => self.seal_error(&error),
        })?;
        Ok(self.program.get_or_init(|| program))
    }

    fn build_command(&self) -> Result<Command, ProverError> {
        Ok(self.open_program()?.command(self.launcher.as_ref()))
    }

    fn start_error(&self, reason: &dyn ToString) -> ProverError {
        ProverError::NotStarted { path: self.path.clone(), reason: reason.to_string() }
    }

    fn seal_error(&self, error: &io::Error) -> ProverError {
        ProverError::NotSealed { path: self.path.clone(), reason: error.to_string() }
    }

    fn run_stage(
        &self,
        stage: Stage,
        order: StageArguments<'_>,
    ) -> Result<(StageResult, StageUsage), ProverError> {
        let mut command = self.build_command()?;
        command.arg(stage.name()).args(["--guest", order.guest]);
        for (option, path) in order.files {
            command.arg(option).arg(path);
        }
        if let Some(mode) = order.mode {
            command.args(["--mode", mode.name()]);
        }
        if let Some(bytes) = order.memory_bytes {
            command.args(["--memory", &bytes.to_string()]);
        }
        let limit = if stage == Stage::Prove { PROVE_DEADLINE } else { STAGE_DEADLINE };
        match self.run_process(stage.name(), Some(stage), command, limit)? {
            (ProverMessage::Result(done), used) if done.stage == stage => Ok((done, used)),
            (ProverMessage::Refused(Refusal { why, detail }), _) => {
                Err(ProverError::Refused { stage, why, detail: to_printable(&detail) })
            }
            _ => Err(ProverError::Protocol {
                stage: stage.name(),
                reason: "wanted the result of this stage, got another line".to_string(),
            }),
        }
    }

    /// Runs one process to its end; gives its last line and what it used.
    fn run_process(
        &self,
        name: &'static str,
        stage: Option<Stage>,
        mut command: Command,
        limit: Duration,
    ) -> Result<(ProverMessage, StageUsage), ProverError> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let floor_bytes = own_peak_memory_bytes();
        let started = self.stop.spawn(&mut command).map_err(|error| self.start_error(&error))?;
        let Some((mut child, started)) = started else {
            return Err(ProverError::Interrupted { stage: name });
        };
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let kept = thread::spawn(move || stderr.map(stderr_tail).unwrap_or_default());
        let watch = Watchdog::new(self.stop.clone(), limit);
        let lines = stdout.map_or(Ok(None), |out| self.read_lines(stage, out));
        if lines.is_err() {
            // A process that breaks the protocol can do nothing useful any more.
            self.stop.send_signal(Signal::KILL);
        }
        let ended = self.stop.reap(child);
        let wall = started.elapsed();
        let late = watch.stop_and_join();
        let stderr = kept.join().unwrap_or_default();
        let protocol = |reason: String| ProverError::Protocol { stage: name, reason };
        if self.stop.is_stop_requested() {
            return Err(ProverError::Interrupted { stage: name });
        }
        if late {
            return Err(ProverError::Deadline { stage: name, limit });
        }
        let (status, cpu, peak_rss_bytes) = ended.map_err(|error| protocol(error.to_string()))?;
        let line = lines.map_err(protocol)?;
        let line = match line {
            Some(line) if status.code() == Some(expected_exit_status(&line)) => line,
            None if self.launcher.is_some() && status.code() == Some(LAUNCH_FAILED.into()) => {
                return Err(self.start_error(&to_printable(stderr.trim())));
            }
            _ => {
                return Err(ProverError::NoAnswer {
                    stage: name,
                    status,
                    stderr: to_printable(&stderr),
                });
            }
        };
        // Where the floor is not known, nothing tells the stage's memory from this process's.
        let peak_is_at_most = floor_bytes.is_none_or(|floor| peak_rss_bytes <= floor);
        Ok((line, StageUsage { wall, cpu, peak_rss_bytes, peak_is_at_most }))
    }

    /// Reads lines to the end of standard output; the last one is the answer.
    fn read_lines(
        &self,
        stage: Option<Stage>,
        out: ChildStdout,
    ) -> Result<Option<ProverMessage>, String> {
        let mut out = BufReader::new(out);
        let mut answer = None;
        for _ in 0..LINES_MAX {
            let mut text = Vec::new();
            let read = (&mut out)
                .take(LINE_LENGTH_MAX as u64 + 1)
                .read_until(b'\n', &mut text)
                .map_err(|error| format!("cannot read its output: {error}"))?;
            if read == 0 {
                return Ok(answer);
            }
            if read > LINE_LENGTH_MAX {
                return Err(format!("wanted lines of at most {LINE_LENGTH_MAX} bytes, got more"));
            }
            if answer.is_some() {
                return Err("wanted nothing after its answer, got a line".to_string());
            }
            match (serde_json::from_slice(&text), stage) {
                (Ok(ProverMessage::Progress(progress)), Some(stage)) => {
                    (self.progress)(stage, progress)
                }
                (Ok(line), _) => answer = Some(line),
                (Err(error), _) => return Err(format!("wanted a line of JSON, got {error}")),
            }
        }
        Err(format!("wanted at most {LINES_MAX} lines, got more"))
    }

    fn seal_bytes(&self, name: &'static str, bytes: &[u8]) -> Result<SealedMemfd, ProverError> {
        SealedMemfd::new(name, bytes).map_err(|error| self.seal_error(&error))
    }

    fn read_output_file(
        &self,
        held: &TemporaryFile,
        stage: Stage,
        limit: usize,
    ) -> Result<Vec<u8>, ProverError> {
        let mut bytes = Vec::new();
        fs::File::open(&held.0)
            .and_then(|file| file.take(limit as u64 + 1).read_to_end(&mut bytes))
            .map_err(|error| self.io_error(stage, &held.0, &error))?;
        if bytes.len() > limit && stage == Stage::Prove {
            return Err(ProverError::ProofTooLong { limit });
        }
        if bytes.len() > limit {
            let reason = format!("wanted an output of at most {limit} bytes, got more");
            return Err(ProverError::Protocol { stage: stage.name(), reason });
        }
        Ok(bytes)
    }

    fn io_error(&self, stage: Stage, path: &Path, error: &io::Error) -> ProverError {
        let (stage, path) = (stage.name(), path.to_owned());
        ProverError::File { stage, path, reason: error.to_string() }
    }
}

impl Prover for ExternalProver<'_> {
    fn describe(&self) -> Result<ProverDescription, ProverError> {
        let mut command = self.build_command()?;
        command.arg("describe");
        let protocol = |reason| ProverError::Protocol { stage: "describe", reason };
        match self.run_process("describe", None, command, DESCRIBE_DEADLINE)?.0 {
            ProverMessage::Description(description) if description.protocol == PROTOCOL => {
                Ok(description)
            }
            ProverMessage::Description(other) => {
                Err(protocol(format!("wanted protocol {PROTOCOL}, got {}", other.protocol)))
            }
            _ => Err(protocol("wanted a description, got another line".to_string())),
        }
    }

    fn run_native(&self, guest: &str, input: &[u8]) -> Result<StageRun<Vec<u8>>, ProverError> {
        let input = self.seal_bytes("input", input)?;
        let out = TemporaryFile(self.work.join("statement"));
        let files = &[("--input", input.path()), ("--out", out.0.clone())];
        let order = StageArguments { guest, files, mode: None, memory_bytes: None };
        let (done, used) = self.run_stage(Stage::Native, order)?;
        let output = self.read_output_file(&out, Stage::Native, STATEMENT_BYTES_MAX)?;
        Ok(StageRun { done, output, used })
    }

    fn emulate(
        &self,
        guest: &str,
        input: &[u8],
        plan: ProofPlan,
    ) -> Result<StageRun<()>, ProverError> {
        let input = self.seal_bytes("input", input)?;
        let files = &[("--input", input.path())];
        let ProofPlan { mode, memory_bytes } = plan;
        let order = StageArguments { guest, files, mode: Some(mode), memory_bytes };
        let (done, used) = self.run_stage(Stage::Emulate, order)?;
        // Refused here, before hours of proving a proof that no file would hold.
        match (mode, done.segments) {
            (ProofMode::App, Some(segments)) if segments > APP_SEGMENTS_MAX => {
                Err(ProverError::TooManySegments { segments, limit: APP_SEGMENTS_MAX })
            }
            _ => Ok(StageRun { done, output: (), used }),
        }
    }

    fn prove(
        &self,
        guest: &str,
        input: &[u8],
        plan: ProofPlan,
    ) -> Result<StageRun<Vec<u8>>, ProverError> {
        let input = self.seal_bytes("input", input)?;
        let out = TemporaryFile(self.work.join("proof"));
        let files = &[("--input", input.path()), ("--out", out.0.clone())];
        let ProofPlan { mode, memory_bytes } = plan;
        let order = StageArguments { guest, files, mode: Some(mode), memory_bytes };
        let (done, used) = self.run_stage(Stage::Prove, order)?;
        let output = self.read_output_file(&out, Stage::Prove, BODY_BYTES_MAX)?;
        Ok(StageRun { done, output, used })
    }

    fn check_proof(
        &self,
        guest: &str,
        mode: ProofMode,
        body: &[u8],
    ) -> Result<StageRun<()>, ProverError> {
        let proof = self.seal_bytes("proof", body)?;
        let files = &[("--proof", proof.path())];
        let order = StageArguments { guest, files, mode: Some(mode), memory_bytes: None };
        let (done, used) = self.run_stage(Stage::Check, order)?;
        Ok(StageRun { done, output: (), used })
    }
}

impl StopHandle {
    /// Asks the running process to end, and lets no other start.
    pub fn stop(&self) {
        self.lock_state().asked = true;
        self.send_signal(Signal::TERM);
    }

    /// Whether [`StopHandle::stop`] was called.
    pub fn is_stop_requested(&self) -> bool {
        self.lock_state().asked
    }

    fn lock_state(&self) -> MutexGuard<'_, ProverState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Under the lock a process that runs is not yet reaped: its number is still its own.
    fn send_signal(&self, signal: Signal) {
        if let Some(pid) = self.lock_state().running {
            // It may have ended just now, which is what was wanted.
            let _ = kill_process(pid, signal);
        }
    }

    /// Starts a process, unless somebody asked to stop.
    fn spawn(&self, command: &mut Command) -> io::Result<Option<(std::process::Child, Instant)>> {
        let mut state = self.lock_state();
        if state.asked {
            return Ok(None);
        }
        let started = Instant::now();
        let child = command.spawn()?;
        state.running = Some(Pid::from_child(&child));
        Ok(Some((child, started)))
    }

    /// Waits for the end, then takes the process's account: status, CPU time, peak memory.
    fn reap(&self, child: std::process::Child) -> io::Result<(ExitStatus, Duration, u64)> {
        let pid = Pid::from_child(&child);
        // Waits without reaping, so that the number stays the child's until the lock is held.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while let Err(rustix::io::Errno::INTR) = waitid(WaitId::Pid(pid), options) {}
        let mut state = self.lock_state();
        state.running = None;
        let ended = child.wait4()?;
        let used = ended.rusage;
        Ok((ended.status, used.utime + used.stime, used.maxrss))
    }
}

/// Kills the process at its deadline, or some seconds after somebody asked it to stop.
struct Watchdog {
    ended: mpsc::Sender<()>,
    thread: thread::JoinHandle<bool>,
}

impl Watchdog {
    fn new(stop: StopHandle, limit: Duration) -> Self {
        let (ended, told) = mpsc::channel();
        let thread = thread::spawn(move || {
            let deadline = Instant::now() + limit;
            let mut late = false;
            loop {
                let asked = stop.is_stop_requested();
                let left = deadline.saturating_duration_since(Instant::now());
                let wait = if asked || late { STOP_GRACE } else { left.min(STOP_GRACE) };
                match told.recv_timeout(wait) {
                    Err(mpsc::RecvTimeoutError::Timeout) if asked || late => {
                        stop.send_signal(Signal::KILL);
                    }
                    Err(mpsc::RecvTimeoutError::Timeout) if Instant::now() >= deadline => {
                        late = true;
                        stop.send_signal(Signal::TERM);
                    }
                    Err(mpsc::RecvTimeoutError::Timeout) => {}
                    _ => return late,
                }
            }
        });
        Self { ended, thread }
    }

    /// Ends the watch; says whether the deadline passed.
    fn stop_and_join(self) -> bool {
        let _ = self.ended.send(());
        self.thread.join().unwrap_or(false)
    }
}

/// A file that is removed when its use ends: a proof may tell of the input, and is large.
struct TemporaryFile(PathBuf);

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

struct StageArguments<'a> {
    guest: &'a str,
    files: &'a [(&'static str, PathBuf)],
    mode: Option<ProofMode>,
    memory_bytes: Option<u64>,
}

/// The exit status that has to accompany an answer.
fn expected_exit_status(line: &ProverMessage) -> i32 {
    if matches!(line, ProverMessage::Refused(_)) { 1 } else { 0 }
}

/// Reads standard error to its end, or the process would block; gives the last of it.
fn stderr_tail(mut stderr: ChildStderr) -> String {
    let (mut kept, mut piece) = (Vec::new(), [0; 1024]);
    while let Ok(read @ 1..) = stderr.read(&mut piece) {
        kept.extend_from_slice(&piece[..read]);
        kept.drain(..kept.len().saturating_sub(STDERR_BYTES_MAX));
    }
    String::from_utf8_lossy(&kept).into_owned()
}

/// Makes text of another program fit for a terminal.
fn to_printable(text: &str) -> String {
    let kept = text.chars().filter(|c| !c.is_control() || *c == '\n');
    kept.take(STDERR_BYTES_MAX).collect()
}

/// Peak memory of this process: Linux counts it to a child that it starts.
fn own_peak_memory_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}
