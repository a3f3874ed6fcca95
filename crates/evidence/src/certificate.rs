//! The fields of an X.509 certificate that appraisal looks at (RFC 5280), as views of its DER.
//!
//! Signatures and path rules are a chain verifier's work; this only reads.

use core::ops::Deref;

use der::{
    AnyRef, Decode, Reader, SliceReader, Tag, Tagged,
    asn1::ObjectIdentifier,
    asn1::{BitStringRef, GeneralizedTime, UtcTime},
};

use crate::parse_error::ParseError;

/// Object identifiers, as the content of their DER.
const COMMON_NAME: &[u8] = &[0x55, 4, 3];
const KEY_USAGE: &[u8] = &[0x55, 0x1d, 15];
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 19];
const NAME_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 30];
pub(crate) const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1d, 37];
/// 1.2.840.113741.1.13.1
const SGX_EXTENSION: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf8, 0x4d, 1, 13, 1];
/// 1.2.840.10045.2.1
const EC_PUBLIC_KEY: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1];
/// 1.3.132.0.34
pub(crate) const SECP384R1: &[u8] = &[0x2b, 0x81, 4, 0, 34];
/// 1.2.840.10045.3.1.7
const PRIME256V1: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7];

/// The largest number of extensions in one certificate or revocation list; Intel's have six.
const EXTENSIONS_MAX: usize = 32;

/// A certificate with a P-256 key, read.
#[derive(Clone, Debug)]
pub struct Certificate<'a> {
    fields: CertificateFields<'a>,
    /// The P-256 key as an uncompressed point (0x04, x, y).
    pub public_key: &'a [u8; 65],
    /// The content of Intel's SGX extension, where present.
    pub sgx_extension: Option<&'a [u8]>,
}

impl<'a> Deref for Certificate<'a> {
    type Target = CertificateFields<'a>;

    fn deref(&self) -> &Self::Target {
        &self.fields
    }
}

/// The fields that all certificates have, whatever their key and their vendor.
#[derive(Clone, Debug)]
pub struct CertificateFields<'a> {
    /// Serial number: the content of its INTEGER.
    pub serial: &'a [u8],
    /// Issuer: the content of its Name.
    pub issuer: &'a [u8],
    /// Subject: the content of its Name.
    pub subject: &'a [u8],
    /// The subject's common name; empty if there is none.
    pub common_name: &'a str,
    /// Unix seconds.
    pub not_before: u64,
    /// Unix seconds.
    pub not_after: u64,
    /// The SubjectPublicKeyInfo.
    pub(crate) public_key_info: AnyRef<'a>,
    /// KeyUsage, where present.
    pub key_usage: Option<KeyUsage>,
    /// Whether BasicConstraints says that this is a CA.
    pub is_ca: bool,
    /// Whether a critical extension is present that is not read here.
    pub has_other_critical_extension: bool,
    /// Whether NameConstraints or ExtendedKeyUsage is present, critical or not: either narrows what
    /// the certificate is good for.
    pub is_narrowed: bool,
}

/// The bits of KeyUsage that matter here (RFC 5280 section 4.2.1.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyUsage {
    /// May sign data.
    pub digital_signature: bool,
    /// May sign certificates.
    pub key_cert_sign: bool,
    /// May sign revocation lists.
    pub crl_sign: bool,
}

impl<'a> Certificate<'a> {
    /// Reads a certificate with a P-256 key.
    ///
    /// # Errors
    /// [`ParseError::Der`] with `subject` and the first field that is not as RFC 5280 has it;
    /// another key than P-256 is one of them.
    pub fn parse(subject: &'static str, bytes: &'a [u8]) -> Result<Self, ParseError> {
        read(bytes).map_err(|field| ParseError::Der { subject, field })
    }
}

/// The three parts of a certificate or revocation list: what is signed, how, and the signature.
#[derive(Clone, Copy, Debug)]
pub struct SignedParts<'a> {
    /// The DER that the signature covers, tag and length included.
    pub signed: &'a [u8],
    /// The content of the outer AlgorithmIdentifier.
    pub algorithm: &'a [u8],
    /// The content of the signature's BIT STRING.
    pub signature: &'a [u8],
}

impl<'a> SignedParts<'a> {
    /// Splits DER into its parts. That the inner AlgorithmIdentifier is the same is a chain
    /// verifier's work.
    ///
    /// # Errors
    /// [`ParseError::Der`] with `subject` and the first field that is not as RFC 5280 has it.
    pub fn from_der(subject: &'static str, bytes: &'a [u8]) -> Result<Self, ParseError> {
        split_signed_parts(bytes).map_err(|field| ParseError::Der { subject, field })
    }
}

