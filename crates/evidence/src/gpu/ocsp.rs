//! Revocation answers (RFC 6960): the basic OCSP response, signed with P-384.

use alloc::vec::Vec;

use der::{AnyRef, Decode, Reader, Tag, Tagged, asn1::BitStringRef};

use super::certificate::SHA_384;
use crate::{
    certificate::{
        context_tag, open_nested, open_sequence, read_sequence, read_tagged, read_time,
        visit_extensions,
    },
    parse_error::ParseError,
};

/// The largest number of statuses in one answer: NVIDIA's responder is asked for one certificate at a time.
const STATUSES_MAX: usize = 16;
/// The largest number of certificates in one answer.
const CERTIFICATES_MAX: usize = 4;
/// 1.3.6.1.5.5.7.48.1.1
const BASIC: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 48, 1, 1];
/// 1.2.840.10045.4.3.3
const ECDSA_SHA384: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 3];
/// 1.3.14.3.2.26
const SHA_1: &[u8] = &[0x2b, 14, 3, 2, 26];
/// 2.16.840.1.101.3.4.2.1
const SHA_256: &[u8] = &[0x60, 0x86, 0x48, 1, 101, 3, 4, 2, 1];

/// A basic OCSP response whose status is *successful*, its signature not verified.
#[derive(Clone, Debug)]
pub struct OcspResponse<'a> {
    /// The DER that the signature covers.
    pub signed: &'a [u8],
    /// Unix seconds of producedAt.
    pub produced_at: u64,
    /// The status of each certificate that the response names.
    pub statuses: Vec<SingleResponse<'a>>,
    /// ECDSA P-384 with SHA-384, DER.
    pub signature: &'a [u8],
    /// Certificates that the responder sent along, DER, its own first.
    pub certificates: Vec<&'a [u8]>,
}

/// The status of one certificate, with the time for which it holds.
#[derive(Clone, Copy, Debug)]
pub struct SingleResponse<'a> {
    /// The certificate that the status is about.
    pub certificate: CertificateId<'a>,
    /// The status of that certificate.
    pub status: CertificateStatus,
    /// Unix seconds of thisUpdate.
    pub this_update: u64,
    /// Unix seconds of nextUpdate; `None` if the response has none.
    pub next_update: Option<u64>,
}

/// A certificate, by hashes of its issuer and its serial number.
#[derive(Clone, Copy, Debug)]
pub struct CertificateId<'a> {
    /// The algorithm by which both hashes are made.
    pub algorithm: HashAlgorithm,
    /// Hash of the DER of the issuer's Name.
    pub issuer_name: &'a [u8],
    /// Hash of the issuer's public key, without tag, length and unused bits.
    pub issuer_key: &'a [u8],
    /// The content of the serial number's INTEGER.
    pub serial: &'a [u8],
}

/// A hash algorithm of [`CertificateId`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashAlgorithm {
    /// SHA-1, which serves only to name a certificate here.
    Sha1,
    /// SHA-256.
    Sha256,
    /// SHA-384, which NVIDIA's verifier uses in its requests.
    Sha384,
}

/// The revocation status of a certificate (RFC 6960 section 2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateStatus {
    /// The certificate is not revoked.
    Good,
    /// The certificate is revoked, or on hold.
    Revoked,
    /// The responder does not know it.
    Unknown,
}

impl<'a> OcspResponse<'a> {
    /// Reads a response. One with a critical extension is refused.
    ///
    /// # Errors
    /// [`ParseError::Der`] with the first field that is not as RFC 6960 has it; a status other than
    /// successful and a signature algorithm other than ECDSA with SHA-384 are such fields.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        read(bytes).map_err(|field| ParseError::Der { subject: "revocation answer", field })
    }
}

fn read(bytes: &[u8]) -> Result<OcspResponse<'_>, &'static str> {
    let mut outer = open_sequence(bytes, "outer sequence")?;
    if read_tagged(&mut outer, Tag::Enumerated, "response status")?.value() != [0] {
        return Err("response status (wanted successful)");
    }
    let explicit = read_tagged(&mut outer, context_tag(0), "response bytes")?;
    let mut wrapped = open_sequence(explicit.value(), "response bytes")?;
    if read_tagged(&mut wrapped, Tag::ObjectIdentifier, "response type")?.value() != BASIC {
        return Err("response type (wanted basic)");
    }
    let basic = read_tagged(&mut wrapped, Tag::OctetString, "response")?.value();
    let content = read_sequence(basic, "basic response")?;
    let mut fields = open_nested(content, "basic response")?;
    let data = read_tagged(&mut fields, Tag::Sequence, "response data")?;
    // The signed part is the first element of the content, head included: it ends where the next one begins.
    let length = content.value().len() - usize::try_from(fields.remaining_len()).unwrap_or(0);
    let signed = content.value().get(..length).ok_or("response data")?;
    let mut algorithm = open_nested(
        read_tagged(&mut fields, Tag::Sequence, "signature algorithm")?,
        "signature algorithm",
    )?;
    let identifier = read_tagged(&mut algorithm, Tag::ObjectIdentifier, "signature algorithm")?;
    if identifier.value() != ECDSA_SHA384 || !algorithm.is_finished() {
        return Err("signature algorithm (wanted ECDSA with SHA-384)");
    }
    let signature = BitStringRef::decode(&mut fields).map_err(|_| "signature")?;
    let signature = signature.as_bytes().ok_or("signature")?;
    let certificates = match fields.is_finished() {
        true => Vec::new(),
        false => certificates(read_tagged(&mut fields, context_tag(0), "certificates")?)?,
    };
    let (produced_at, statuses) = response_data(data)?;
    Ok(OcspResponse { signed, produced_at, statuses, signature, certificates })
}

