//! Evidence and collateral as they stand in a certificate extension: CBOR tag 60000.
//!
//! The tag is registered with IANA for a quote; the array `[quote, claims]` under it is that of
//! the interoperable RA-TLS profile, in extension 2.23.133.5.4.9. Collateral stands in extension
//! 2.23.133.5.4.2 as the same tag over `[collateral]`.

use alloc::vec::Vec;

use minicbor::{Decoder, data::Tag};

use crate::{cbor::Writer, claims::CLAIMS_BYTES_MAX};

/// The CBOR tag of a TEE quote.
pub(crate) const TAG_QUOTE: u64 = 60000;

/// The longest quote that is read: what Linux's configfs-tsm gives at most.
pub const QUOTE_BYTES_MAX: usize = 32 * 1024;

/// The longest collateral that is read. A DCAP set takes 15 to 25 KB; CRLs grow. With the longest
/// quote and claims it fits a frame of 128 KiB.
pub const COLLATERAL_BYTES_MAX: usize = 94 * 1024;

/// A quote and the claims it covers, as they stand in the evidence extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaggedEvidence<'a> {
    /// The quote, unparsed.
    pub quote: &'a [u8],
    /// Encoded [`crate::claims::Claims`], unparsed.
    pub claims: &'a [u8],
}

impl<'a> TaggedEvidence<'a> {
    /// The one encoding.
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.tag(TAG_QUOTE).array(2).bytes(self.quote).bytes(self.claims);
        writer.finish()
    }

    /// Reads the extension's content; only the deterministic encoding is accepted.
    ///
    /// # Errors
    /// [`TaggedEvidenceError::Tag`] or [`TaggedEvidenceError::Array`] if the bytes begin otherwise,
    /// [`TaggedEvidenceError::Malformed`], [`TaggedEvidenceError::Empty`] or [`TaggedEvidenceError::TooLong`] for a
    /// member, [`TaggedEvidenceError::NotCanonical`] for any other encoding.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, TaggedEvidenceError> {
        let mut decoder = open_tagged_array(bytes, 2)?;
        let quote = read_member(&mut decoder, "quote", QUOTE_BYTES_MAX)?;
        let claims = read_member(&mut decoder, "claims", CLAIMS_BYTES_MAX)?;
        let evidence = Self { quote, claims };
        if evidence.encode() != bytes {
            return Err(TaggedEvidenceError::NotCanonical);
        }
        Ok(evidence)
    }
}

/// Collateral as it stands in the endorsement extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaggedCollateral<'a> {
    /// The JSON of the collateral, unparsed.
    pub collateral: &'a [u8],
}

impl<'a> TaggedCollateral<'a> {
    /// The one encoding.
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.tag(TAG_QUOTE).array(1).bytes(self.collateral);
        writer.finish()
    }

    /// Reads the extension's content; only the deterministic encoding is accepted.
    ///
    /// # Errors
    /// [`TaggedEvidenceError::Tag`] or [`TaggedEvidenceError::Array`] if the bytes begin otherwise,
    /// [`TaggedEvidenceError::Malformed`], [`TaggedEvidenceError::Empty`] or [`TaggedEvidenceError::TooLong`] for a
    /// member, [`TaggedEvidenceError::NotCanonical`] for any other encoding.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, TaggedEvidenceError> {
        let mut decoder = open_tagged_array(bytes, 1)?;
        let collateral = read_member(&mut decoder, "collateral", COLLATERAL_BYTES_MAX)?;
        let tagged = Self { collateral };
        if tagged.encode() != bytes {
            return Err(TaggedEvidenceError::NotCanonical);
        }
        Ok(tagged)
    }
}