fn split_signed_parts(bytes: &[u8]) -> Result<SignedParts<'_>, &'static str> {
    let mut outer = open_sequence(bytes, "outer sequence")?;
    let signed = outer.tlv_bytes().map_err(|_| "signed part")?;
    let algorithm = read_tagged(&mut outer, Tag::Sequence, "signature algorithm")?.value();
    let signature = BitStringRef::decode(&mut outer).map_err(|_| "signature")?;
    let signature = signature.as_bytes().filter(|_| outer.is_finished()).ok_or("signature")?;
    Ok(SignedParts { signed, algorithm, signature })
}

fn read(bytes: &[u8]) -> Result<Certificate<'_>, &'static str> {
    let mut sgx_extension = None;
    let fields = CertificateFields::read(bytes, |id, value| {
        if id == SGX_EXTENSION {
            set_once(&mut sgx_extension, value, "SGX extension")?;
        }
        Ok(false)
    })?;
    check_serial_number(fields.serial)?;
    Ok(Certificate { public_key: public_key(fields.public_key_info)?, fields, sgx_extension })
}

impl<'a> CertificateFields<'a> {
    /// Reads a certificate and calls `visit` with identifier and content of each extension but KeyUsage and
    /// BasicConstraints; its answer says whether the extension is read and may therefore be critical.
    pub(crate) fn read(
        bytes: &'a [u8],
        mut visit: impl FnMut(&'a [u8], &'a [u8]) -> Result<bool, &'static str>,
    ) -> Result<Self, &'static str> {
        let mut tbs = signed_part(bytes)?;
        read_tagged(&mut tbs, context_tag(0), "version")?;
        let serial = read_tagged(&mut tbs, Tag::Integer, "serial number")?.value();
        read_tagged(&mut tbs, Tag::Sequence, "signature algorithm")?;
        let issuer = read_tagged(&mut tbs, Tag::Sequence, "issuer")?.value();
        let mut validity =
            open_nested(read_tagged(&mut tbs, Tag::Sequence, "validity")?, "validity")?;
        let not_before = read_time(&mut validity, "notBefore")?;
        let not_after = read_time(&mut validity, "notAfter")?;
        let subject = read_tagged(&mut tbs, Tag::Sequence, "subject")?.value();
        common_name(issuer)?;
        let public_key_info = read_tagged(&mut tbs, Tag::Sequence, "public key")?;
        let mut certificate = Self {
            serial,
            issuer,
            subject,
            common_name: common_name(subject)?,
            not_before,
            not_after,
            public_key_info,
            key_usage: None,
            is_ca: false,
            has_other_critical_extension: false,
            is_narrowed: false,
        };
        let mut constraints = None;
        let list = read_tagged(&mut tbs, context_tag(3), "extensions")?;
        visit_extensions(list, |id, critical, value| {
            if id == KEY_USAGE {
                let bits = BitStringRef::from_der(value).map_err(|_| "key usage")?;
                set_once(&mut certificate.key_usage, key_usage(bits)?, "key usage")?;
            } else if id == BASIC_CONSTRAINTS {
                set_once(&mut constraints, read_is_ca(value)?, "basic constraints")?;
            } else {
                let is_read = visit(id, value)?;
                certificate.has_other_critical_extension |= critical && !is_read;
                certificate.is_narrowed |= id == NAME_CONSTRAINTS || id == EXTENDED_KEY_USAGE;
            }
            Ok(())
        })?;
        certificate.is_ca = constraints.unwrap_or(false);
        Ok(certificate)
    }
}

/// Refuses a serial number that is negative or not in its shortest form (RFC 5280 section 4.1.2.2, X.690 section
/// 8.3.2). Zero is accepted: AMD's chip keys have it.
pub(crate) fn check_serial_number(value: &[u8]) -> Result<(), &'static str> {
    match value {
        [0, second, ..] if *second < 0x80 => Err("serial number"),
        [0..0x80, ..] => Ok(()),
        _ => Err("serial number"),
    }
}

/// The part of a certificate or revocation list that its signature covers.
pub(crate) fn signed_part(bytes: &[u8]) -> Result<SliceReader<'_>, &'static str> {
    let mut outer = open_sequence(bytes, "outer sequence")?;
    open_nested(read_tagged(&mut outer, Tag::Sequence, "signed part")?, "signed part")
}

