//! `confide-prover`: where it is, where its files lie, and how it is stopped.

use std::{
    fs,
    io::{IsTerminal, Write},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::Mutex,
    time::Instant,
};

use confide_prover::{
    ProverError, Stop,
    line::{Progress, Stage, Why},
};

use crate::{error::CliError, process};

/// Name of the program.
const PROGRAM: &str = "confide-prover";

/// Exit status of a program that was asked to stop, as a shell gives it for SIGINT.
const STOPPED: u8 = 130;

/// The program at `given`, else the one beside this program.
pub(crate) fn find(given: Option<&Path>) -> Result<PathBuf, CliError> {
    if let Some(path) = given {
        // A bare name would be looked up in PATH: the caller named a file.
        return path.canonicalize().map_err(|error| missing(path, &error.to_string()));
    }
    let here = std::env::current_exe()
        .map_err(|error| CliError::new(format!("cannot tell where this program is: {error}")))?;
    let path = here.with_file_name(PROGRAM);
    match path.is_file() {
        true => Ok(path),
        false => Err(missing(&path, "no such file")),
    }
}

/// A folder that only this user can read, and that goes with all that is in it.
pub(crate) struct WorkFolder(PathBuf);

impl WorkFolder {
    pub(crate) fn new() -> Result<Self, CliError> {
        let cannot = |error: String| {
            CliError::new(format!("cannot make a folder for the work: {error}"))
                .hint("TMPDIR names the folder in which it is made")
        };
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(|error| cannot(error.to_string()))?;
        let path = std::env::temp_dir().join(format!("confide-prove-{}", hex::encode(random)));
        let made = fs::DirBuilder::new().mode(0o700).create(&path);
        made.map_err(|error| cannot(error.to_string()))?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for WorkFolder {
    fn drop(&mut self) {
        // An input may be a secret: that it stays is not kept silent.
        if let Err(error) = fs::remove_dir_all(&self.0) {
            let path = self.0.display();
            eprintln!("confide: cannot remove {path}, which may hold the input: {error}");
        }
    }
}

/// A handle that SIGINT and SIGTERM pull.
pub(crate) fn stop_at_signal() -> Result<Stop, CliError> {
    let cannot = |error| CliError::new(format!("cannot watch for signals: {error}"));
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(cannot)?;
    let stop = Stop::default();
    let pulled = stop.clone();
    // The signals are caught from here on, not only once the thread runs.
    let asked = {
        let _inside = runtime.enter();
        process::asked_to_stop()
    };
    std::thread::spawn(move || {
        runtime.block_on(asked);
        pulled.stop();
    });
    Ok(stop)
}

/// The library's refusal, with what to try.
pub(crate) fn explained(error: &ProverError) -> CliError {
    match error {
        ProverError::Missing { path, reason } => missing(path, reason),
        ProverError::Interrupted { .. } => {
            CliError::new(format!("{error}; nothing was written")).status(STOPPED)
        }
        ProverError::Refused { why: Why::Memory, .. } => CliError::new(error)
            .hint("give more with --memory, or leave it away to let the back end choose"),
        ProverError::Refused { why: Why::UnknownGuest, .. } => CliError::new(error)
            .hint("this confide-prover was built without it: `make prover` builds a new one"),
        ProverError::Protocol { .. } => CliError::new(error)
            .hint("is it of another version? `make prover` builds the one that belongs here"),
        ProverError::Ended { .. } => CliError::new(error).hint(
            "was it killed for want of memory (--memory bounds it)? is it another program? `make \
             prover` builds the one that belongs here",
        ),
        _ => CliError::new(error),
    }
}

fn missing(path: &Path, reason: &str) -> CliError {
    let shown = path.display();
    CliError::new(format!("confide-prover is missing: {shown}: {reason}")).hint(
        "`make prover` builds it from source beside confide (some minutes); --prover PATH names \
         another place; everything that needs no zkVM works without it",
    )
}

/// How far the stages are, on standard error: one line that is written over on a terminal, a line
/// for each step elsewhere.
pub(crate) struct Shown {
    terminal: bool,
    started: Mutex<Option<(Stage, Instant)>>,
}

impl Shown {
    pub(crate) fn new() -> Self {
        Self { terminal: std::io::stderr().is_terminal(), started: Mutex::new(None) }
    }

    pub(crate) fn show(&self, stage: Stage, progress: Progress) {
        let elapsed_s = self.elapsed_s(stage);
        let Progress { phase, done, of } = progress;
        let of = of.map(|of| format!(" of {of}")).unwrap_or_default();
        self.write(&format!("{stage}: {} {done}{of}, {elapsed_s:.0} s", phase.name()));
    }

    /// Says that a stage starts.
    pub(crate) fn start(&self, stage: Stage) {
        self.elapsed_s(stage);
        self.write(&format!("{stage}: started"));
    }

    /// Clears the line.
    pub(crate) fn end(&self) {
        if self.terminal {
            eprint!("\r\x1b[K");
        }
    }

    fn elapsed_s(&self, stage: Stage) -> f64 {
        let mut started = self.started.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        match *started {
            Some((known, since)) if known == stage => since.elapsed().as_secs_f64(),
            _ => {
                *started = Some((stage, Instant::now()));
                0.0
            }
        }
    }

    fn write(&self, text: &str) {
        let mut out = std::io::stderr().lock();
        // Nobody to show it to is no reason to stop.
        let _ = match self.terminal {
            true => write!(out, "\r\x1b[K{text}"),
            false => writeln!(out, "{text}"),
        };
        let _ = out.flush();
    }
}
