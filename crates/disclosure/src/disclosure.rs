//! A disclosure: what a holder shows and proves, and what a third party then knows.

use crate::{
    claim::{Claim, OtherField},
    codec::{FormatError, Reader, Writer, hexadecimal},
    evidence::NotaryEvidence,
    field::FieldKind,
    fields::{FieldsOpening, OpenedField, OpenedValue},
    proven::{Opened, ProvenClaim},
    signature::{Signature, SignatureError},
    statement::{NotaryStatement, STATEMENT_BYTES_MAX},
    text::TextProofs,
    transcript::{Direction, LengthOpening, OpeningError, ShownBytes, TranscriptOpening},
};

/// Begins a disclosure.
pub const DISCLOSURE_MAGIC: &[u8] = b"confide disclosure v1\n";

const FORMAT: &str = "a disclosure, version 1";

/// Longest disclosure.
pub const DISCLOSURE_BYTES_MAX: usize = 96 << 20;

/// Most claims of a disclosure: each takes milliseconds to check.
pub const CLAIMS_MAX: usize = 64;

/// Most of them about texts: each takes up to a second to check, and its circuit's keys some more.
pub const TEXT_CLAIMS_MAX: usize = 8;

/// Openings and proofs beside the statement that they belong to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disclosure {
    /// The statement that the notary signed.
    pub statement: NotaryStatement,
    /// The notary's signature over the statement.
    pub signature: Signature,
    /// Evidence over the notary's key.
    pub evidence: NotaryEvidence,
    /// Opened bytes of request and response.
    pub bytes: [Option<TranscriptOpening>; 2],
    /// Opened lengths of request and response.
    pub lengths: [Option<LengthOpening>; 2],
    /// Opened fields with the siblings of their paths.
    pub fields: Option<FieldsOpening>,
    /// Claims with their proofs, at most [`CLAIMS_MAX`].
    pub claims: Vec<Claim>,
}

const DIRECTIONS: [Direction; 2] = [Direction::Request, Direction::Response];

/// Why a disclosure was not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// The statement is not the notary's.
    #[error(transparent)]
    Signature(#[from] SignatureError),
    /// Something opened is not what was signed.
    #[error(transparent)]
    Opening(#[from] OpeningError),
    /// A claim names a field that is not opened, or has no number or text to speak of.
    #[error("claim {claim} names no field that it can speak of")]
    Subject {
        /// The index of the claim, from 0.
        claim: usize,
    },
    /// A proof does not hold.
    #[error("proof of claim {claim} does not hold: {reason}")]
    Proof {
        /// The index of the claim, from 0.
        claim: usize,
        /// The message of the back end.
        reason: String,
    },
    /// A proof cannot be checked by this program.
    #[error("proof of claim {claim} needs circuits, which this program was built without")]
    NoCircuits {
        /// The index of the claim, from 0.
        claim: usize,
    },
    /// The other session's disclosure does not hold.
    #[error("other session: {0}")]
    Other(Box<VerifyError>),
    /// The other session is this very session: both have one statement.
    #[error("other session is this very session: wanted another statement, got {digest} twice")]
    SameSession {
        /// SHA-256 of the statement, in hexadecimal.
        digest: String,
    },
    /// No claim compares anything with the other session.
    #[error("other session is compared with nothing: wanted a claim of equality with its fields")]
    OtherUnused,
    /// A claim says that a field equals itself.
    #[error("claim {claim} compares a field with itself")]
    SameField {
        /// The index of the claim, from 0.
        claim: usize,
    },
    /// Nothing is shown and nothing proven.
    #[error("disclosure shows and proves nothing")]
    Empty,
}

/// What a third party may rely on, if it believes the notary. Only [`Disclosure::verify`] makes
/// one.
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
    /// Its path.
    pub path: String,
    /// What it holds.
    pub kind: FieldKind,
    /// Its canonical value.
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

    /// The true lengths of the directions, in bytes, where they are shown.
    pub fn lengths(&self) -> &[(Direction, u64)] {
        &self.0.lengths
    }

    /// The facts that are proven of hidden values.
    pub fn claims(&self) -> &[ProvenClaim] {
        &self.0.claims
    }

    /// The verified disclosure of another session, if a claim compares with it.
    pub fn other(&self) -> Option<&VerifiedDisclosure> {
        self.0.other.as_deref()
    }
}

