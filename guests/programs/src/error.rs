//! Why a program refuses its input.

use confide_statement::StatementError;

/// The first thing wrong with an input; there is no statement and no proof of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// The input ends inside a field or before it.
    #[error("input ends in {subject}: wanted {wanted} bytes, got {got}")]
    Truncated {
        /// The field.
        subject: &'static str,
        /// Bytes that it needs.
        wanted: usize,
        /// Bytes that are left.
        got: usize,
    },
    /// The input goes on after its last field.
    #[error("input: wanted its end, got {got} bytes more")]
    Trailing {
        /// Bytes that are left.
        got: usize,
    },
    /// The input is not whole words, or what fills the last word of a field is not zero.
    #[error("{subject}: wanted whole words, filled up with zeros")]
    Padding {
        /// The field.
        subject: &'static str,
    },
    /// A number or a length is outside its limits.
    #[error("{subject}: wanted {least} to {most}, got {got}")]
    Limit {
        /// The field.
        subject: &'static str,
        /// The least that is taken.
        least: u64,
        /// The greatest that is taken.
        most: u64,
        /// The number that came.
        got: u64,
    },
    /// A field has a value that has no meaning.
    #[error("{subject} has no meaning: wanted {wanted}")]
    Value {
        /// The field.
        subject: &'static str,
        /// What it must be.
        wanted: &'static str,
    },
    /// A limb of a number has bits above its own.
    #[error("{subject}: wanted limbs of 124 bits, got a longer one")]
    Limb {
        /// The number.
        subject: &'static str,
    },
    /// A number that must be below the modulus is not.
    #[error("{subject}: wanted a number below the modulus, got another")]
    NotReduced {
        /// The number.
        subject: &'static str,
    },
    /// A hinted quotient and remainder are not those of the product.
    #[error("step {step}: a * b is not q * n + r")]
    Identity {
        /// Index of the multiplication, from 0.
        step: u32,
    },
    /// A chunk follows one that was not full.
    #[error("chunks: one follows the end of the transcript")]
    AfterEnd,
    /// The statement would not be true.
    #[error("predicate does not hold: wanted {wanted}")]
    Predicate {
        /// What must hold.
        wanted: &'static str,
    },
    /// A field of the statement is outside its limits.
    #[error("statement: {0}")]
    Statement(StatementError),
}

impl From<StatementError> for ProgramError {
    fn from(error: StatementError) -> Self {
        ProgramError::Statement(error)
    }
}
