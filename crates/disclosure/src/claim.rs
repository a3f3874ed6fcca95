//! What is proven of values that stay hidden, as it stands in a file.

use sha2::{Digest, Sha256};

use crate::{
    codec::{FormatError, Reader, Writer},
    comparison::Comparison,
    disclosure::{Disclosure, Nesting},
    text::TEXT_BYTES_MAX,
    transcript::Direction,
};

/// Begins the context of every proof of a disclosure.
const CONTEXT: &[u8] = b"confide/disclosure/v1/";

/// The greatest length of one proof: 1 MiB.
pub(crate) const PROOF_BYTES_MAX: usize = 1 << 20;

/// The greatest length of a disclosure of another session within one, 1 MiB: a statement, evidence,
/// and some fields that show their path only.
pub(crate) const OTHER_BYTES_MAX: usize = 1 << 20;

/// One thing that a disclosure proves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// A number or date of a field compares with constants.
    Compare {
        /// The index of the field among [`Disclosure::fields`], from 0.
        field: u32,
        /// The comparison operator and its constants, as committed integers.
        comparison: Comparison,
        /// A range proof of `confide-sigma`.
        proof: Vec<u8>,
    },
    /// Some chunk of a direction, or two neighbouring ones, contain a text.
    BytesContain {
        /// The direction whose bytes contain the text.
        direction: Direction,
        /// The text that is contained: 1 to 64 bytes of UTF-8.
        text: String,
        /// A proof of `confide-circuits`.
        proof: Vec<u8>,
    },
    /// A field's text contains a text.
    FieldContains {
        /// The index of the field among [`Disclosure::fields`], from 0.
        field: u32,
        /// The text that is contained: 1 to 64 bytes of UTF-8.
        text: String,
        /// A proof of `confide-circuits`.
        proof: Vec<u8>,
    },
    /// SHA-256 of a field's text is a digest.
    FieldSha256 {
        /// The index of the field among [`Disclosure::fields`], from 0.
        field: u32,
        /// SHA-256 of the value of the field.
        sha256: [u8; 32],
        /// A proof of `confide-circuits`.
        proof: Vec<u8>,
    },
    /// Another session's disclosure holds too. One at most, and none within it.
    Other(Box<Disclosure>),
    /// Two fields hold one number, or one date.
    Equal {
        /// The index of the field among [`Disclosure::fields`], from 0.
        field: u32,
        /// The field that holds the same number or date.
        other: OtherField,
        /// An equality proof of `confide-sigma`.
        proof: Vec<u8>,
    },
}

/// The session and index of the field that an equality is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherField {
    /// The index among the opened fields of this session, from 0.
    ThisSession(u32),
    /// The index among the opened fields of the other session, from 0.
    OtherSession(u32),
}

impl Claim {
    pub(crate) fn write(&self, writer: &mut Writer) {
        match self {
            Claim::Compare { field, comparison, proof } => {
                writer.u8(1).u32(*field);
                comparison.write(writer);
                writer.long(proof);
            }
            Claim::BytesContain { direction, text, proof } => {
                writer.u8(2).u8(direction.byte()).short(text.as_bytes()).long(proof);
            }
            Claim::FieldContains { field, text, proof } => {
                writer.u8(3).u32(*field).short(text.as_bytes()).long(proof);
            }
            Claim::FieldSha256 { field, sha256, proof } => {
                writer.u8(4).u32(*field).raw(sha256).long(proof);
            }
            Claim::Other(disclosure) => {
                writer.u8(5).long(&disclosure.encode());
            }
            Claim::Equal { field, other, proof } => {
                let (session, other) = match other {
                    OtherField::ThisSession(other) => (0, other),
                    OtherField::OtherSession(other) => (1, other),
                };
                writer.u8(6).u32(*field).u8(session).u32(*other).long(proof);
            }
        }
    }

    pub(crate) fn read(reader: &mut Reader<'_>, nested: Nesting) -> Result<Self, FormatError> {
        match reader.u8("claim")? {
            1 => Ok(Claim::Compare {
                field: read_field(reader)?,
                comparison: Comparison::read(reader)?,
                proof: read_proof(reader)?,
            }),
            2 => Ok(Claim::BytesContain {
                direction: read_direction(reader)?,
                text: read_text(reader)?,
                proof: read_proof(reader)?,
            }),
            3 => Ok(Claim::FieldContains {
                field: read_field(reader)?,
                text: read_text(reader)?,
                proof: read_proof(reader)?,
            }),
            4 => Ok(Claim::FieldSha256 {
                field: read_field(reader)?,
                sha256: reader.array("digest of a claim")?,
                proof: read_proof(reader)?,
            }),
            5 if nested == Nesting::Outer => {
                let file = reader.long(OTHER_BYTES_MAX, "other session")?;
                Ok(Claim::Other(Box::new(Disclosure::decode_within(file)?)))
            }
            6 => Ok(Claim::Equal {
                field: read_field(reader)?,
                other: match reader.present("other session")? {
                    false => OtherField::ThisSession(read_field(reader)?),
                    true => OtherField::OtherSession(read_field(reader)?),
                },
                proof: read_proof(reader)?,
            }),
            other => Err(FormatError::Value { subject: "claim", got: other.into() }),
        }
    }

    /// Whether its proof is a circuit's.
    pub(crate) fn is_text(&self) -> bool {
        use Claim::{BytesContain, FieldContains, FieldSha256};
        matches!(self, BytesContain { .. } | FieldContains { .. } | FieldSha256 { .. })
    }
}

fn read_field(reader: &mut Reader<'_>) -> Result<u32, FormatError> {
    reader.u32("field of a claim")
}

fn read_text(reader: &mut Reader<'_>) -> Result<String, FormatError> {
    let subject = "text of a claim";
    match reader.text(TEXT_BYTES_MAX, subject)? {
        "" => Err(FormatError::Text { subject }),
        text => Ok(text.into()),
    }
}

fn read_proof(reader: &mut Reader<'_>) -> Result<Vec<u8>, FormatError> {
    Ok(reader.long(PROOF_BYTES_MAX, "proof")?.to_vec())
}

fn read_direction(reader: &mut Reader<'_>) -> Result<Direction, FormatError> {
    match reader.u8("direction")? {
        1 => Ok(Direction::Request),
        2 => Ok(Direction::Response),
        got => Err(FormatError::Value { subject: "direction", got: got.into() }),
    }
}

/// A field with its statement's digest.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bound {
    pub(crate) statement: [u8; 32],
    pub(crate) leaf: [u8; 32],
}

/// What a proof about a field is bound to: the statement's digest and the field's leaf.
pub(crate) fn field_context(field: &Bound) -> Vec<u8> {
    [CONTEXT, b"field\0", &field.statement, &field.leaf].concat()
}

/// The same for circuits, whose contexts have 32 bytes.
pub(crate) fn text_context(field: &Bound) -> [u8; 32] {
    Sha256::digest(field_context(field)).into()
}

/// What a proof that two fields are equal is bound to: both, in their order.
pub(crate) fn equal_context(one: &Bound, other: &Bound) -> Vec<u8> {
    let both = [one.statement, one.leaf, other.statement, other.leaf].concat();
    [CONTEXT, b"equal\0", &both].concat()
}

/// What a proof about the bytes of a direction is bound to.
pub(crate) fn bytes_context(statement: &[u8; 32], direction: Direction) -> [u8; 32] {
    let parts = [CONTEXT, b"bytes\0", &statement[..], &[direction.byte()]].concat();
    Sha256::digest(parts).into()
}