impl Disclosure {
    /// Encodes the disclosure as `docs/disclosure.md` specifies.
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new(DISCLOSURE_MAGIC);
        writer.long(&self.statement.encode()).raw(&self.signature);
        self.evidence.write(&mut writer);
        for (bytes, length) in self.bytes.iter().zip(&self.lengths) {
            writer.u8(bytes.is_some().into());
            if let Some(bytes) = bytes {
                bytes.write(&mut writer);
            }
            writer.u8(length.is_some().into());
            if let Some(LengthOpening { length, salt }) = length {
                writer.u64(*length).raw(salt);
            }
        }
        writer.u8(self.fields.is_some().into());
        if let Some(fields) = &self.fields {
            fields.write(&mut writer);
        }
        writer.u32(self.claims.len() as u32);
        self.claims.iter().for_each(|claim| claim.write(&mut writer));
        writer.finish()
    }

    /// Reads exactly what [`Disclosure::encode`] writes.
    ///
    /// # Errors
    ///
    /// [`FormatError`] if the bytes are not exactly one disclosure of this version within its
    /// limits: truncated, too long, out of order, with a value of no meaning, or with bytes after
    /// its end.
    pub fn decode(file: &[u8]) -> Result<Self, FormatError> {
        Self::read(file, Nesting::Outer)
    }

    /// Reads one that is within another, and has none in it.
    pub(crate) fn decode_within(file: &[u8]) -> Result<Self, FormatError> {
        Self::read(file, Nesting::Inner)
    }

    fn read(file: &[u8], nested: Nesting) -> Result<Self, FormatError> {
        let mut reader = Reader::new(file, DISCLOSURE_MAGIC, FORMAT)?;
        let statement = reader.long(STATEMENT_BYTES_MAX, "statement")?;
        let mut disclosure = Self {
            statement: NotaryStatement::decode(statement)?,
            signature: reader.array("signature")?,
            evidence: NotaryEvidence::read(&mut reader)?,
            bytes: [None, None],
            lengths: [None, None],
            fields: None,
            claims: Vec::new(),
        };
        let both = disclosure.bytes.iter_mut().zip(&mut disclosure.lengths);
        for (bytes, opened) in both {
            if reader.present("opened bytes")? {
                *bytes = Some(TranscriptOpening::read(&mut reader)?);
            }
            if reader.present("opened length")? {
                let length = reader.u64("length of a transcript")?;
                *opened = Some(LengthOpening { length, salt: reader.array("salt of a length")? });
            }
        }
        if reader.present("opened fields")? {
            disclosure.fields = Some(FieldsOpening::read(&mut reader)?);
        }
        let count = reader.count(CLAIMS_MAX, "claims")?;
        for _ in 0..count {
            disclosure.claims.push(Claim::read(&mut reader, nested)?);
        }
        reader.end(FORMAT)?;
        disclosure.check_claims()?;
        Ok(disclosure)
    }

    fn check_claims(&self) -> Result<(), FormatError> {
        let limit = |subject, limit, is_one: fn(&Claim) -> bool| {
            let got = self.claims.iter().filter(|claim| is_one(claim)).count();
            if got <= limit { Ok(()) } else { Err(FormatError::TooLong { subject, limit, got }) }
        };
        limit("claims about texts", TEXT_CLAIMS_MAX, Claim::is_text)?;
        limit("other sessions", 1, |claim| matches!(claim, Claim::Other(_)))
    }

    /// The disclosure of another session that this one brings.
    pub fn other(&self) -> Option<&Disclosure> {
        self.claims.iter().find_map(|claim| match claim {
            Claim::Other(other) => Some(&**other),
            _ => None,
        })
    }

    /// Checks signature, openings and proofs. Whether the key that signed is a notary's, its
    /// evidence says, which is appraised elsewhere; so is the other session's, where there is one.
    ///
    /// # Errors
    ///
    /// [`VerifyError::Signature`] or [`VerifyError::Opening`] if the statement or an opening is not
    /// what the notary signed; [`VerifyError::Subject`], [`VerifyError::Proof`] and
    /// [`VerifyError::SameField`] if a claim does not hold; [`VerifyError::NoCircuits`] if a claim
    /// is about a text and `texts` is `None`; [`VerifyError::Other`], [`VerifyError::SameSession`]
    /// and [`VerifyError::OtherUnused`] for the other session; [`VerifyError::Empty`] if nothing is
    /// shown or proven.
    pub fn verify(
        &self,
        texts: Option<&dyn TextProofs>,
    ) -> Result<VerifiedDisclosure, VerifyError> {
        let verified = self.verify_alone(texts)?;
        match verified.0.is_empty() {
            true => Err(VerifyError::Empty),
            false => Ok(verified),
        }
    }

    fn verify_alone(
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
            known.fields.extend(opening.fields.iter().filter_map(shown));
        }
        if let Some(other) = self.other() {
            self.check_other(other)?;
            let other = other.verify_alone(texts);
            known.other =
                Some(Box::new(other.map_err(|refused| VerifyError::Other(refused.into()))?));
        }
        let opened = Opened { disclosure: self, statement: self.statement.digest(), texts };
        for (place, claim) in self.claims.iter().enumerate() {
            known.claims.extend(opened.proven(place, claim)?);
        }
        Ok(VerifiedDisclosure(known))
    }

    /// A reader relies on two sessions being two, and on the second being there to be compared with:
    /// whatever it holds besides was never asked for.
    fn check_other(&self, other: &Disclosure) -> Result<(), VerifyError> {
        let digest = self.statement.digest();
        if digest == other.statement.digest() {
            return Err(VerifyError::SameSession { digest: hexadecimal(&digest) });
        }
        let is_compared = |claim: &Claim| {
            matches!(claim, Claim::Equal { other: OtherField::OtherSession(_), .. })
        };
        match self.claims.iter().any(is_compared) {
            true => Ok(()),
            false => Err(VerifyError::OtherUnused),
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

/// Whether a disclosure stands within another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nesting {
    Outer,
    Inner,
}

fn shown(field: &OpenedField) -> Option<ShownField> {
    match &field.value {
        OpenedValue::Hidden { .. } => None,
        OpenedValue::Shown { value, .. } => {
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
