//! AMD's endorsements of one chip key, read and not yet verified.

use alloc::vec::Vec;

use confide_evidence::{ParseError, pem, snp_endorsements::SnpEndorsements};

/// Endorsements as they came: read as a whole, believed in nothing.
#[derive(Clone, Debug)]
pub struct Endorsements {
    pub(super) parts: SnpEndorsements,
    pub(super) chain: Vec<Vec<u8>>,
}

impl Endorsements {
    /// Reads the JSON object of [`SnpEndorsements`].
    ///
    /// # Errors
    /// [`ParseError`] of the object or of the first part that cannot be read.
    pub fn parse(document: &[u8]) -> Result<Self, ParseError> {
        Self::from_parts(SnpEndorsements::parse(document)?)
    }

    /// Takes endorsements that came as files.
    ///
    /// # Errors
    /// [`ParseError`] if the chain is not PEM certificates.
    pub fn from_parts(parts: SnpEndorsements) -> Result<Self, ParseError> {
        let chain = pem::decode_chain("AMD certificate chain", parts.chain.as_bytes())?;
        Ok(Self { parts, chain })
    }

    /// The last certificate of the chain (DER), which is the root's if the chain is a right one.
    pub fn root_der(&self) -> Option<&[u8]> {
        self.chain.last().map(Vec::as_slice)
    }
}
