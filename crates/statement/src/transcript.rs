//! The claim about a transcript to which a notary has committed.

use alloc::string::String;

use crate::{
    DIGEST_BYTES, StatementError,
    encoding::{Reader, Writer},
};

/// Longest text that a leaf is said to contain: longer ones are opened instead.
pub const TEXT_BYTES_MAX: usize = 256;

/// Longest path of a JSON field.
pub const PATH_BYTES_MAX: usize = 256;

/// Something under `root` has the property that `predicate` names. Who signed the root is not part
/// of this: the checker holds `root` against the notary's signed statement.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "json", serde(deny_unknown_fields))]
pub struct Transcript {
    /// The root of the notary's commitment.
    #[cfg_attr(feature = "json", serde(with = "crate::json::bytes"))]
    pub root: [u8; DIGEST_BYTES],
    /// What is said of what is under it.
    pub predicate: Predicate,
}

/// What is said of a leaf that stays hidden.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "json", serde(rename_all = "snake_case", deny_unknown_fields))]
pub enum Predicate {
    /// The bytes of one direction contain this text. Where they do, and what is around it, stays
    /// hidden: the text may be inside a string that says anything.
    Contains {
        /// Who sent the bytes.
        direction: Direction,
        /// The text.
        text: String,
    },
    /// The JSON field at this path is an integer between these two, both included.
    NumberBetween {
        /// Where the field is, as the disclosure names it.
        path: String,
        /// The least it can be.
        least: i64,
        /// The greatest it can be.
        greatest: i64,
    },
}

/// Who sent the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "json", serde(rename_all = "lowercase"))]
pub enum Direction {
    /// The client's request.
    Sent,
    /// The server's answer.
    Received,
}

impl Transcript {
    pub(crate) fn write(&self, writer: &mut Writer) {
        writer.field(&self.root);
        match &self.predicate {
            Predicate::Contains { direction, text } => {
                writer.u8(0);
                writer.u8(match direction {
                    Direction::Sent => 0,
                    Direction::Received => 1,
                });
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
        let root = reader.array("root")?;
        let predicate = match reader.u8("predicate")? {
            0 => Predicate::Contains {
                direction: match reader.u8("direction")? {
                    0 => Direction::Sent,
                    1 => Direction::Received,
                    _ => {
                        let subject = "direction";
                        return Err(StatementError::Value { subject, wanted: "0 or 1" });
                    }
                },
                text: reader.text("text", TEXT_BYTES_MAX)?,
            },
            1 => Predicate::NumberBetween {
                path: reader.text("path", PATH_BYTES_MAX)?,
                least: reader.i64("least")?,
                greatest: reader.i64("greatest")?,
            },
            _ => return Err(StatementError::Value { subject: "predicate", wanted: "0 or 1" }),
        };
        Ok(Self { root, predicate })
    }

    pub(crate) fn check(&self) -> Result<(), StatementError> {
        match &self.predicate {
            Predicate::Contains { text, .. } => bounded("text", text, TEXT_BYTES_MAX),
            Predicate::NumberBetween { path, least, greatest } => {
                bounded("path", path, PATH_BYTES_MAX)?;
                if least > greatest {
                    let wanted = "at least the least number";
                    return Err(StatementError::Value { subject: "greatest", wanted });
                }
                Ok(())
            }
        }
    }
}

/// One byte to `limit`: an empty text is in everything and says nothing.
fn bounded(subject: &'static str, text: &str, limit: usize) -> Result<(), StatementError> {
    match text.len() {
        0 => Err(StatementError::Value { subject, wanted: "at least one byte" }),
        got if got > limit => Err(StatementError::TooLong { subject, limit, got }),
        _ => Ok(()),
    }
}
