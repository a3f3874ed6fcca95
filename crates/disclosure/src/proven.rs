//! Checks the proofs of a disclosure, and returns the proven facts about hidden values.

use confide_sigma::{Commitment, LinearRelation, ProofSecurity, Range, SigmaError, verify_equal};
use confide_transcript::Direction;

use crate::{
    binding::{BoundLeaf, bytes_context, equality_context, field_context, text_context},
    comparison::Comparison,
    disclosure::{Claim, Disclosure, OtherField},
    field::FieldKind,
    fields::OpenedField,
    text::{SignedTree, TextProofs, TextStatement},
    verify_error::VerifyError,
};

/// A proven fact about a hidden value, and the strength of its proof.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProvenClaim {
    /// The proven fact.
    pub fact: ProvenFact,
    /// The strength of the proof, as its back end states it.
    pub security: ProofSecurity,
}

/// A fact about values that stay hidden.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProvenFact {
    /// The number or date of a field compares with constants.
    Compare {
        /// The path of the field.
        path: String,
        /// The kind of the value: a number, or a string with a date.
        kind: FieldKind,
        /// The comparison operator and its constants, as committed integers.
        comparison: Comparison,
    },
    /// The bytes of a direction contain a text.
    BytesContain {
        /// The direction whose bytes contain the text.
        direction: Direction,
        /// The text.
        text: String,
    },
    /// A field's text contains a text.
    FieldContains {
        /// The path of the field.
        path: String,
        /// The text.
        text: String,
    },
    /// SHA-256 of a field's text is a digest.
    FieldSha256 {
        /// The path of the field.
        path: String,
        /// SHA-256 of the value of the field.
        sha256: [u8; 32],
    },
    /// Two numbers, or two dates, are the same.
    Equal {
        /// The path of one field.
        path: String,
        /// The path of the other field.
        other: String,
        /// Whether the other field is in the other session.
        in_other_session: bool,
    },
}

/// An opened field with the binding of proofs about it.
struct BoundField<'a> {
    field: &'a OpenedField,
    bound: BoundLeaf,
}

/// A disclosure whose openings hold, and whose claims are to be checked.
pub(crate) struct OpenedDisclosure<'a> {
    pub(crate) disclosure: &'a Disclosure,
    pub(crate) statement: [u8; 32],
    pub(crate) texts: Option<&'a dyn TextProofs>,
}

impl OpenedDisclosure<'_> {
    /// Checks the claim at an index and returns the fact that it proves; `None` for another
    /// session's disclosure.
    pub(crate) fn verify_claim(
        &self,
        place: usize,
        claim: &Claim,
    ) -> Result<Option<ProvenClaim>, VerifyError> {
        let failed = |reason: String| VerifyError::Proof { claim: place, reason };
        let sigma = |error: SigmaError| failed(error.to_string());
        let subject = || VerifyError::InvalidField { claim: place };
        let texts = || self.texts.ok_or(VerifyError::NoCircuits { claim: place });
        let (fact, security) = match claim {
            Claim::OtherSession(_) => return Ok(None),
            Claim::Compare { field, comparison, proof } => {
                let BoundField { field, bound } = self.opened_field(*field).ok_or_else(subject)?;
                let commitment = field.commitment.as_ref().ok_or_else(subject)?;
                comparison.verify(&field_context(&bound), commitment, proof).map_err(sigma)?;
                let (path, kind) = (field.path.clone(), field.kind);
                let comparison = *comparison;
                (ProvenFact::Compare { path, kind, comparison }, Range::SECURITY)
            }
            Claim::BytesContain { direction, text, proof } => {
                let direction = *direction;
                let statement =
                    TextStatement::BytesContain { tree: self.signed_tree(direction), text };
                let context = bytes_context(&self.statement, direction);
                let security = texts()?.verify(&context, &statement, proof).map_err(failed)?;
                (ProvenFact::BytesContain { direction, text: text.clone() }, security)
            }
            Claim::FieldContains { field, text, proof } => {
                let BoundField { field, bound } =
                    self.opened_text_field(*field).ok_or_else(subject)?;
                let digest = &field.value.digest();
                let statement = TextStatement::FieldContains { digest, text };
                let context = text_context(&bound);
                let security = texts()?.verify(&context, &statement, proof).map_err(failed)?;
                (
                    ProvenFact::FieldContains { path: field.path.clone(), text: text.clone() },
                    security,
                )
            }
            Claim::FieldSha256 { field, sha256, proof } => {
                let BoundField { field, bound } =
                    self.opened_text_field(*field).ok_or_else(subject)?;
                let digest = &field.value.digest();
                let statement = TextStatement::FieldSha256 { digest, sha256 };
                let context = text_context(&bound);
                let security = texts()?.verify(&context, &statement, proof).map_err(failed)?;
                (ProvenFact::FieldSha256 { path: field.path.clone(), sha256: *sha256 }, security)
            }
            Claim::Equal { field, other, proof } => {
                let one = self.opened_field(*field).ok_or_else(subject)?;
                let (other, in_other_session) =
                    self.resolve_other_field(other).ok_or_else(subject)?;
                if one.bound == other.bound {
                    return Err(VerifyError::SameField { claim: place });
                }
                let equal = verify_equality(&one, &other, in_other_session, proof);
                (equal.ok_or_else(subject)?.map_err(sigma)?, LinearRelation::SECURITY)
            }
        };
        Ok(Some(ProvenClaim { fact, security }))
    }

    fn opened_field(&self, place: u32) -> Option<BoundField<'_>> {
        let field = self.disclosure.fields.as_ref()?.fields.get(place as usize)?;
        let bound = BoundLeaf { statement: self.statement, leaf: field.leaf() };
        Some(BoundField { field, bound })
    }

    /// An opened field that is a string.
    fn opened_text_field(&self, place: u32) -> Option<BoundField<'_>> {
        self.opened_field(place).filter(|bound| bound.field.kind == FieldKind::String)
    }

    fn resolve_other_field(&self, other: &OtherField) -> Option<(BoundField<'_>, bool)> {
        match other {
            OtherField::ThisSession(place) => Some((self.opened_field(*place)?, false)),
            OtherField::OtherSession(place) => {
                let other = self.disclosure.other_session()?;
                let field = other.fields.as_ref()?.fields.get(*place as usize)?;
                let bound = BoundLeaf { statement: other.statement.digest(), leaf: field.leaf() };
                Some((BoundField { field, bound }, true))
            }
        }
    }

    fn signed_tree(&self, direction: Direction) -> SignedTree<'_> {
        let statement = &self.disclosure.statement;
        let signed = match direction {
            Direction::Request => &statement.request,
            Direction::Response => &statement.response,
        };
        SignedTree { direction, depth: signed.depth, root: &signed.root }
    }
}

/// Verifies that two fields have the same number or date; `None` if one of them has no commitment,
/// or one is a number and the other a date.
fn verify_equality(
    one: &BoundField<'_>,
    other: &BoundField<'_>,
    in_other_session: bool,
    proof: &[u8],
) -> Option<Result<ProvenFact, SigmaError>> {
    let commitments = one.field.commitment.as_ref().zip(other.field.commitment.as_ref())?;
    if one.field.kind != other.field.kind {
        return None;
    }
    let verify = || {
        let first = Commitment::from_bytes(commitments.0)?;
        let second = Commitment::from_bytes(commitments.1)?;
        verify_equal(&equality_context(&one.bound, &other.bound), &first, &second, proof)
    };
    let (path, other) = (one.field.path.clone(), other.field.path.clone());
    Some(verify().map(|()| ProvenFact::Equal { path, other, in_other_session }))
}