/// Why bytes are not tagged evidence or collateral.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TaggedEvidenceError {
    /// The bytes do not begin with the tag.
    #[error("tagged evidence begins with an unexpected item, wanted CBOR tag {wanted}")]
    Tag {
        /// The tag of a quote.
        wanted: u64,
    },
    /// The tag holds no array of the wanted length.
    #[error("tagged evidence holds an unexpected item, wanted an array of {wanted}")]
    Array {
        /// The wanted number of members.
        wanted: u64,
    },
    /// A member is not a byte string or is cut short.
    #[error("{member} is not a complete byte string")]
    Malformed {
        /// The name of the member.
        member: &'static str,
    },
    /// A member is empty, which is what a failed device gives.
    #[error("{member} is empty")]
    Empty {
        /// The name of the member.
        member: &'static str,
    },
    /// A member is longer than its limit.
    #[error("{member} is {got} bytes, wanted at most {wanted}")]
    TooLong {
        /// The name of the member.
        member: &'static str,
        /// The limit in bytes.
        wanted: usize,
        /// The length that came.
        got: usize,
    },
    /// The same content in other bytes than the deterministic ones, or bytes after it.
    #[error("tagged evidence is not in deterministic encoding")]
    NotCanonical,
}

fn open_tagged_array(bytes: &[u8], len: u64) -> Result<Decoder<'_>, TaggedEvidenceError> {
    let mut decoder = Decoder::new(bytes);
    if !matches!(decoder.tag(), Ok(tag) if tag == Tag::new(TAG_QUOTE)) {
        return Err(TaggedEvidenceError::Tag { wanted: TAG_QUOTE });
    }
    if !matches!(decoder.array(), Ok(Some(got)) if got == len) {
        return Err(TaggedEvidenceError::Array { wanted: len });
    }
    Ok(decoder)
}

fn read_member<'b>(
    decoder: &mut Decoder<'b>,
    member: &'static str,
    wanted: usize,
) -> Result<&'b [u8], TaggedEvidenceError> {
    let bytes = decoder.bytes().map_err(|_| TaggedEvidenceError::Malformed { member })?;
    match bytes.len() {
        0 => Err(TaggedEvidenceError::Empty { member }),
        got if got > wanted => Err(TaggedEvidenceError::TooLong { member, wanted, got }),
        _ => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn evidence_comes_back_as_it_was() {
        let evidence = TaggedEvidence { quote: b"quote", claims: b"claims" };
        let bytes = evidence.encode();
        // Tag 60000 as RFC 8949 section 3.4 writes it, then an array of two.
        assert_eq!(bytes[..4], [0xd9, 0xea, 0x60, 0x82]);
        assert_eq!(TaggedEvidence::decode(&bytes), Ok(evidence));
    }

    #[test]
    fn collateral_comes_back_as_it_was() {
        let collateral = TaggedCollateral { collateral: b"{}" };
        assert_eq!(TaggedCollateral::decode(&collateral.encode()), Ok(collateral));
    }

    #[test]
    fn truncated_and_trailing_bytes_are_rejected() {
        let mut bytes = TaggedEvidence { quote: b"quote", claims: b"claims" }.encode();
        for len in 0..bytes.len() {
            assert!(TaggedEvidence::decode(&bytes[..len]).is_err());
        }
        bytes.push(0);
        assert_eq!(TaggedEvidence::decode(&bytes), Err(TaggedEvidenceError::NotCanonical));
    }

    #[test]
    fn an_empty_quote_is_rejected() {
        let bytes = TaggedEvidence { quote: b"", claims: b"claims" }.encode();
        assert_eq!(
            TaggedEvidence::decode(&bytes),
            Err(TaggedEvidenceError::Empty { member: "quote" })
        );
    }

    #[test]
    fn an_oversized_member_is_rejected() {
        let quote = vec![0; QUOTE_BYTES_MAX + 1];
        let bytes = TaggedEvidence { quote: &quote, claims: b"claims" }.encode();
        assert!(matches!(TaggedEvidence::decode(&bytes), Err(TaggedEvidenceError::TooLong { .. })));
    }

    #[test]
    fn another_tag_and_another_array_are_rejected() {
        let mut writer = Writer::new();
        writer.tag(60001).array(2).bytes(b"q").bytes(b"c");
        let bytes = writer.finish();
        let result = TaggedEvidence::decode(&bytes);
        assert_eq!(result, Err(TaggedEvidenceError::Tag { wanted: TAG_QUOTE }));
        let one = TaggedCollateral { collateral: b"q" }.encode();
        assert_eq!(TaggedEvidence::decode(&one), Err(TaggedEvidenceError::Array { wanted: 2 }));
    }
}
