//! `confide-prover`: where it is, where its files lie, and how it is stopped.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::{self, IsTerminal, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
    sync::Mutex,
    time::Instant,
};

use confide_prover::{
    APP_SEGMENTS_MAX, External, Launcher, OnProgress, ProverError, StopHandle,
    line::{Progress, RefusalReason, Stage},
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

/// This very program, even where its file was replaced meanwhile: it becomes `confide-prover` and ends
/// when this process does.
const THIS_PROGRAM: &str = "/proc/self/exe";

/// The back end at a path, whose processes end with this one.
pub(crate) fn back_end<'a>(
    program: PathBuf,
    work: &WorkFolder,
    stop: StopHandle,
    progress: &'a OnProgress<'a>,
) -> External<'a> {
    External::new(program, work.path(), stop, progress).launched_by(Launcher::new(THIS_PROGRAM))
}

/// What the names of work folders begin with; random bytes follow, in hexadecimal.
const WORK_FOLDER: &str = "confide-prove-work-";
const WORK_FOLDER_RANDOM_BYTES: usize = 8;
/// How often one is made where another process takes it for an abandoned one.
const WORK_FOLDER_ATTEMPTS: u32 = 5;

/// A folder that only this user can read, and that goes with all that is in it. It is locked while it
/// is in use: one that nobody holds is of a process that was killed, and the next one removes it.
pub(crate) struct WorkFolder {
    path: PathBuf,
    _lock: File,
}

impl WorkFolder {
    pub(crate) fn new() -> Result<Self, CliError> {
        let parent = std::env::temp_dir();
        let mut made = Self::make(&parent);
        for _ in 1..WORK_FOLDER_ATTEMPTS {
            if made.is_ok() {
                break;
            }
            made = Self::make(&parent);
        }
        made.map_err(|error| {
            CliError::new(format!("cannot make a folder for the work: {error}"))
                .hint("TMPDIR names the folder in which it is made")
        })
    }

    fn make(parent: &Path) -> io::Result<Self> {
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
        // A proof may tell of the input: that it stays is not kept silent.
        if let Err(error) = fs::remove_dir_all(&self.path) {
            let path = self.path.display();
            eprintln!("confide: cannot remove {path}, which may hold a proof: {error}");
        }
    }
}

/// Removes work folders of this user that nobody holds. What cannot be removed is left for another.
fn remove_abandoned(parent: &Path, owner: u32) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        // Of the entry itself: a link leads anywhere.
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

/// Whether a folder has the name of one that was made here: nobody's own is called so.
fn is_work_folder(name: &OsStr) -> bool {
    let random = name.to_str().and_then(|name| name.strip_prefix(WORK_FOLDER));
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    random.is_some_and(|random| {
        random.len() == 2 * WORK_FOLDER_RANDOM_BYTES && random.bytes().all(is_digit)
    })
}

/// A handle that SIGINT and SIGTERM pull.
pub(crate) fn stop_at_signal() -> Result<StopHandle, CliError> {
    let cannot = |error| CliError::new(format!("cannot watch for signals: {error}"));
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(cannot)?;
    let stop = StopHandle::default();
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
        ProverError::NotStarted { .. } => CliError::new(error).hint(
            "may this user run it, and was it built for this machine? `make prover` builds the one \
             that belongs here",
        ),
        ProverError::NotSealed { .. } => CliError::new(error).hint(
            "a file in memory that somebody still maps cannot be sealed, nor one for which there \
             is no memory: try again",
        ),
        ProverError::TooManySegments { .. } | ProverError::ProofTooLong { .. } => {
            CliError::new(error).hint(format!(
                "use --mode aggregated, one proof of constant size; more --memory makes fewer \
                 segments, of which {APP_SEGMENTS_MAX} fit"
            ))
        }
        ProverError::Interrupted { .. } => {
            CliError::new(format!("{error}; nothing was written")).status(STOPPED)
        }
        ProverError::Refused { why: RefusalReason::Memory, .. } => CliError::new(error)
            .hint("give more with --memory, or leave it away to let the back end choose"),
        ProverError::Refused { why: RefusalReason::UnknownGuest, .. } => CliError::new(error)
            .hint("this confide-prover was built without it: `make prover` builds a new one"),
        ProverError::Protocol { .. } => CliError::new(error)
            .hint("is it of another version? `make prover` builds the one that belongs here"),
        ProverError::NoAnswer { .. } => CliError::new(error).hint(
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
