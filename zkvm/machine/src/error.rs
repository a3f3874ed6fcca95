//! What can go wrong in a machine, and why a proof is rejected.

use openvm_circuit::arch::ExecutionError;

/// A run that did not end in a proof.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The program ended with a status other than 0: the claim is not true of this input.
    #[error("program ended with status {0}, wanted 0")]
    Exit(u32),
    /// The program did what its machine does not allow.
    #[error("program stopped: {0}")]
    Stopped(String),
    /// No cut into segments keeps the memory asked for.
    #[error("memory is too small: wanted {needed} bytes at least, got {given}")]
    Memory {
        /// Bytes that suffice for the smallest segments.
        needed: u64,
        /// Bytes that the caller gave.
        given: u64,
    },
    /// The ELF is not a program of this machine.
    #[error("program does not load: {0}")]
    Load(String),
    /// A fault of the back end.
    #[error("back end: {0}")]
    Backend(String),
}

impl From<ExecutionError> for Fault {
    fn from(error: ExecutionError) -> Self {
        match error {
            ExecutionError::FailedWithExitCode(status) => Self::Exit(status),
            other => Self::Stopped(other.to_string()),
        }
    }
}

/// Why a proof is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// The bytes are not a proof of this back end, version and mode.
    #[error("proof is malformed: {0}")]
    Malformed(&'static str),
    /// The proof names another machine, or was made with other parameters.
    #[error("parameters are not those of this machine")]
    Parameters,
    /// The proof is of another program.
    #[error("proof is of another program")]
    AnotherProgram,
    /// Segments do not connect, or the run did not end with status 0.
    #[error("segments do not connect: {0}")]
    Segments(&'static str),
    /// The public values are not those of the run.
    #[error("public values are not bound by the proof")]
    PublicValues,
    /// The proof does not verify.
    #[error("proof does not hold: {0}")]
    Unsound(String),
}
