//! Certificates of a GPU and of those who vouch for it: P-384 keys and the fields that appraisal reads.

use alloc::vec::Vec;
use core::ops::Deref;

use der::{AnyRef, Decode, Encode, Reader, Tag, Tagged};

use crate::{
    certificate::{
        CertificateFields, EXTENDED_KEY_USAGE, SECP384R1, context_tag, ec_point, open_nested,
        open_sequence, read_tagged, set_once,
    },
    parse_error::ParseError,
};

/// 1.3.6.1.5.5.7.3.9
const OCSP_SIGNING: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 9];
/// 2.23.133.5.4.1 and 2.23.133.5.4.1.1: TCG DICE, both in use for firmware identifiers.
const DICE: [&[u8]; 2] = [&[0x67, 0x81, 5, 5, 4, 1], &[0x67, 0x81, 5, 5, 4, 1, 1]];
/// 2.16.840.1.101.3.4.2.2
pub(super) const SHA_384: &[u8] = &[0x60, 0x86, 0x48, 1, 101, 3, 4, 2, 2];

/// A certificate with a P-384 key, read. Its signature is a chain verifier's work.
#[derive(Clone, Debug)]
pub struct DeviceCertificate<'a> {
    fields: CertificateFields<'a>,
    /// The P-384 key as an uncompressed point (0x04, x, y).
    pub public_key: &'a [u8; 97],
    /// Whether ExtendedKeyUsage is present and its only purpose is to sign OCSP responses.
    pub signs_ocsp: bool,
    /// SHA-384 of the firmware that holds the key, from the TCG DICE extension.
    pub fwid: Option<&'a [u8; 48]>,
}

impl<'a> Deref for DeviceCertificate<'a> {
    type Target = CertificateFields<'a>;

    fn deref(&self) -> &Self::Target {
        &self.fields
    }
}

impl<'a> DeviceCertificate<'a> {
    /// Reads a certificate with a P-384 key.
    ///
    /// # Errors
    /// [`ParseError::Der`] with `subject` and the first field that is not as RFC 5280 has it;
    /// another key than P-384 is one of them.
    pub fn parse(subject: &'static str, bytes: &'a [u8]) -> Result<Self, ParseError> {
        read(bytes).map_err(|field| ParseError::Der { subject, field })
    }

    /// The DER of the subject's Name, which OCSP hashes.
    pub fn subject_der(&self) -> Vec<u8> {
        // A Name that was read from a slice has a length that DER can say.
        let name = AnyRef::new(Tag::Sequence, self.subject).and_then(|any| any.to_der());
        name.unwrap_or_default()
    }
}

fn read(bytes: &[u8]) -> Result<DeviceCertificate<'_>, &'static str> {
    let (mut purposes, mut firmware) = (None, None);
    let fields = CertificateFields::read(bytes, |id, value| {
        if id == EXTENDED_KEY_USAGE {
            set_once(&mut purposes, signs_ocsp(value)?, "extended key usage")?;
            return Ok(true);
        }
        if DICE.contains(&id) {
            set_once(&mut firmware, fwid(value)?, "firmware identifier")?;
        }
        Ok(false)
    })?;
    let public_key = ec_point(fields.public_key_info, SECP384R1, "public key (wanted P-384)")?;
    let signs_ocsp = purposes.unwrap_or(false);
    Ok(DeviceCertificate { fields, public_key, signs_ocsp, fwid: firmware })
}

/// Whether the only purpose is to sign OCSP responses.
fn signs_ocsp(value: &[u8]) -> Result<bool, &'static str> {
    const FIELD: &str = "extended key usage";
    let mut purposes = open_sequence(value, FIELD)?;
    let first = read_tagged(&mut purposes, Tag::ObjectIdentifier, FIELD)?.value();
    Ok(first == OCSP_SIGNING && purposes.is_finished())
}

/// Reads the firmware identifier. Two shapes are in use: `CompositeDeviceID { version, deviceID, fwid }` on Hopper,
/// and
/// `TcbInfo { …, fwids [6], … }`, of which the first counts, on Blackwell.
fn fwid(value: &[u8]) -> Result<&[u8; 48], &'static str> {
    const FIELD: &str = "firmware identifier";
    let mut fields = open_sequence(value, FIELD)?;
    if Tag::peek(&fields) == Ok(Tag::Integer) {
        read_tagged(&mut fields, Tag::Integer, FIELD)?;
        read_tagged(&mut fields, Tag::Sequence, FIELD)?;
        return fwid_digest(read_tagged(&mut fields, Tag::Sequence, FIELD)?);
    }
    while !fields.is_finished() {
        let field = AnyRef::decode(&mut fields).map_err(|_| FIELD)?;
        if field.tag() == context_tag(6) {
            let mut list = open_nested(field, FIELD)?;
            return fwid_digest(read_tagged(&mut list, Tag::Sequence, FIELD)?);
        }
    }
    Err(FIELD)
}

/// Reads the digest of `FWID { hashAlg, digest }`.
fn fwid_digest(fwid: AnyRef<'_>) -> Result<&[u8; 48], &'static str> {
    const FIELD: &str = "firmware identifier (wanted SHA-384)";
    let mut fields = open_nested(fwid, FIELD)?;
    let algorithm = read_tagged(&mut fields, Tag::ObjectIdentifier, FIELD)?.value();
    let digest = read_tagged(&mut fields, Tag::OctetString, FIELD)?.value();
    if algorithm != SHA_384 {
        return Err(FIELD);
    }
    digest.try_into().map_err(|_| FIELD)
}
