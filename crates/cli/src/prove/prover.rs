//! `confide-prover`: where it is found, the folder of its files, its progress, and how it is stopped.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
    sync::Mutex,
    time::Instant,
};

use confide_prover::{
    APP_SEGMENTS_MAX, ExternalProver, Launcher, OnProgress, ProverError, StopHandle,
    line::{Progress, RefusalReason, Stage},
};

use crate::{error::CliError, process::run_on_stop_signal, progress_line::ProgressLine};

/// Name of the program.
const PROGRAM: &str = "confide-prover";

/// Exit status of a program that was asked to stop, as a shell gives it for SIGINT.
const STOPPED: u8 = 130;

/// Finds the program: at `given`, by default next to this program.
pub(crate) fn find_prover(given: Option<&Path>) -> Result<PathBuf, CliError> {
    if let Some(path) = given {
        // A bare name would be looked up in PATH, but the caller gave a file.
        return path.canonicalize().map_err(|error| explain_missing(path, &error.to_string()));
    }
    let here = std::env::current_exe()
        .map_err(|error| CliError::new(format!("cannot find this program's own path: {error}")))?;
    let path = here.with_file_name(PROGRAM);
    if !path.is_file() {
        return Err(explain_missing(&path, "no such file"));
    }
    Ok(path)
}

/// This program itself, even if its file was replaced in the meantime: it executes
/// `confide-prover`, which ends when this process does.
const THIS_PROGRAM: &str = "/proc/self/exe";

/// The back end at a path, whose processes end with this one.
pub(crate) fn open_prover<'a>(
    program: PathBuf,
    work: &WorkFolder,
    stop: StopHandle,
    progress: &'a OnProgress<'a>,
) -> ExternalProver<'a> {
    ExternalProver::new(program, work.path(), stop, progress)
        .with_launcher(Launcher::new(THIS_PROGRAM))
}

/// The beginning of the names of work folders, before random bytes in hexadecimal.
const WORK_FOLDER: &str = "confide-prove-work-";
const WORK_FOLDER_RANDOM_BYTES: usize = 8;
/// Attempts to make one, since another process may take it for an abandoned one.
const WORK_FOLDER_ATTEMPTS: u32 = 5;

/// A folder that only this user can read, and that is removed with its content. It is locked while
/// in use: an unlocked one is left from a process that was killed, and the next process removes it.
pub(crate) struct WorkFolder {
    path: PathBuf,
    _lock: File,
}

impl WorkFolder {
    pub(crate) fn new() -> Result<Self, CliError> {
        let parent = std::env::temp_dir();
        let mut attempts = (1..WORK_FOLDER_ATTEMPTS).map(|_| Self::create_in(&parent));
        let made = attempts.find(Result::is_ok).unwrap_or_else(|| Self::create_in(&parent));
        made.map_err(|error| {
            CliError::new(format!("cannot make a work folder: {error}"))
                .with_hint("set TMPDIR to a folder in which this user may write")
        })
    }

