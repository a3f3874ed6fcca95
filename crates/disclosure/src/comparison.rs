//! Comparisons of a committed number with constants, and proofs of them.

use confide_sigma::{Blinding, Commitment, Range, SigmaError, prove_range, verify_range};
use confide_transcript::{FormatError, Reader, Writer};

use crate::{amount::AmountDisplay, field::FieldKind};

/// A comparison of a committed integer with constants, which are given as committed integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// The integer is at most the constant (`<=`).
    AtMost(u64),
    /// The integer is at least the constant (`>=`).
    AtLeast(u64),
    /// The integer equals the constant (`==`).
    Exactly(u64),
    /// The integer is between the constants, both included.
    Between(u64, u64),
}

impl Comparison {
    /// Describes the comparison: the operator and its constants, as numbers or as dates.
    pub fn describe(&self, kind: FieldKind) -> String {
        let amount = |amount| match kind {
            FieldKind::String => AmountDisplay::Date(amount),
            _ => AmountDisplay::Number(amount),
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

    fn to_range(self) -> Result<Range, SigmaError> {
        match self {
            Comparison::AtMost(high) => Ok(Range::at_most(high)),
            Comparison::AtLeast(low) => Ok(Range::at_least(low)),
            Comparison::Exactly(value) => Range::new(value, value),
            Comparison::Between(low, high) => Range::new(low, high),
        }
    }

    /// Whether the comparison is true for a committed integer.
    pub fn holds(&self, amount: u64) -> bool {
        self.to_range().is_ok_and(|range| range.contains(amount))
    }

    pub(crate) fn write(&self, writer: &mut Writer) {
        let (operator, low, high) = match *self {
            Comparison::AtMost(high) => (1, 0, high),
            Comparison::AtLeast(low) => (2, low, u64::MAX),
            Comparison::Exactly(value) => (3, value, value),
            Comparison::Between(low, high) => (4, low, high),
        };
        writer.u8(operator).u64(low).u64(high);
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, FormatError> {
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

    /// Proves the comparison for a committed number, bound to the context of its field.
    pub(crate) fn prove(
        &self,
        context: &[u8],
        amount: u64,
        blinding: &Blinding,
    ) -> Result<Vec<u8>, SigmaError> {
        prove_range(context, &self.to_range()?, amount, blinding)
    }

    pub(crate) fn verify(
        &self,
        context: &[u8],
        commitment: &[u8; 32],
        proof: &[u8],
    ) -> Result<(), SigmaError> {
        verify_range(context, &self.to_range()?, &Commitment::from_bytes(commitment)?, proof)
    }
}