/// Reads the next element, which must have `tag`; `field` names it in the error.
pub(crate) fn read_tagged<'a>(
    reader: &mut SliceReader<'a>,
    tag: Tag,
    field: &'static str,
) -> Result<AnyRef<'a>, &'static str> {
    let any = AnyRef::decode(reader).map_err(|_| field)?;
    if any.tag() == tag { Ok(any) } else { Err(field) }
}

/// A reader over the content of a constructed element.
pub(crate) fn open_nested<'a>(
    any: AnyRef<'a>,
    field: &'static str,
) -> Result<SliceReader<'a>, &'static str> {
    SliceReader::new(any.value()).map_err(|_| field)
}

/// A reader over the content of a whole SEQUENCE.
pub(crate) fn open_sequence<'a>(
    bytes: &'a [u8],
    field: &'static str,
) -> Result<SliceReader<'a>, &'static str> {
    open_nested(read_sequence(bytes, field)?, field)
}

/// Reads bytes that are one whole SEQUENCE.
pub(crate) fn read_sequence<'a>(
    bytes: &'a [u8],
    field: &'static str,
) -> Result<AnyRef<'a>, &'static str> {
    let any = AnyRef::from_der(bytes).map_err(|_| field)?;
    if any.tag() == Tag::Sequence { Ok(any) } else { Err(field) }
}

/// Reads a UTCTime or GeneralizedTime as Unix seconds.
pub(crate) fn read_time(
    reader: &mut SliceReader<'_>,
    field: &'static str,
) -> Result<u64, &'static str> {
    let any = AnyRef::decode(reader).map_err(|_| field)?;
    let since = match any.tag() {
        Tag::UtcTime => any.decode_as::<UtcTime>().map(|time| time.to_unix_duration()),
        Tag::GeneralizedTime => {
            any.decode_as::<GeneralizedTime>().map(|time| time.to_unix_duration())
        }
        _ => return Err(field),
    };
    since.map(|since| since.as_secs()).map_err(|_| field)
}

/// Calls `visit` with identifier, criticality and content of each extension inside `[n]`.
pub(crate) fn visit_extensions<'a>(
    explicit: AnyRef<'a>,
    mut visit: impl FnMut(&'a [u8], bool, &'a [u8]) -> Result<(), &'static str>,
) -> Result<(), &'static str> {
    let mut wrapper = open_nested(explicit, "extensions")?;
    let mut list =
        open_nested(read_tagged(&mut wrapper, Tag::Sequence, "extensions")?, "extensions")?;
    for _ in 0..EXTENSIONS_MAX {
        if list.is_finished() {
            return Ok(());
        }
        let mut extension =
            open_nested(read_tagged(&mut list, Tag::Sequence, "extension")?, "extension")?;
        let id =
            read_tagged(&mut extension, Tag::ObjectIdentifier, "extension identifier")?.value();
        // Other readers refuse a malformed identifier; here it would only pass as an unknown one.
        ObjectIdentifier::from_bytes(id).map_err(|_| "extension identifier")?;
        let mut next = AnyRef::decode(&mut extension).map_err(|_| "extension value")?;
        let mut critical = false;
        if next.tag() == Tag::Boolean {
            critical = next.decode_as().map_err(|_| "extension criticality")?;
            next = AnyRef::decode(&mut extension).map_err(|_| "extension value")?;
        }
        if next.tag() != Tag::OctetString || !extension.is_finished() {
            return Err("extension value");
        }
        visit(id, critical, next.value())?;
    }
    Err("extensions")
}

/// `[number]`, constructed.
pub(crate) fn context_tag(number: u32) -> Tag {
    Tag::ContextSpecific { constructed: true, number: der::TagNumber(number) }
}

/// Refuses a second value for a field that occurs once.
pub(crate) fn set_once<T>(
    slot: &mut Option<T>,
    value: T,
    field: &'static str,
) -> Result<(), &'static str> {
    if slot.replace(value).is_some() { Err(field) } else { Ok(()) }
}

