//! Why bytes or JSON are not a statement.

/// The first thing wrong with a statement; `subject` names the field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StatementError {
    /// The tag is not that of a claim of this version.
    #[error("tag: wanted confide/statement/v1/ and the name of a claim, got another")]
    Tag,
    /// The bytes end inside a field or before it.
    #[error("{subject} is truncated")]
    Truncated {
        /// The field that is cut.
        subject: &'static str,
    },
    /// A field is longer than its limit.
    #[error("{subject} is too long: wanted at most {limit}, got {got}")]
    TooLong {
        /// The field.
        subject: &'static str,
        /// The limit, in bytes or entries.
        limit: usize,
        /// What was announced or found.
        got: usize,
    },
    /// A field of fixed length has another.
    #[error("{subject} has a wrong length: wanted {wanted} bytes, got {got}")]
    Length {
        /// The field.
        subject: &'static str,
        /// Bytes it must have.
        wanted: usize,
        /// Bytes it has.
        got: usize,
    },
    /// A field has a value that no statement has.
    #[error("{subject} has a wrong value: wanted {wanted}")]
    Value {
        /// The field.
        subject: &'static str,
        /// What it must be.
        wanted: &'static str,
    },
    /// Bytes follow the last field.
    #[error("statement: {got} unexpected bytes after its last field")]
    Trailing {
        /// Number of bytes after the last field.
        got: usize,
    },
    /// The bytes say the statement in another way than its one encoding.
    #[error("statement: wanted its one canonical encoding, got another")]
    NotCanonical,
    /// The JSON does not have the shape of a statement.
    #[cfg(feature = "json")]
    #[error("the JSON is not that of a statement: {reason}")]
    Json {
        /// The JSON reader's message.
        reason: alloc::string::String,
    },
}
