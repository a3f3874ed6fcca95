//! A disclosure and its claims, and their encoding in a file.

use crate::{
    comparison::Comparison,
    evidence::NotaryEvidence,
    fields::FieldsOpening,
    signature::Signature,
    statement::{NotaryStatement, STATEMENT_BYTES_MAX},
    text::TEXT_BYTES_MAX,
};
use confide_transcript::{
    Direction, FormatError, LengthOpening, Reader, TranscriptOpening, Writer,
};

/// The first bytes of every disclosure.
pub const DISCLOSURE_MAGIC: &[u8] = b"confide disclosure v1\n";

const FORMAT: &str = "a disclosure, version 1";

/// The greatest length of a disclosure, in bytes.
pub const DISCLOSURE_BYTES_MAX: usize = 96 << 20;

/// The greatest number of claims of a disclosure: each takes milliseconds to check.
pub const CLAIMS_MAX: usize = 64;

/// The greatest number of claims about texts: each takes up to a second to check, plus the time for
/// its circuit's keys.
pub(crate) const TEXT_CLAIMS_MAX: usize = 8;

/// A disclosure: a notary's statement, with openings and proofs for its commitments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disclosure {
    /// The statement that the notary signed.
    pub statement: NotaryStatement,
    /// The notary's signature over the statement.
    pub signature: Signature,
    /// The evidence over the notary's key.
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

impl Disclosure {
    /// Encodes the disclosure as `docs/disclosure.md` specifies.
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::starting_with(DISCLOSURE_MAGIC);
        writer.u32_prefixed(&self.statement.encode()).raw(&self.signature);
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

    /// Decodes the bytes of [`Disclosure::encode`].
    ///
    /// # Errors
    ///
    /// [`FormatError`] if the bytes are not exactly one disclosure of this version within its
    /// limits: truncated, too long, out of order, with an unknown value, or with bytes after its
    /// end.
    pub fn decode(file: &[u8]) -> Result<Self, FormatError> {
        Self::read(file, Nesting::Outer)
    }

    /// Decodes a disclosure within another, which must not contain a third one.
    pub(crate) fn decode_nested(file: &[u8]) -> Result<Self, FormatError> {
        Self::read(file, Nesting::Inner)
    }

    fn read(file: &[u8], nested: Nesting) -> Result<Self, FormatError> {
        let mut reader = Reader::new(file, DISCLOSURE_MAGIC, FORMAT)?;
        let statement = reader.u32_prefixed(STATEMENT_BYTES_MAX, "statement")?;
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
            if reader.presence_flag("opened bytes")? {
                *bytes = Some(TranscriptOpening::read(&mut reader)?);
            }
            if reader.presence_flag("opened length")? {
                let length = reader.u64("length of a transcript")?;
                *opened = Some(LengthOpening { length, salt: reader.array("salt of a length")? });
            }
        }
        if reader.presence_flag("opened fields")? {
            disclosure.fields = Some(FieldsOpening::read(&mut reader)?);
        }
        let count = reader.limited_count(CLAIMS_MAX, "claims")?;
        for _ in 0..count {
            disclosure.claims.push(Claim::read(&mut reader, nested)?);
        }
        reader.expect_end(FORMAT)?;
        disclosure.check_claim_limits()?;
        Ok(disclosure)
    }

    fn check_claim_limits(&self) -> Result<(), FormatError> {
        let limit = |subject, limit, is_one: fn(&Claim) -> bool| {
            let got = self.claims.iter().filter(|claim| is_one(claim)).count();
            if got <= limit { Ok(()) } else { Err(FormatError::TooLong { subject, limit, got }) }
        };
        limit("claims about texts", TEXT_CLAIMS_MAX, Claim::is_about_text)?;
        limit("other sessions", 1, |claim| matches!(claim, Claim::OtherSession(_)))
    }

    /// The disclosure of the other session within this one.
    pub fn other_session(&self) -> Option<&Disclosure> {
        self.claims.iter().find_map(|claim| match claim {
            Claim::OtherSession(other) => Some(&**other),
            _ => None,
        })
    }
}

/// Whether a disclosure is the outer one, or the one of the other session within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nesting {
    Outer,
    Inner,
}

/// The greatest length of one proof: 1 MiB.
pub(crate) const PROOF_BYTES_MAX: usize = 1 << 20;

