//! The claim about a transcript to which a notary has committed.

use alloc::string::String;

use crate::{
    encoding::{DIGEST_BYTES, Reader, Writer},
    error::StatementError,
};

/// The longest text that a leaf is said to contain: longer ones are opened instead.
pub const TEXT_BYTES_MAX: usize = 256;

/// The longest path of a field, as a disclosure has it.
pub const PATH_BYTES_MAX: usize = 1024;

/// Deepest tree under a root: 2^18 leaves of 64 bytes are 16 MiB.
pub const DEPTH_MAX: u8 = 18;

/// Something under `root` has the property that `predicate` names. Who signed the root is not part
/// of this: the checker holds `root` and `depth` against the notary's signed statement, which has
/// them for the bytes of each direction and for the fields.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "json", serde(deny_unknown_fields))]
pub struct Transcript {
    /// The root of the notary's commitment.
    #[cfg_attr(feature = "json", serde(with = "crate::json::bytes"))]
    pub root: [u8; DIGEST_BYTES],
    /// Levels of the tree under it, as they were signed.
    pub depth: u8,
    /// The property of what is under the root.
    pub predicate: Predicate,
}

/// A property of bytes or of a field that are not shown.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "json", serde(rename_all = "snake_case", deny_unknown_fields))]
pub enum Predicate {
    /// `root` is over the bytes of one direction, and they contain this text. Where they do and what
    /// is around it is not said: the text may be inside a string that means anything.
    Contains {
        /// Who sent the bytes.
        direction: Direction,
        /// The text.
        text: String,
    },
    /// `root` is over the fields, and the number at this path is an integer between these two, both
    /// included.
    NumberBetween {
        /// Path of the field, as the disclosure names it.
        path: String,
        /// The least value.
        least: i64,
        /// The greatest value.
        greatest: i64,
    },
}

/// The sender of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "json", serde(rename_all = "lowercase"))]
pub enum Direction {
    /// From the notary to the host: the request.
    Request,
    /// From the host to the notary: the answer.
    Response,
}

impl Direction {
    /// The byte that stands for the direction, in a statement and in a leaf.
    pub fn byte(self) -> u8 {
        match self {
            Direction::Request => 1,
            Direction::Response => 2,
        }
    }

    /// The direction that the byte stands for.
    pub fn from_byte(byte: u8) -> Option<Self> {
        [Direction::Request, Direction::Response].into_iter().find(|known| known.byte() == byte)
    }
}

impl Transcript {
    pub(crate) fn write(&self, writer: &mut Writer) {
        writer.field(&self.root);
        writer.u8(self.depth);
        match &self.predicate {
            Predicate::Contains { direction, text } => {
                writer.u8(0);
                writer.u8(direction.byte());
                writer.field(text.as_bytes());
            }
            Predicate::NumberBetween { path, least, greatest } => {
                writer.u8(1);
                writer.field(path.as_bytes());
                writer.i64(*least);
                writer.i64(*greatest);
            }
        }
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, StatementError> {
        let (root, depth) = (reader.array("root")?, reader.u8("depth")?);
        let predicate = match reader.u8("predicate")? {
            0 => Predicate::Contains {
                direction: Direction::from_byte(reader.u8("direction")?)
                    .ok_or(StatementError::Value { subject: "direction", wanted: "1 or 2" })?,
                text: reader.text("text", TEXT_BYTES_MAX)?,
            },
            1 => Predicate::NumberBetween {
                path: reader.text("path", PATH_BYTES_MAX)?,
                least: reader.i64("least")?,
                greatest: reader.i64("greatest")?,
            },
            _ => return Err(StatementError::Value { subject: "predicate", wanted: "0 or 1" }),
        };
        Ok(Self { root, depth, predicate })
    }

    pub(crate) fn check(&self) -> Result<(), StatementError> {
        if self.depth > DEPTH_MAX {
            return Err(StatementError::Value { subject: "depth", wanted: "at most 18" });
        }
        match &self.predicate {
            Predicate::Contains { text, .. } => check_text_length("text", text, TEXT_BYTES_MAX),
            Predicate::NumberBetween { path, least, greatest } => {
                check_text_length("path", path, PATH_BYTES_MAX)?;
                if least > greatest {
                    let wanted = "at least the least number";
                    return Err(StatementError::Value { subject: "greatest", wanted });
                }
                Ok(())
            }
        }
    }
}

/// Checks a text of one byte to `limit` bytes: an empty text is in everything and says nothing.
fn check_text_length(
    subject: &'static str,
    text: &str,
    limit: usize,
) -> Result<(), StatementError> {
    match text.len() {
        0 => Err(StatementError::Value { subject, wanted: "at least one byte" }),
        got if got > limit => Err(StatementError::TooLong { subject, limit, got }),
        _ => Ok(()),
    }
}
