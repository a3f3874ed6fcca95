//! The notary's evidence in its encoded form, which the caller appraises.
use confide_transcript::{FormatError, Reader, Writer};

/// The greatest length of a quote, in bytes: the limit of Linux's configfs-tsm.
pub const QUOTE_BYTES_MAX: usize = 32 * 1024;

/// The greatest length of the claims, in bytes.
pub const CLAIMS_BYTES_MAX: usize = 1024;

/// The greatest length of the endorsements, in bytes: the limit of stapled ones on a channel.
pub const ENDORSEMENTS_BYTES_MAX: usize = 94 * 1024;

/// The guarantee in the claims of a notary's signing key. It distinguishes the key from keys of
/// other attested programs, even on a machine that runs the same code.
pub const NOTARY_GUARANTEE: &str = "the notary sees the plaintext, its operator does not";

/// The evidence over the notary's key, with key binding (`docs/channel.md`): a quote whose report
/// data is SHA-256 of the claims, which contain SHA-256 of the key's SubjectPublicKeyInfo.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NotaryEvidence {
    /// The quote or report.
    pub quote: Vec<u8>,
    /// The encoded claims that the quote covers.
    pub claims: Vec<u8>,
    /// The endorsements in JSON; empty if there are none.
    pub endorsements: Vec<u8>,
}

impl NotaryEvidence {
    pub(crate) fn write(&self, writer: &mut Writer) {
        writer
            .u32_prefixed(&self.quote)
            .u32_prefixed(&self.claims)
            .u32_prefixed(&self.endorsements);
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, FormatError> {
        Ok(Self {
            quote: reader.u32_prefixed(QUOTE_BYTES_MAX, "quote")?.to_vec(),
            claims: reader.u32_prefixed(CLAIMS_BYTES_MAX, "claims")?.to_vec(),
            endorsements: reader.u32_prefixed(ENDORSEMENTS_BYTES_MAX, "endorsements")?.to_vec(),
        })
    }
}
