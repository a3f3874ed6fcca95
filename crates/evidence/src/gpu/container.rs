//! Report, certificate chain and stapled endorsements in one: what a channel and a file carry.

use alloc::vec::Vec;

use minicbor::Decoder;

use super::report::REPORT_BYTES_MAX;
use crate::{cbor::Writer, parse_error::ParseError, pem};

/// The first member, which tells the container from everything else.
const FORMAT: &str = "confide gpu evidence v1";
/// The longest certificate chain in bytes of PEM; NVML has a buffer of 5,120 bytes for one.
pub const CHAIN_BYTES_MAX: usize = 8 * 1024;
/// Certificates of a GPU: attestation key, device, two intermediates and the root; and one to
/// spare, so that a wrong shape is named by the verifier.
const CHAIN_CERTIFICATES_MAX: usize = 6;
/// The largest number of reference manifests: the driver's and the VBIOS's.
pub const RIMS_MAX: usize = 2;
/// The longest reference manifest in bytes; NVIDIA's take about 20 KB.
pub const RIM_BYTES_MAX: usize = 48 * 1024;
/// The largest number of revocation answers: for three certificates of the device and three of each manifest.
pub const OCSP_MAX: usize = 9;
/// The longest revocation answer in bytes: one status and the responder's certificate.
pub const OCSP_BYTES_MAX: usize = 4 * 1024;
/// The longest container in bytes: two manifests as NVIDIA makes them and all the rest.
pub const GPU_EVIDENCE_BYTES_MAX: usize = 80 * 1024;

/// The evidence of one GPU. The endorsements in it authenticate themselves by their signatures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuEvidence<'a> {
    /// The SPDM report, unparsed ([`super::GpuReport`]).
    pub report: &'a [u8],
    /// The certificate chain in PEM, attestation key first, unparsed.
    pub chain: &'a [u8],
    /// Reference manifests that the attester stapled ([`super::Rim`]).
    pub rims: Vec<&'a [u8]>,
    /// Revocation answers that the attester stapled ([`super::OcspResponse`]).
    pub ocsp: Vec<&'a [u8]>,
}

impl<'a> GpuEvidence<'a> {
    /// Whether bytes begin as a container does.
    pub fn is_container(bytes: &[u8]) -> bool {
        let mut writer = Writer::new();
        writer.array(5).text(FORMAT);
        bytes.starts_with(&writer.finish())
    }

    /// The one encoding.
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.array(5).text(FORMAT).bytes(self.report).bytes(self.chain);
        for list in [&self.rims, &self.ocsp] {
            writer.array(list.len() as u64);
            for member in list {
                writer.bytes(member);
            }
        }
        writer.finish()
    }

    /// Reads a container; only the deterministic encoding is accepted.
    ///
    /// # Errors
    /// [`GpuEvidenceError::TooLong`] and [`GpuEvidenceError::TooMany`] over a limit,
    /// [`GpuEvidenceError::Format`] if the bytes do not begin as a container,
    /// [`GpuEvidenceError::Malformed`] or [`GpuEvidenceError::Empty`] for a member that is not a
    /// whole byte string or holds nothing, and [`GpuEvidenceError::NotCanonical`] for any other
    /// encoding.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, GpuEvidenceError> {
        let too_long = |member, wanted, got| GpuEvidenceError::TooLong { member, wanted, got };
        if bytes.len() > GPU_EVIDENCE_BYTES_MAX {
            return Err(too_long("GPU evidence", GPU_EVIDENCE_BYTES_MAX, bytes.len()));
        }
        let mut decoder = Decoder::new(bytes);
        let is_array = matches!(decoder.array(), Ok(Some(5)));
        if !is_array || decoder.str().ok() != Some(FORMAT) {
            return Err(GpuEvidenceError::Format { wanted: FORMAT });
        }
        let evidence = Self {
            report: read_member(&mut decoder, "GPU report", REPORT_BYTES_MAX)?,
            chain: read_member(&mut decoder, "GPU certificate chain", CHAIN_BYTES_MAX)?,
            rims: read_members(&mut decoder, "reference manifest", RIMS_MAX, RIM_BYTES_MAX)?,
            ocsp: read_members(&mut decoder, "revocation answer", OCSP_MAX, OCSP_BYTES_MAX)?,
        };
        if evidence.encode() != bytes {
            return Err(GpuEvidenceError::NotCanonical);
        }
        Ok(evidence)
    }
}

