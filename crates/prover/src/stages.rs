//! The four stages of proving, whatever back end runs them.

use std::{path::PathBuf, process::ExitStatus, time::Duration};

use crate::line::{Progress, ProofMode, ProverDescription, RefusalReason, Stage, StageResult};

/// A back end that proves runs of programs.
///
/// Each stage is measured by itself: its time, its CPU seconds and its peak memory are its own.
pub trait Prover {
    /// Describes the back end and its programs.
    ///
    /// # Errors
    /// If it cannot be asked.
    fn describe(&self) -> Result<ProverDescription, ProverError>;

    /// Runs the guest's program on this machine; gives the statement's encoding.
    ///
    /// # Errors
    /// If the program refuses the input, or the stage fails.
    fn run_native(&self, guest: &str, input: &[u8]) -> Result<StageRun<Vec<u8>>, ProverError>;

    /// Runs the guest in the zkVM's executor, which counts its cycles.
    ///
    /// # Errors
    /// As [`Prover::run_native`].
    fn emulate(
        &self,
        guest: &str,
        input: &[u8],
        plan: ProofPlan,
    ) -> Result<StageRun<()>, ProverError>;

    /// Runs the guest and proves it; gives the proof's body.
    ///
    /// # Errors
    /// As [`Prover::run_native`]; and where the work does not fit into the memory.
    fn prove(
        &self,
        guest: &str,
        input: &[u8],
        plan: ProofPlan,
    ) -> Result<StageRun<Vec<u8>>, ProverError>;

    /// Checks a proof's body.
    ///
    /// # Errors
    /// [`ProverError::Refused`] if it does not hold.
    fn check_proof(
        &self,
        guest: &str,
        mode: ProofMode,
        body: &[u8],
    ) -> Result<StageRun<()>, ProverError>;
}

/// The mode and the memory of a proof that is to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProofPlan {
    /// The proof's mode.
    pub mode: ProofMode,
    /// The largest number of memory that proving may take; absent: what the back end takes by itself.
    pub memory_bytes: Option<u64>,
}

/// A stage that succeeded.
#[derive(Clone, Debug, PartialEq)]
pub struct StageRun<T> {
    /// The back end's result.
    pub done: StageResult,
    /// The stage's output: a statement's encoding, a proof's body, or nothing.
    pub output: T,
    /// Time and memory that the stage took.
    pub used: StageUsage,
}

/// What the process of a stage used, its start and its end included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageUsage {
    /// Wall-clock time, from before the start to the end.
    pub wall: Duration,
    /// CPU time in user and system mode, over all threads.
    pub cpu: Duration,
    /// Peak resident memory, in bytes.
    pub peak_rss_bytes: u64,
    /// Whether the peak is that of the starting process, which Linux counts to the child: the stage
    /// itself took that or less.
    pub peak_is_at_most: bool,
}

/// Why a stage gave nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProverError {
    /// `confide-prover` was not found.
    #[error("confide-prover is missing: {}: {reason}", path.display())]
    Missing {
        /// The path where it was looked for.
        path: PathBuf,
        /// The system's message.
        reason: String,
    },
    /// `confide-prover` is there, but cannot be read or started.
    #[error("confide-prover cannot be started: {}: {reason}", path.display())]
    NotStarted {
        /// The program's path.
        path: PathBuf,
        /// The system's message.
        reason: String,
    },
    /// `confide-prover` is there, but its copy, or what it is to read, could not be put into sealed
    /// memory.
    #[error("confide-prover cannot be sealed in memory: {}: {reason}", path.display())]
    NotSealed {
        /// The program's path.
        path: PathBuf,
        /// The system's message.
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
        /// The system's message.
        reason: String,
    },
    /// The back end refused, for a reason of its closed list.
    #[error("{stage} was refused: {why}: {detail}")]
    Refused {
        /// The stage.
        stage: Stage,
        /// Why it was refused.
        why: RefusalReason,
        /// Details for people.
        detail: String,
    },
    /// The back end broke the protocol.
    #[error("{stage}: confide-prover broke its protocol: {reason}")]
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
        /// The process's exit status.
        status: ExitStatus,
        /// The end of the process's standard error.
        stderr: String,
    },
    /// The stage took longer than it may.
    #[error("{stage}: confide-prover gave no answer within {} s", limit.as_secs())]
    Deadline {
        /// The stage.
        stage: &'static str,
        /// The limit.
        limit: Duration,
    },
    /// The stage was stopped on request.
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
