//! The statement itself: which claims there are, their bytes and their digest.

use alloc::vec::Vec;

use sha2::{Digest as _, Sha256 as Hash};

use crate::{
    claims::{Fibonacci, Rsa2048, Sha256, Sort},
    dcap::Dcap,
    encoding::{DIGEST_BYTES, Reader, Writer},
    error::StatementError,
    transcript::Transcript,
};

/// The longest encoding that is read: a DCAP statement with every advisory is a quarter of it.
pub const ENCODED_BYTES_MAX: usize = 16 * 1024;

/// The beginning of every tag; the name of the claim follows.
const DOMAIN: &str = "confide/statement/v1/";

/// What a proof shows, one variant for each claim.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "json", serde(tag = "claim", rename_all = "lowercase"))]
pub enum Statement {
    /// A number of Fibonacci's sequence.
    Fibonacci(Fibonacci),
    /// A number at its place in a sorted list.
    Sort(Sort),
    /// An RSA-2048 signature.
    Rsa2048(Rsa2048),
    /// A preimage of SHA-256.
    Sha256(Sha256),
    /// A part of a committed transcript.
    Transcript(Transcript),
    /// The appraisal of an Intel SGX or TDX quote.
    Dcap(Dcap),
}

impl Statement {
    /// The name of every claim, in the order of the variants.
    pub const CLAIMS: [&str; 6] = ["fibonacci", "sort", "rsa2048", "sha256", "transcript", "dcap"];

    /// The name of the claim: `fibonacci`, `sort`, `rsa2048`, `sha256`, `transcript` or `dcap`.
    pub fn claim_name(&self) -> &'static str {
        let at = match self {
            Statement::Fibonacci(_) => 0,
            Statement::Sort(_) => 1,
            Statement::Rsa2048(_) => 2,
            Statement::Sha256(_) => 3,
            Statement::Transcript(_) => 4,
            Statement::Dcap(_) => 5,
        };
        Statement::CLAIMS[at]
    }

    /// The canonical bytes: the tag `confide/statement/v1/<claim>`, then the claim's fields in the
    /// order in which its struct has them; each is preceded by its length, four bytes, big-endian.
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.field_from_parts(&[DOMAIN.as_bytes(), self.claim_name().as_bytes()]);
        match self {
            Statement::Fibonacci(claim) => claim.write(&mut writer),
            Statement::Sort(claim) => claim.write(&mut writer),
            Statement::Rsa2048(claim) => claim.write(&mut writer),
            Statement::Sha256(claim) => claim.write(&mut writer),
            Statement::Transcript(claim) => claim.write(&mut writer),
            Statement::Dcap(claim) => claim.write(&mut writer),
        }
        writer.into_bytes()
    }

    /// Reads a statement that [`Statement::encode`] wrote.
    ///
    /// # Errors
    /// If the bytes are not the one encoding of a statement within the limits of its fields.
    pub fn decode(bytes: &[u8]) -> Result<Statement, StatementError> {
        if bytes.len() > ENCODED_BYTES_MAX {
            let (limit, got) = (ENCODED_BYTES_MAX, bytes.len());
            return Err(StatementError::TooLong { subject: "statement", limit, got });
        }
        let mut reader = Reader::new(bytes);
        let tag = reader.field("tag")?;
        let statement = match tag.strip_prefix(DOMAIN.as_bytes()) {
            Some(b"fibonacci") => Statement::Fibonacci(Fibonacci::read(&mut reader)?),
            Some(b"sort") => Statement::Sort(Sort::read(&mut reader)?),
            Some(b"rsa2048") => Statement::Rsa2048(Rsa2048::read(&mut reader)?),
            Some(b"sha256") => Statement::Sha256(Sha256::read(&mut reader)?),
            Some(b"transcript") => Statement::Transcript(Transcript::read(&mut reader)?),
            Some(b"dcap") => Statement::Dcap(Dcap::read(&mut reader)?),
            _ => return Err(StatementError::Tag),
        };
        reader.finish()?;
        statement.check()?;
        // One statement, one encoding: what the fields' readers let pass is caught here.
        if statement.encode() != bytes { Err(StatementError::NotCanonical) } else { Ok(statement) }
    }

    /// Whether every field is within its limits; what [`Statement::decode`] gives always is.
    ///
    /// # Errors
    /// The first field that is not.
    pub fn check(&self) -> Result<(), StatementError> {
        match self {
            Statement::Fibonacci(_) | Statement::Sha256(_) => Ok(()),
            Statement::Sort(claim) => claim.check(),
            Statement::Rsa2048(claim) => claim.check(),
            Statement::Transcript(claim) => claim.check(),
            Statement::Dcap(claim) => claim.check(),
        }
    }

    /// SHA-256 of the encoding: the zkVM's public values.
    pub fn digest(&self) -> [u8; DIGEST_BYTES] {
        self.digest_by(|bytes| Hash::digest(bytes).into())
    }

    /// Digests the encoding by a SHA-256 of the caller's, as a guest has one that costs few cycles.
    pub fn digest_by(
        &self,
        sha256: impl FnOnce(&[u8]) -> [u8; DIGEST_BYTES],
    ) -> [u8; DIGEST_BYTES] {
        sha256(&self.encode())
    }
}