fn response_data(data: AnyRef<'_>) -> Result<(u64, Vec<SingleResponse<'_>>), &'static str> {
    let mut fields = open_nested(data, "response data")?;
    if Tag::peek(&fields) == Ok(context_tag(0)) {
        return Err("response data version (wanted 1)");
    }
    let responder = AnyRef::decode(&mut fields).map_err(|_| "responder")?;
    if ![context_tag(1), context_tag(2)].contains(&responder.tag()) {
        return Err("responder");
    }
    let produced_at = read_time(&mut fields, "producedAt")?;
    let mut list = open_nested(read_tagged(&mut fields, Tag::Sequence, "statuses")?, "statuses")?;
    let mut statuses = Vec::new();
    while !list.is_finished() {
        if statuses.len() == STATUSES_MAX {
            return Err("statuses");
        }
        statuses.push(read_status(read_tagged(&mut list, Tag::Sequence, "status")?)?);
    }
    if !fields.is_finished() {
        check_none_critical(read_tagged(&mut fields, context_tag(1), "extensions")?)?;
    }
    Ok((produced_at, statuses))
}

fn read_status(response: AnyRef<'_>) -> Result<SingleResponse<'_>, &'static str> {
    let mut fields = open_nested(response, "status")?;
    let mut id =
        open_nested(read_tagged(&mut fields, Tag::Sequence, "certificate")?, "certificate")?;
    let mut algorithm =
        open_nested(read_tagged(&mut id, Tag::Sequence, "hash algorithm")?, "hash")?;
    let algorithm =
        match read_tagged(&mut algorithm, Tag::ObjectIdentifier, "hash algorithm")?.value() {
            SHA_1 => HashAlgorithm::Sha1,
            SHA_256 => HashAlgorithm::Sha256,
            SHA_384 => HashAlgorithm::Sha384,
            _ => return Err("hash algorithm (wanted SHA-1, SHA-256 or SHA-384)"),
        };
    let certificate = CertificateId {
        algorithm,
        issuer_name: read_tagged(&mut id, Tag::OctetString, "issuer name hash")?.value(),
        issuer_key: read_tagged(&mut id, Tag::OctetString, "issuer key hash")?.value(),
        serial: read_tagged(&mut id, Tag::Integer, "serial number")?.value(),
    };
    let status = AnyRef::decode(&mut fields).map_err(|_| "certificate status")?;
    let status = match status.tag() {
        Tag::ContextSpecific { number: der::TagNumber(0), .. } => CertificateStatus::Good,
        Tag::ContextSpecific { number: der::TagNumber(1), .. } => CertificateStatus::Revoked,
        Tag::ContextSpecific { number: der::TagNumber(2), .. } => CertificateStatus::Unknown,
        _ => return Err("certificate status"),
    };
    let this_update = read_time(&mut fields, "thisUpdate")?;
    let mut next_update = None;
    if Tag::peek(&fields) == Ok(context_tag(0)) {
        let explicit = read_tagged(&mut fields, context_tag(0), "nextUpdate")?;
        next_update = Some(read_time(&mut open_nested(explicit, "nextUpdate")?, "nextUpdate")?);
    }
    if !fields.is_finished() {
        check_none_critical(read_tagged(&mut fields, context_tag(1), "extensions")?)?;
    }
    Ok(SingleResponse { certificate, status, this_update, next_update })
}

fn certificates(explicit: AnyRef<'_>) -> Result<Vec<&[u8]>, &'static str> {
    let content = read_sequence(explicit.value(), "certificates")?;
    let mut list = open_nested(content, "certificates")?;
    let content = content.value();
    let mut found = Vec::new();
    let mut begin = 0;
    while !list.is_finished() {
        if found.len() == CERTIFICATES_MAX {
            return Err("certificates");
        }
        read_tagged(&mut list, Tag::Sequence, "certificate")?;
        let end = content.len() - usize::try_from(list.remaining_len()).unwrap_or(0);
        found.push(content.get(begin..end).ok_or("certificate")?);
        begin = end;
    }
    Ok(found)
}

fn check_none_critical(extensions: AnyRef<'_>) -> Result<(), &'static str> {
    visit_extensions(extensions, |_, critical, _| match critical {
        true => Err("extensions (wanted none critical)"),
        false => Ok(()),
    })
}