fn public_key(spki: AnyRef<'_>) -> Result<&[u8; 65], &'static str> {
    ec_point(spki, PRIME256V1, "public key (wanted P-256)")
}

/// Reads a key on `wanted_curve` as an uncompressed point; `wanted` is the error for another key.
pub(crate) fn ec_point<'a, const N: usize>(
    spki: AnyRef<'a>,
    wanted_curve: &[u8],
    wanted: &'static str,
) -> Result<&'a [u8; N], &'static str> {
    const FIELD: &str = "public key";
    let mut spki = open_nested(spki, FIELD)?;
    let mut algorithm = open_nested(read_tagged(&mut spki, Tag::Sequence, FIELD)?, FIELD)?;
    let key_type = read_tagged(&mut algorithm, Tag::ObjectIdentifier, FIELD)?.value();
    let curve = read_tagged(&mut algorithm, Tag::ObjectIdentifier, FIELD)?.value();
    if key_type != EC_PUBLIC_KEY || curve != wanted_curve {
        return Err(wanted);
    }
    let point = BitStringRef::decode(&mut spki).map_err(|_| FIELD)?;
    let point: Option<&[u8; N]> = point.as_bytes().and_then(|bytes| bytes.try_into().ok());
    point.filter(|point| point[0] == 0x04).ok_or("public key (wanted an uncompressed point)")
}

pub(crate) fn common_name(name: &[u8]) -> Result<&str, &'static str> {
    const FIELD: &str = "common name";
    let mut sets = SliceReader::new(name).map_err(|_| FIELD)?;
    let mut found = "";
    while !sets.is_finished() {
        let mut set = open_nested(read_tagged(&mut sets, Tag::Set, FIELD)?, FIELD)?;
        while !set.is_finished() {
            let mut attribute = open_nested(read_tagged(&mut set, Tag::Sequence, FIELD)?, FIELD)?;
            let id = read_tagged(&mut attribute, Tag::ObjectIdentifier, FIELD)?.value();
            let value = AnyRef::decode(&mut attribute).map_err(|_| FIELD)?;
            // As with extensions, other readers refuse a malformed identifier.
            ObjectIdentifier::from_bytes(id).map_err(|_| FIELD)?;
            if !attribute.is_finished() {
                return Err(FIELD);
            }
            if id != COMMON_NAME {
                continue;
            }
            if !found.is_empty() || !matches!(value.tag(), Tag::Utf8String | Tag::PrintableString) {
                return Err(FIELD);
            }
            found = core::str::from_utf8(value.value()).map_err(|_| FIELD)?;
        }
    }
    Ok(found)
}

/// Reads KeyUsage; bits that are not used have to be zero (X.690 section 11.2.1).
pub(crate) fn key_usage(bits: BitStringRef<'_>) -> Result<KeyUsage, &'static str> {
    let unused = (1_u8 << bits.unused_bits()) - 1;
    if bits.raw_bytes().last().is_some_and(|last| last & unused != 0) {
        return Err("key usage");
    }
    let first = bits.raw_bytes().first().copied().unwrap_or(0);
    Ok(KeyUsage {
        digital_signature: first & 0x80 != 0,
        key_cert_sign: first & 0x04 != 0,
        crl_sign: first & 0x02 != 0,
    })
}

pub(crate) fn read_is_ca(value: &[u8]) -> Result<bool, &'static str> {
    const FIELD: &str = "basic constraints";
    let mut fields = open_sequence(value, FIELD)?;
    if fields.is_finished() {
        return Ok(false);
    }
    let is_ca = bool::decode(&mut fields).map_err(|_| FIELD)?;
    if !fields.is_finished() {
        u8::decode(&mut fields).map_err(|_| FIELD)?;
    }
    if fields.is_finished() { Ok(is_ca) } else { Err(FIELD) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_serial_number_has_one_spelling_and_is_not_negative() {
        for good in [&[0][..], &[1], &[0x7f, 0xff], &[0, 0x80], &[0, 0xff, 0]] {
            assert_eq!(check_serial_number(good), Ok(()));
        }
        for bad in [&[][..], &[0xff], &[0x80, 0], &[0xff, 0x80], &[0, 0x7f], &[0, 0]] {
            assert_eq!(check_serial_number(bad), Err("serial number"), "{bad:?}");
        }
    }

    #[test]
    fn a_key_usage_whose_unused_bits_are_set_is_refused() {
        let read =
            |unused, bits: &'static [u8]| key_usage(BitStringRef::new(unused, bits).unwrap());
        let both = read(1, &[0x06]).unwrap();
        assert!(both.key_cert_sign && both.crl_sign && !both.digital_signature);
        for unused in 2..=7 {
            assert_eq!(read(unused, &[0x06]), Err("key usage"), "{unused}");
        }
        assert!(read(6, &[0xc0]).unwrap().digital_signature);
    }
}
