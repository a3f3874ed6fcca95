//! What is proven of values that stay hidden.

use confide_sigma::{Blinding, Commitment, Range, SigmaError, prove_range, verify_range};
use sha2::{Digest, Sha256};

use crate::{
    codec::{FormatError, Reader, Writer},
    field::Kind,
    name::Amount,
    seed::SALT_BYTES,
    transcript::Direction,
};

/// Begins the context of every proof of a disclosure.
const CONTEXT: &[u8] = b"confide/disclosure/v1/";

/// Longest text that is proven to be contained.
pub const TEXT_BYTES_MAX: usize = 64;

/// Longest proof.
pub const PROOF_BYTES_MAX: usize = 1 << 20;

/// How a committed integer compares with constants, all of them as committed integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `<=`
    AtMost(u64),
    /// `>=`
    AtLeast(u64),
    /// `==`
    Exactly(u64),
    /// Both ends included.
    Between(u64, u64),
}

impl Comparison {
    /// In words, with the constants as numbers or as dates.
    pub fn shown(&self, kind: Kind) -> String {
        let amount = |amount| match kind {
            Kind::String => Amount::Date(amount),
            _ => Amount::Number(amount),
        };
        match *self {
            Comparison::AtMost(high) => format!("<= {}", amount(high)),
            Comparison::AtLeast(low) => format!(">= {}", amount(low)),
            Comparison::Exactly(value) => format!("== {}", amount(value)),
            Comparison::Between(low, high) => {
                format!("between {} and {}", amount(low), amount(high))
            }
        }
    }

    fn range(&self) -> Result<Range, SigmaError> {
        match *self {
            Comparison::AtMost(high) => Ok(Range::at_most(high)),
            Comparison::AtLeast(low) => Ok(Range::at_least(low)),
            Comparison::Exactly(value) => Range::between(value, value),
            Comparison::Between(low, high) => Range::between(low, high),
        }
    }

    /// Whether a committed integer compares so.
    pub fn holds(&self, amount: u64) -> bool {
        self.range().is_ok_and(|range| range.contains(amount))
    }

    fn write(&self, writer: &mut Writer) {
        let (operator, low, high) = match *self {
            Comparison::AtMost(high) => (1, 0, high),
            Comparison::AtLeast(low) => (2, low, u64::MAX),
            Comparison::Exactly(value) => (3, value, value),
            Comparison::Between(low, high) => (4, low, high),
        };
        writer.u8(operator).u64(low).u64(high);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, FormatError> {
        let operator = reader.u8("comparison")?;
        let (low, high) = (reader.u64("low end")?, reader.u64("high end")?);
        match (operator, low, high) {
            (1, 0, high) => Ok(Comparison::AtMost(high)),
            (2, low, u64::MAX) => Ok(Comparison::AtLeast(low)),
            (3, low, high) if low == high => Ok(Comparison::Exactly(low)),
            (4, low, high) if low <= high => Ok(Comparison::Between(low, high)),
            _ => Err(FormatError::Value { subject: "comparison", got: operator.into() }),
        }
    }

    /// Proves it of the number behind a commitment, for one statement and field only.
    pub(crate) fn prove(
        &self,
        context: &[u8],
        amount: u64,
        blinding: &Blinding,
    ) -> Result<Vec<u8>, SigmaError> {
        prove_range(context, &self.range()?, amount, blinding)
    }

    pub(crate) fn verify(
        &self,
        context: &[u8],
        commitment: &[u8; 32],
        proof: &[u8],
    ) -> Result<(), SigmaError> {
        verify_range(context, &self.range()?, &Commitment::from_bytes(commitment)?, proof)
    }
}

/// One thing that a disclosure proves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// A number or date of a field compares with constants.
    Compare {
        /// Place of the field among the opened ones.
        field: u32,
        /// How.
        comparison: Comparison,
        /// A range proof of `confide-sigma`.
        proof: Vec<u8>,
    },
    /// Some chunk of a direction contains a text.
    BytesContain {
        /// Which way the bytes went.
        direction: Direction,
        /// The text.
        text: String,
        /// A proof of `confide-circuits`.
        proof: Vec<u8>,
    },
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
        }
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, FormatError> {
        match reader.u8("claim")? {
            1 => Ok(Claim::Compare {
                field: reader.u32("field of a claim")?,
                comparison: Comparison::read(reader)?,
                proof: read_proof(reader)?,
            }),
            2 => Ok(Claim::BytesContain {
                direction: read_direction(reader)?,
                text: read_text(reader)?,
                proof: read_proof(reader)?,
            }),
            other => Err(FormatError::Value { subject: "claim", got: other.into() }),
        }
    }
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

/// What a proof about a field is bound to: the statement's digest and the field's leaf.
pub(crate) fn field_context(statement: &[u8; 32], leaf: &[u8; 32]) -> Vec<u8> {
    [CONTEXT, b"field\0", statement, leaf].concat()
}

/// What a proof about the bytes of a direction is bound to.
pub(crate) fn bytes_context(statement: &[u8; 32], direction: Direction) -> [u8; 32] {
    let parts = [CONTEXT, b"bytes\0", &statement[..], &[direction.byte()]].concat();
    Sha256::digest(parts).into()
}

/// Proofs about texts, which need circuits: this crate has none and takes them through this trait.
pub trait TextProofs {
    /// Proves that a chunk under the root of a tree contains `text`.
    fn prove_bytes(
        &self,
        context: &[u8; 32],
        place: TreePlace<'_>,
        text: &str,
        secret: LeafSecret<'_>,
    ) -> Result<Vec<u8>, String>;

    /// Checks that.
    fn verify_bytes(
        &self,
        context: &[u8; 32],
        place: TreePlace<'_>,
        text: &str,
        proof: &[u8],
    ) -> Result<(), String>;
}

/// A tree that everybody knows.
#[derive(Clone, Copy, Debug)]
pub struct TreePlace<'a> {
    /// Which way the bytes went.
    pub direction: Direction,
    /// It has 2^depth leaves.
    pub depth: u8,
    /// Its root.
    pub root: &'a [u8; 32],
}

/// A hidden leaf.
#[derive(Clone, Copy)]
pub struct LeafSecret<'a> {
    /// Its place.
    pub index: u32,
    /// Its salt.
    pub salt: &'a [u8; SALT_BYTES],
    /// Its chunk.
    pub chunk: &'a [u8],
    /// The nodes beside its path, from below.
    pub siblings: &'a [[u8; 32]],
}
