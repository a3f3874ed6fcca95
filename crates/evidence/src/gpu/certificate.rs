//! Certificates of a GPU and of those who vouch for it: P-384 keys, and what appraisal looks at.

use alloc::vec::Vec;

use der::{AnyRef, Decode, Encode, Reader, SliceReader, Tag, Tagged, asn1::BitStringRef};

use crate::{
    certificate::{
        BASIC_CONSTRAINTS, EC_PUBLIC_KEY, KEY_USAGE, common_name, context_tag, each_extension,
        key_usage, nested, once, says_ca, signed_part, tagged, time,
    },
    parse_error::ParseError,
};

/// 1.3.132.0.34
const SECP384R1: &[u8] = &[0x2b, 0x81, 4, 0, 34];
/// 2.5.29.37
const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1d, 37];
/// 1.3.6.1.5.5.7.3.9
const OCSP_SIGNING: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 9];
/// 2.23.133.5.4.1 and 2.23.133.5.4.1.1: TCG DICE, both in use for firmware identifiers.
const DICE: [&[u8]; 2] = [&[0x67, 0x81, 5, 5, 4, 1], &[0x67, 0x81, 5, 5, 4, 1, 1]];
/// 2.16.840.1.101.3.4.2.2
pub(super) const SHA_384: &[u8] = &[0x60, 0x86, 0x48, 1, 101, 3, 4, 2, 2];

/// A certificate with a P-384 key, read. Its signature is a chain verifier's work.
#[derive(Clone, Debug)]
pub struct DeviceCertificate<'a> {
    /// Serial number: the content of its INTEGER.
    pub serial: &'a [u8],
    /// Issuer: the content of its Name.
    pub issuer: &'a [u8],
    /// Subject: the content of its Name.
    pub subject: &'a [u8],
    /// The subject's common name; empty where there is none.
    pub common_name: &'a str,
    /// Unix seconds.
    pub not_before: u64,
    /// Unix seconds.
    pub not_after: u64,
    /// The P-384 key as an uncompressed point (0x04, x, y).
    pub public_key: &'a [u8; 97],
    /// KeyUsage, where present.
    pub key_usage: Option<DeviceKeyUsage>,
    /// Whether BasicConstraints says that this is a CA.
    pub is_ca: bool,
    /// Whether ExtendedKeyUsage is present and says: to sign OCSP responses.
    pub signs_ocsp: bool,
    /// SHA-384 of the firmware that holds the key, from the TCG DICE extension.
    pub fwid: Option<&'a [u8; 48]>,
    /// Whether a critical extension is present that is not read here.
    pub has_other_critical_extension: bool,
}

/// The bits of KeyUsage that matter here (RFC 5280 section 4.2.1.3).
pub type DeviceKeyUsage = crate::certificate::KeyUsage;

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
    let mut tbs = signed_part(bytes)?;
    tagged(&mut tbs, context_tag(0), "version")?;
    let serial = tagged(&mut tbs, Tag::Integer, "serial number")?.value();
    tagged(&mut tbs, Tag::Sequence, "signature algorithm")?;
    let issuer = tagged(&mut tbs, Tag::Sequence, "issuer")?.value();
    let mut validity = nested(tagged(&mut tbs, Tag::Sequence, "validity")?, "validity")?;
    let not_before = time(&mut validity, "notBefore")?;
    let not_after = time(&mut validity, "notAfter")?;
    let subject = tagged(&mut tbs, Tag::Sequence, "subject")?.value();
    let public_key = public_key(tagged(&mut tbs, Tag::Sequence, "public key")?)?;
    let mut certificate = DeviceCertificate {
        serial,
        issuer,
        subject,
        common_name: common_name(subject)?,
        not_before,
        not_after,
        public_key,
        key_usage: None,
        is_ca: false,
        signs_ocsp: false,
        fwid: None,
        has_other_critical_extension: false,
    };
    let (mut constraints, mut purposes) = (None, None);
    let list = tagged(&mut tbs, context_tag(3), "extensions")?;
    each_extension(list, |id, critical, value| {
        if id == KEY_USAGE {
            let bits = BitStringRef::from_der(value).map_err(|_| "key usage")?;
            return once(&mut certificate.key_usage, key_usage(bits)?, "key usage");
        }
        if id == BASIC_CONSTRAINTS {
            return once(&mut constraints, says_ca(value)?, "basic constraints");
        }
        if id == EXTENDED_KEY_USAGE {
            return once(&mut purposes, says_ocsp(value)?, "extended key usage");
        }
        if DICE.contains(&id) {
            once(&mut certificate.fwid, fwid(value)?, "firmware identifier")?;
        }
        certificate.has_other_critical_extension |= critical;
        Ok(())
    })?;
    certificate.is_ca = constraints.unwrap_or(false);
    certificate.signs_ocsp = purposes.unwrap_or(false);
    Ok(certificate)
}

