//! Why there is no statement.

use alloc::boxed::Box;

use confide_evidence::ParseError;
use confide_verifier::Rejection;

/// Why the program ends without a statement: there is none about evidence that is refused.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DcapError {
    /// The input is not one that [`crate::DcapInput::encode`] wrote.
    #[error("input of dcap is malformed: wanted {field} as it is encoded")]
    Input {
        /// The field.
        field: &'static str,
    },
    /// The input or the quote is longer than the limit.
    #[error("input of dcap is too long: wanted at most {limit} bytes, got {got}")]
    TooLong {
        /// The limit in bytes.
        limit: usize,
        /// The length found.
        got: usize,
    },
    /// The collateral could not be read.
    #[error(transparent)]
    Collateral(ParseError),
    /// The verifier refuses the evidence, whatever the policy.
    #[error("{}", .0.reason())]
    Rejected(Box<Rejection>),
    /// Evidence of another vendor than Intel.
    #[error("evidence is not for this guest: wanted a quote of SGX or TDX")]
    NotIntel,
    /// No instant is left that the statement may cover.
    #[error("dcap holds from {from} to {until}: wanted an instant between them")]
    NoInstant {
        /// First instant, in Unix seconds.
        from: u64,
        /// Last instant, in Unix seconds.
        until: u64,
    },
}
