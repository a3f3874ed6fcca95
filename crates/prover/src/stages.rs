//! The four stages, whoever does them.

use std::{path::PathBuf, process::ExitStatus, time::Duration};

use crate::line::{Description, Mode, Progress, RefusalReason, Stage, StageResult};

/// A back end that proves runs of programs.
///
/// Each stage is measured by itself: its time, its CPU seconds and its peak memory are its own.
pub trait Prover {
    /// What the back end is and which programs it has.
    ///
    /// # Errors
    /// Where it cannot be asked.
    fn describe(&self) -> Result<Description, ProverError>;

    /// Runs the guest's program on this machine; gives the statement's encoding.
    ///
    /// # Errors
    /// Where the program refuses the input, or the stage fails.
    fn native(&self, guest: &str, input: &[u8]) -> Result<StageRun<Vec<u8>>, ProverError>;

    /// Runs the guest in the zkVM's executor, which counts its cycles.
    ///
    /// # Errors
    /// As [`Prover::native`].
    fn emulate(&self, guest: &str, input: &[u8], plan: Plan) -> Result<StageRun<()>, ProverError>;

    /// Runs the guest and proves it; gives the proof's body.
    ///
    /// # Errors
    /// As [`Prover::native`]; and where the work does not fit into the memory.
    fn prove(
        &self,
        guest: &str,
        input: &[u8],
        plan: Plan,
    ) -> Result<StageRun<Vec<u8>>, ProverError>;

    /// Checks a proof's body.
    ///
    /// # Errors
    /// [`ProverError::Refused`] where it does not hold.
    fn check(&self, guest: &str, mode: Mode, body: &[u8]) -> Result<StageRun<()>, ProverError>;
}

/// What a proof is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Its kind.
    pub mode: Mode,
    /// Most memory that proving may take; absent: what the back end takes by itself.
    pub memory_bytes: Option<u64>,
}

/// A stage that was done.
#[derive(Clone, Debug, PartialEq)]
pub struct StageRun<T> {
    /// What the back end says of it.
    pub done: StageResult,
    /// What came out.
    pub output: T,
    /// What it cost.
    pub used: StageUsage,
}

/// What the process of a stage used, its start and its end included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageUsage {
    /// From before its start to its end.
    pub wall: Duration,
    /// In user and system mode together, over all its threads.
    pub cpu: Duration,
    /// Peak resident memory.
    pub peak_rss_bytes: u64,
    /// The peak is that of the starting process, which Linux counts to the child: the stage itself
    /// took that or less.
    pub peak_is_at_most: bool,
}

/// Why a stage gave nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProverError {
    /// There is no such program.
    #[error("confide-prover is missing: {}: {reason}", path.display())]
    Missing {
        /// Where it was looked for.
        path: PathBuf,
        /// What the system says.
        reason: String,
    },
    /// It is there, and cannot be read or started.
    #[error("confide-prover cannot be started: {}: {reason}", path.display())]
    NotStarted {
        /// Where it is.
        path: PathBuf,
        /// What the system says.
        reason: String,
    },
    /// It is there, and its copy, or what it is to read, could not be put into sealed memory.
    #[error("confide-prover cannot be sealed in memory: {}: {reason}", path.display())]
    NotSealed {
        /// Where it is.
        path: PathBuf,
        /// What the system says.
        reason: String,
    },
    /// An app proof of the run would be longer than a proof file's body.
    #[error(
        "run is too long for a proof of mode app: wanted at most {limit} segments, got {segments}"
    )]
    TooManySegments {
        /// Segments of the run.
        segments: u32,
        /// The limit.
        limit: u32,
    },
    /// A proof is longer than a proof file's body.
    #[error("proof is too long: wanted at most {limit} bytes, got more")]
    ProofTooLong {
        /// The limit.
        limit: usize,
    },
    /// A file of the work folder cannot be written or read.
    #[error("{stage}: cannot use {}: {reason}", path.display())]
    File {
        /// The stage that needs it.
        stage: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system says.
        reason: String,
    },
    /// The back end refused, for a reason of its closed list.
    #[error("{stage} was refused: {why}: {detail}")]
    Refused {
        /// The stage.
        stage: Stage,
        /// Why it was refused.
        why: RefusalReason,
        /// What exactly.
        detail: String,
    },
    /// The back end said something that is not of the protocol.
    #[error("{stage}: confide-prover does not keep to its protocol: {reason}")]
    Protocol {
        /// The stage.
        stage: &'static str,
        /// What was wrong.
        reason: String,
    },
    /// The process ended without an answer.
    #[error("{stage}: confide-prover ended without an answer ({status}){}", describe_stderr(.stderr))]
    NoAnswer {
        /// The stage.
        stage: &'static str,
        /// How it ended.
        status: ExitStatus,
        /// The end of what it said to people.
        stderr: String,
    },
    /// It took longer than such a stage may.
    #[error("{stage}: confide-prover gave no answer within {} s", limit.as_secs())]
    Deadline {
        /// The stage.
        stage: &'static str,
        /// The limit.
        limit: Duration,
    },
    /// Somebody asked to stop.
    #[error("{stage}: stopped")]
    Interrupted {
        /// The stage.
        stage: &'static str,
    },
}

/// Told of each step of a stage, on the thread that runs it.
pub type OnProgress<'a> = dyn Fn(Stage, Progress) + Sync + 'a;

fn describe_stderr(stderr: &str) -> String {
    match stderr.trim() {
        "" => String::new(),
        text => format!(": {text}"),
    }
}