    fn create_in(parent: &Path) -> io::Result<Self> {
        let mut random = [0; WORK_FOLDER_RANDOM_BYTES];
        getrandom::fill(&mut random).map_err(|error| io::Error::other(error.to_string()))?;
        let path = parent.join(format!("{WORK_FOLDER}{}", hex::encode(random)));
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        let lock = File::open(&path)?;
        // Until it is locked another process may take it for an abandoned one, and remove it.
        lock.try_lock()?;
        let owner = fs::metadata(&path)?.uid();
        remove_abandoned(parent, owner);
        Ok(Self { path, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for WorkFolder {
    fn drop(&mut self) {
        // A proof may reveal the input, so a folder that stays is reported.
        if let Err(error) = fs::remove_dir_all(&self.path) {
            let path = self.path.display();
            eprintln!("confide: cannot remove {path}, which may hold a proof: {error}");
        }
    }
}

/// Removes unlocked work folders of this user. One that cannot be removed is left.
fn remove_abandoned(parent: &Path, owner: u32) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        // The metadata of the entry itself, not of a link's target.
        let is_own = |about: &fs::Metadata| about.is_dir() && about.uid() == owner;
        if !is_work_folder(&entry.file_name()) || !entry.metadata().is_ok_and(|it| is_own(&it)) {
            continue;
        }
        let Ok(folder) = File::open(entry.path()) else { continue };
        if folder.try_lock().is_ok() && fs::remove_dir_all(entry.path()).is_ok() {
            tracing::info!(folder = %entry.path().display(), "removed an abandoned work folder");
        }
    }
}

/// Whether a folder has the name of a work folder.
fn is_work_folder(name: &OsStr) -> bool {
    let random = name.to_str().and_then(|name| name.strip_prefix(WORK_FOLDER));
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    random.is_some_and(|random| {
        random.len() == 2 * WORK_FOLDER_RANDOM_BYTES && random.bytes().all(is_digit)
    })
}

/// A handle that SIGINT and SIGTERM stop.
pub(crate) fn stop_at_signal() -> Result<StopHandle, CliError> {
    let stop = StopHandle::default();
    let handle = stop.clone();
    run_on_stop_signal(move || handle.stop())?;
    Ok(stop)
}

/// Explains why the back end failed, and what to try.
pub(crate) fn explain_error(error: &ProverError) -> CliError {
    let hint = match error {
        ProverError::Missing { path, reason } => return explain_missing(path, reason),
        ProverError::Interrupted { .. } => {
            return CliError::new(format!("{error}; nothing was written")).with_status(STOPPED);
        }
        ProverError::TooManySegments { .. } | ProverError::ProofTooLong { .. } => {
            return CliError::new(error).with_hint(format!(
                "use --mode aggregated for one proof of constant size, or give more --memory: a \
                 run then has fewer segments, and {APP_SEGMENTS_MAX} fit"
            ));
        }
        ProverError::NotStarted { .. } => {
            "check that this user may execute it and that it was built for this machine; `make \
             prover` builds the matching one"
        }
        ProverError::NotSealed { .. } => {
            "a file in memory cannot be sealed while it is still mapped, or without enough memory: \
             try again"
        }
        ProverError::Refused { why: RefusalReason::Memory, .. } => {
            "allow more with --memory, or remove --memory to let the back end choose"
        }
        ProverError::Refused { why: RefusalReason::UnknownGuest, .. } => {
            "this confide-prover was built without this mode: `make prover` builds a new one"
        }
        ProverError::Protocol { .. } => {
            "it may be of another version: `make prover` builds the matching one"
        }
        ProverError::NoAnswer { .. } => {
            "it may have been killed for lack of memory (--memory bounds it), or be another \
             program: `make prover` builds the matching one"
        }
        _ => return CliError::new(error),
    };
    CliError::new(error).with_hint(hint)
}

fn explain_missing(path: &Path, reason: &str) -> CliError {
    let shown = path.display();
    CliError::new(format!("confide-prover is missing: {shown}: {reason}")).with_hint(
        "`make prover` builds it from source next to confide in some minutes; --prover PATH gives \
         another place; only zkVM proofs need it",
    )
}

/// The progress of the stages, on standard error.
pub(crate) struct StageProgress {
    line: ProgressLine,
    started: Mutex<Option<(Stage, Instant)>>,
}

impl StageProgress {
    pub(crate) fn new() -> Self {
        Self { line: ProgressLine::new(), started: Mutex::new(None) }
    }

    /// Shows how far a stage has come.
    pub(crate) fn show(&self, stage: Stage, progress: Progress) {
        let elapsed_s = self.elapsed_s(stage);
        let Progress { phase, done, of } = progress;
        let of = of.map(|of| format!(" of {of}")).unwrap_or_default();
        self.line.write(&format!("{stage}: {} {done}{of}, {elapsed_s:.0} s", phase.name()));
    }

    /// Shows that a stage starts.
    pub(crate) fn show_start(&self, stage: Stage) {
        self.elapsed_s(stage);
        self.line.write(&format!("{stage}: started"));
    }

    /// Clears the line.
    pub(crate) fn clear(&self) {
        self.line.clear();
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
}