fn public_key(spki: AnyRef<'_>) -> Result<&[u8; 97], &'static str> {
    const FIELD: &str = "public key";
    let mut spki = nested(spki, FIELD)?;
    let mut algorithm = nested(tagged(&mut spki, Tag::Sequence, FIELD)?, FIELD)?;
    let key_type = tagged(&mut algorithm, Tag::ObjectIdentifier, FIELD)?.value();
    let curve = tagged(&mut algorithm, Tag::ObjectIdentifier, FIELD)?.value();
    if key_type != EC_PUBLIC_KEY || curve != SECP384R1 {
        return Err("public key (wanted P-384)");
    }
    let point = BitStringRef::decode(&mut spki).map_err(|_| FIELD)?;
    let point: Option<&[u8; 97]> = point.as_bytes().and_then(|bytes| bytes.try_into().ok());
    point.filter(|point| point[0] == 0x04).ok_or("public key (wanted an uncompressed point)")
}

/// Whether the only purpose is to sign OCSP responses.
fn says_ocsp(value: &[u8]) -> Result<bool, &'static str> {
    const FIELD: &str = "extended key usage";
    let mut purposes = sequence(value, FIELD)?;
    let first = tagged(&mut purposes, Tag::ObjectIdentifier, FIELD)?.value();
    Ok(first == OCSP_SIGNING && purposes.is_finished())
}

/// Two shapes are in use: `CompositeDeviceID { version, deviceID, fwid }` on Hopper, and
/// `TcbInfo { …, fwids [6], … }`, of which the first counts, on Blackwell.
fn fwid(value: &[u8]) -> Result<&[u8; 48], &'static str> {
    const FIELD: &str = "firmware identifier";
    let mut fields = sequence(value, FIELD)?;
    if Tag::peek(&fields) == Ok(Tag::Integer) {
        tagged(&mut fields, Tag::Integer, FIELD)?;
        tagged(&mut fields, Tag::Sequence, FIELD)?;
        return digest(tagged(&mut fields, Tag::Sequence, FIELD)?);
    }
    while !fields.is_finished() {
        let field = AnyRef::decode(&mut fields).map_err(|_| FIELD)?;
        if field.tag() == context_tag(6) {
            let mut list = nested(field, FIELD)?;
            return digest(tagged(&mut list, Tag::Sequence, FIELD)?);
        }
    }
    Err(FIELD)
}

/// `FWID { hashAlg, digest }`
fn digest(fwid: AnyRef<'_>) -> Result<&[u8; 48], &'static str> {
    const FIELD: &str = "firmware identifier (wanted SHA-384)";
    let mut fields = nested(fwid, FIELD)?;
    let algorithm = tagged(&mut fields, Tag::ObjectIdentifier, FIELD)?.value();
    let digest = tagged(&mut fields, Tag::OctetString, FIELD)?.value();
    if algorithm != SHA_384 {
        return Err(FIELD);
    }
    digest.try_into().map_err(|_| FIELD)
}

/// A reader over the content of a whole SEQUENCE.
pub(super) fn sequence<'a>(
    bytes: &'a [u8],
    field: &'static str,
) -> Result<SliceReader<'a>, &'static str> {
    let any = AnyRef::from_der(bytes).map_err(|_| field)?;
    if any.tag() != Tag::Sequence {
        return Err(field);
    }
    nested(any, field)
}
