//! Why bytes could not be read as the message they should be.

use alloc::string::String;

/// The first thing wrong with a message; `subject` names the field or file that was being read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// The message ends inside a field.
    #[error("{subject} is truncated: wanted {wanted} bytes, got {got}")]
    Truncated {
        /// The field that is cut.
        subject: &'static str,
        /// Bytes that the field needs.
        wanted: usize,
        /// Bytes that are left.
        got: usize,
    },
    /// The message or a field is longer than the limit.
    #[error("{subject} is too long: wanted at most {limit} bytes, got {got}")]
    TooLong {
        /// The field.
        subject: &'static str,
        /// The limit in bytes.
        limit: usize,
        /// The length that was announced or found.
        got: usize,
    },
    /// A list has more entries than the limit.
    #[error("{subject} has too many entries: wanted at most {limit}")]
    TooMany {
        /// The list.
        subject: &'static str,
        /// The limit in entries.
        limit: usize,
    },
    /// Bytes other than zero padding follow the end of the message.
    #[error("trailing_bytes: {subject} ends at byte {end}, byte {at} is not zero padding")]
    TrailingBytes {
        /// The message.
        subject: &'static str,
        /// Where the message ends.
        end: usize,
        /// The first offending byte.
        at: usize,
    },
    /// A length field disagrees with what it measures.
    #[error("{subject} has a wrong length: wanted {wanted} bytes, got {got}")]
    Length {
        /// The field.
        subject: &'static str,
        /// The length it must have.
        wanted: usize,
        /// The length it has.
        got: usize,
    },
    /// A number or identifier has a value that this version does not read.
    #[error("{subject} is not supported: wanted {wanted}, got {got}")]
    Unsupported {
        /// The field.
        subject: &'static str,
        /// The values that are read.
        wanted: &'static str,
        /// The value found.
        got: String,
    },
    /// An endorsement is absent or empty.
    #[error("{subject} is missing from the collateral")]
    Missing {
        /// The endorsement.
        subject: &'static str,
    },
    /// JSON that is malformed or does not have the shape of the specification.
    #[error("{subject} is not valid: {reason}")]
    Json {
        /// The document.
        subject: &'static str,
        /// What the JSON reader says.
        reason: String,
    },
    /// Text that should be hexadecimal, PEM, base64 or a date, and is not.
    #[error("{subject} is malformed: wanted {wanted}")]
    Text {
        /// The field.
        subject: &'static str,
        /// The form it must have.
        wanted: &'static str,
    },
    /// DER that does not have the shape of RFC 5280 or of Intel's PCK certificate profile.
    #[error("{subject} is malformed: {field} is not as its specification has it")]
    Der {
        /// The certificate, revocation list or extension.
        subject: &'static str,
        /// The field that could not be read.
        field: &'static str,
    },
}

impl ParseError {
    /// Whether an endorsement was absent, rather than present and wrong.
    pub fn is_missing(&self) -> bool {
        matches!(self, ParseError::Missing { .. })
    }
}
