//! Why bytes could not be read as the message they should be.

use alloc::string::{String, ToString};

/// The longest text of somebody else's that an error repeats, in bytes; serde_json's list of the
/// fields that it wanted is 260.
const FOREIGN_TEXT_MAX: usize = 400;

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
    /// Something other than zeros, or too many of them, follows the end of the message.
    #[error("trailing_bytes: {subject} ends at byte {end}, byte {at} is not within zero padding")]
    TrailingBytes {
        /// The message.
        subject: &'static str,
        /// The offset at which the message ends.
        end: usize,
        /// The offset of the first byte that is not zero, or that lies beyond the accepted padding.
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
        /// The error of the JSON reader.
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
    #[error("{subject} is malformed: {field} does not conform to its specification")]
    Der {
        /// The certificate, revocation list or extension.
        subject: &'static str,
        /// The field that could not be read.
        field: &'static str,
    },
}

/// Text from an unverified message, made fit for an error: cut, and control characters escaped,
/// because on a terminal they are commands.
pub fn escape_untrusted(text: &str) -> String {
    let mut shown = String::new();
    for character in text.chars() {
        if shown.len() > FOREIGN_TEXT_MAX {
            shown.push('…');
            break;
        }
        match character.is_control() {
            true => shown.extend(character.escape_default()),
            false => shown.push(character),
        }
    }
    shown
}

impl ParseError {
    pub(crate) fn json(subject: &'static str, error: &serde_json::Error) -> Self {
        ParseError::Json { subject, reason: escape_untrusted(&error.to_string()) }
    }

    /// Whether an endorsement was absent, rather than present and wrong.
    pub fn is_missing(&self) -> bool {
        matches!(self, ParseError::Missing { .. })
    }
}