/// The greatest length of the other session's disclosure, 1 MiB: a statement, evidence, and some
/// fields that show only their path.
pub(crate) const OTHER_BYTES_MAX: usize = 1 << 20;

/// A claim about values that stay hidden, with its proof.
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
    /// A chunk of a direction, or two neighbouring ones together, contain a text.
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
    /// The disclosure of another session. There is at most one, and it contains no further one.
    OtherSession(Box<Disclosure>),
    /// Two fields have the same number or date.
    Equal {
        /// The index of the field among [`Disclosure::fields`], from 0.
        field: u32,
        /// The field with the same number or date.
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
                writer.u32_prefixed(proof);
            }
            Claim::BytesContain { direction, text, proof } => {
                writer.u8(2).u8(direction.byte()).u16_prefixed(text.as_bytes()).u32_prefixed(proof);
            }
            Claim::FieldContains { field, text, proof } => {
                writer.u8(3).u32(*field).u16_prefixed(text.as_bytes()).u32_prefixed(proof);
            }
            Claim::FieldSha256 { field, sha256, proof } => {
                writer.u8(4).u32(*field).raw(sha256).u32_prefixed(proof);
            }
            Claim::OtherSession(disclosure) => {
                writer.u8(5).u32_prefixed(&disclosure.encode());
            }
            Claim::Equal { field, other, proof } => {
                let (session, other) = match other {
                    OtherField::ThisSession(other) => (0, other),
                    OtherField::OtherSession(other) => (1, other),
                };
                writer.u8(6).u32(*field).u8(session).u32(*other).u32_prefixed(proof);
            }
        }
    }

    pub(crate) fn read(reader: &mut Reader<'_>, nested: Nesting) -> Result<Self, FormatError> {
        match reader.u8("claim")? {
            1 => Ok(Claim::Compare {
                field: read_field_index(reader)?,
                comparison: Comparison::read(reader)?,
                proof: read_proof(reader)?,
            }),
            2 => Ok(Claim::BytesContain {
                direction: read_direction(reader)?,
                text: read_claim_text(reader)?,
                proof: read_proof(reader)?,
            }),
            3 => Ok(Claim::FieldContains {
                field: read_field_index(reader)?,
                text: read_claim_text(reader)?,
                proof: read_proof(reader)?,
            }),
            4 => Ok(Claim::FieldSha256 {
                field: read_field_index(reader)?,
                sha256: reader.array("digest of a claim")?,
                proof: read_proof(reader)?,
            }),
            5 if nested == Nesting::Outer => {
                let file = reader.u32_prefixed(OTHER_BYTES_MAX, "other session")?;
                Ok(Claim::OtherSession(Box::new(Disclosure::decode_nested(file)?)))
            }
            6 => Ok(Claim::Equal {
                field: read_field_index(reader)?,
                other: match reader.presence_flag("other session")? {
                    false => OtherField::ThisSession(read_field_index(reader)?),
                    true => OtherField::OtherSession(read_field_index(reader)?),
                },
                proof: read_proof(reader)?,
            }),
            other => Err(FormatError::Value { subject: "claim", got: other.into() }),
        }
    }

    /// Whether the claim is about a text, so that its proof needs a circuit.
    pub(crate) fn is_about_text(&self) -> bool {
        use Claim::{BytesContain, FieldContains, FieldSha256};
        matches!(self, BytesContain { .. } | FieldContains { .. } | FieldSha256 { .. })
    }
}

fn read_field_index(reader: &mut Reader<'_>) -> Result<u32, FormatError> {
    reader.u32("field of a claim")
}

fn read_claim_text(reader: &mut Reader<'_>) -> Result<String, FormatError> {
    let subject = "text of a claim";
    match reader.text(TEXT_BYTES_MAX, subject)? {
        "" => Err(FormatError::Text { subject }),
        text => Ok(text.into()),
    }
}

fn read_proof(reader: &mut Reader<'_>) -> Result<Vec<u8>, FormatError> {
    Ok(reader.u32_prefixed(PROOF_BYTES_MAX, "proof")?.to_vec())
}

fn read_direction(reader: &mut Reader<'_>) -> Result<Direction, FormatError> {
    match reader.u8("direction")? {
        1 => Ok(Direction::Request),
        2 => Ok(Direction::Response),
        got => Err(FormatError::Value { subject: "direction", got: got.into() }),
    }
}