/// The DER of each certificate of a GPU's chain, in the order of the text.
///
/// # Errors
/// [`ParseError::TooLong`] or [`ParseError::TooMany`] over a limit, [`ParseError::Text`] if the
/// text is not PEM.
pub fn decode_chain(text: &[u8]) -> Result<Vec<Vec<u8>>, ParseError> {
    const SUBJECT: &str = "GPU certificate chain";
    if text.len() > CHAIN_BYTES_MAX {
        let (limit, got) = (CHAIN_BYTES_MAX, text.len());
        return Err(ParseError::TooLong { subject: SUBJECT, limit, got });
    }
    pem::decode_chain_with_limit(SUBJECT, text, CHAIN_CERTIFICATES_MAX)
}

/// Why bytes are no container of GPU evidence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GpuEvidenceError {
    /// The bytes do not begin as a container does.
    #[error("GPU evidence begins with an unexpected item, wanted an array that names `{wanted}`")]
    Format {
        /// The name of the format.
        wanted: &'static str,
    },
    /// A member is not a byte string or list, or is cut short.
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
    /// The whole or a member is longer than its limit.
    #[error("{member} is {got} bytes, wanted at most {wanted}")]
    TooLong {
        /// The name of the member.
        member: &'static str,
        /// The limit in bytes.
        wanted: usize,
        /// The length that came.
        got: usize,
    },
    /// A list has more members than its limit.
    #[error("{member} occurs {got} times, wanted at most {wanted}")]
    TooMany {
        /// The name of the member.
        member: &'static str,
        /// The limit.
        wanted: usize,
        /// The number that came.
        got: u64,
    },
    /// The same content in other bytes than the deterministic ones, or bytes after it.
    #[error("GPU evidence is not in deterministic encoding")]
    NotCanonical,
}

fn read_members<'b>(
    decoder: &mut Decoder<'b>,
    name: &'static str,
    count_max: usize,
    bytes_max: usize,
) -> Result<Vec<&'b [u8]>, GpuEvidenceError> {
    let Ok(Some(got)) = decoder.array() else {
        return Err(GpuEvidenceError::Malformed { member: name });
    };
    if got > count_max as u64 {
        return Err(GpuEvidenceError::TooMany { member: name, wanted: count_max, got });
    }
    (0..got).map(|_| read_member(decoder, name, bytes_max)).collect()
}

fn read_member<'b>(
    decoder: &mut Decoder<'b>,
    member: &'static str,
    wanted: usize,
) -> Result<&'b [u8], GpuEvidenceError> {
    let bytes = decoder.bytes().map_err(|_| GpuEvidenceError::Malformed { member })?;
    match bytes.len() {
        0 => Err(GpuEvidenceError::Empty { member }),
        got if got > wanted => Err(GpuEvidenceError::TooLong { member, wanted, got }),
        _ => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn evidence() -> GpuEvidence<'static> {
        GpuEvidence { report: b"report", chain: b"chain", rims: vec![b"rim"], ocsp: vec![] }
    }

    #[test]
    fn a_container_comes_back_as_it_was() {
        let bytes = evidence().encode();
        assert!(GpuEvidence::is_container(&bytes));
        assert_eq!(GpuEvidence::decode(&bytes), Ok(evidence()));
    }

    #[test]
    fn every_truncation_and_every_byte_more_is_refused() {
        let mut bytes = evidence().encode();
        for length in 0..bytes.len() {
            assert!(GpuEvidence::decode(&bytes[..length]).is_err(), "{length}");
        }
        bytes.push(0);
        assert_eq!(GpuEvidence::decode(&bytes), Err(GpuEvidenceError::NotCanonical));
    }

    #[test]
    fn every_bit_flip_is_refused_or_reads_as_other_evidence() {
        let bytes = evidence().encode();
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            if let Ok(read) = GpuEvidence::decode(&flipped) {
                assert_ne!(read, evidence());
                assert_eq!(read.encode(), flipped);
            }
        }
    }

    #[test]
    fn limits_are_named() {
        let long = vec![1; REPORT_BYTES_MAX + 1];
        let report = GpuEvidence { report: &long, ..evidence() };
        let rims = GpuEvidence { rims: vec![b"a", b"b", b"c"], ..evidence() };
        let empty = GpuEvidence { chain: b"", ..evidence() };
        let refused = |evidence: GpuEvidence<'_>| GpuEvidence::decode(&evidence.encode()).err();
        assert!(matches!(refused(report), Some(GpuEvidenceError::TooLong { .. })));
        assert!(matches!(refused(rims), Some(GpuEvidenceError::TooMany { .. })));
        assert!(matches!(refused(empty), Some(GpuEvidenceError::Empty { .. })));
        let huge = vec![0; GPU_EVIDENCE_BYTES_MAX + 1];
        assert!(matches!(GpuEvidence::decode(&huge), Err(GpuEvidenceError::TooLong { .. })));
    }
}
