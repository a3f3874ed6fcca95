//! The verification of a disclosure, and the facts that a third party learns from it.

use crate::{
    disclosure::{Claim, Disclosure, OtherField},
    field::FieldKind,
    fields::{OpenedField, OpenedValue},
    proven::{OpenedDisclosure, ProvenClaim},
    statement::NotaryStatement,
    text::TextProofs,
    verify_error::VerifyError,
};
use confide_transcript::{Direction, ShownBytes};

const DIRECTIONS: [Direction; 2] = [Direction::Request, Direction::Response];

/// The content of a verified disclosure: a third party may rely on it if it trusts the notary. Only
/// [`Disclosure::verify`] makes one.
#[derive(Clone, Debug)]
pub struct VerifiedDisclosure(VerifiedContent);

#[derive(Clone, Debug)]
struct VerifiedContent {
    statement: NotaryStatement,
    fields: Vec<ShownField>,
    bytes: Vec<(Direction, ShownBytes)>,
    lengths: Vec<(Direction, u64)>,
    claims: Vec<ProvenClaim>,
    other: Option<Box<VerifiedDisclosure>>,
}

/// A field that is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownField {
    /// The path of the field.
    pub path: String,
    /// The kind of the value.
    pub kind: FieldKind,
    /// The canonical value.
    pub value: Vec<u8>,
}

impl VerifiedDisclosure {
    /// The statement that the notary signed.
    pub fn statement(&self) -> &NotaryStatement {
        &self.0.statement
    }

    /// The fields that are shown, with their values.
    pub fn fields(&self) -> &[ShownField] {
        &self.0.fields
    }

    /// The bytes that are shown, with their direction and offset.
    pub fn bytes(&self) -> &[(Direction, ShownBytes)] {
        &self.0.bytes
    }

    /// The shown true lengths of the directions, in bytes.
    pub fn lengths(&self) -> &[(Direction, u64)] {
        &self.0.lengths
    }

    /// The proven facts about hidden values.
    pub fn claims(&self) -> &[ProvenClaim] {
        &self.0.claims
    }

    /// The verified disclosure of another session, if a claim compares with it.
    pub fn other_session(&self) -> Option<&VerifiedDisclosure> {
        self.0.other.as_deref()
    }
}

impl Disclosure {
    /// Checks signature, openings and proofs. The caller has to appraise the evidence, which shows
    /// whether the signing key is a notary's; also that of the other session.
    ///
    /// # Errors
    ///
    /// [`VerifyError::Signature`] or [`VerifyError::Opening`] if the statement or an opening is not
    /// what the notary signed; [`VerifyError::InvalidField`], [`VerifyError::Proof`] and
    /// [`VerifyError::SameField`] if a claim does not hold; [`VerifyError::NoCircuits`] if a claim
    /// is about a text and `texts` is `None`; [`VerifyError::OtherSession`],
    /// [`VerifyError::SameSession`] and [`VerifyError::UnusedOtherSession`] for the other session;
    /// [`VerifyError::Empty`] if nothing is shown or proven.
    pub fn verify(
        &self,
        texts: Option<&dyn TextProofs>,
    ) -> Result<VerifiedDisclosure, VerifyError> {
        let verified = self.verify_parts(texts)?;
        if verified.0.is_empty() { Err(VerifyError::Empty) } else { Ok(verified) }
    }

    fn verify_parts(
        &self,
        texts: Option<&dyn TextProofs>,
    ) -> Result<VerifiedDisclosure, VerifyError> {
        self.statement.verify(&self.signature)?;
        let mut known = VerifiedContent {
            statement: self.statement.clone(),
            fields: Vec::new(),
            bytes: Vec::new(),
            lengths: Vec::new(),
            claims: Vec::new(),
            other: None,
        };
        let signed = [&self.statement.request, &self.statement.response];
        for (place, direction) in DIRECTIONS.into_iter().enumerate() {
            if let Some(opening) = &self.bytes[place] {
                let shown = opening.check(direction, signed[place])?;
                known.bytes.extend(shown.into_iter().map(|piece| (direction, piece)));
            }
            if let Some(opening) = &self.lengths[place] {
                known.lengths.push((direction, opening.check(direction, signed[place])?));
            }
        }
        if let Some(opening) = &self.fields {
            opening.check(&self.statement.fields)?;
            known.fields.extend(opening.fields.iter().filter_map(to_shown_field));
        }
        if let Some(other) = self.other_session() {
            self.check_other_session(other)?;
            let other = other.verify_parts(texts);
            known.other =
                Some(Box::new(other.map_err(|refused| VerifyError::OtherSession(refused.into()))?));
        }
        let opened =
            OpenedDisclosure { disclosure: self, statement: self.statement.digest(), texts };
        for (place, claim) in self.claims.iter().enumerate() {
            known.claims.extend(opened.verify_claim(place, claim)?);
        }
        Ok(VerifiedDisclosure(known))
    }

    /// Checks that the other session is a different one and that a claim compares with it: nothing
    /// else of it is accepted.
    fn check_other_session(&self, other: &Disclosure) -> Result<(), VerifyError> {
        let digest = self.statement.digest();
        if digest == other.statement.digest() {
            return Err(VerifyError::SameSession { digest: hex::encode(digest) });
        }
        let is_compared = |claim: &Claim| {
            matches!(claim, Claim::Equal { other: OtherField::OtherSession(_), .. })
        };
        if self.claims.iter().any(is_compared) {
            Ok(())
        } else {
            Err(VerifyError::UnusedOtherSession)
        }
    }
}

impl VerifiedContent {
    fn is_empty(&self) -> bool {
        self.fields.is_empty()
            && self.bytes.is_empty()
            && self.lengths.is_empty()
            && self.claims.is_empty()
    }
}

fn to_shown_field(field: &OpenedField) -> Option<ShownField> {
    match &field.value {
        OpenedValue::Hidden { .. } => None,
        OpenedValue::Revealed { value, .. } => {
            Some(ShownField { path: field.path.clone(), kind: field.kind, value: value.clone() })
        }
    }
}

#[cfg(test)]
#[path = "disclosure_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "claim_tests.rs"]
mod claim_tests;
