//! Decodes and encodes keys in DER and PEM.

use base64::{Engine, engine::general_purpose::STANDARD};
use der::{
    Decode, Reader, SliceReader,
    asn1::{AnyRef, BitStringRef, ObjectIdentifier},
};
use x509_cert::Certificate;

use super::kind::{KEY_FILE_LENGTH_MAX, KeyKind};
use crate::{ecdsa::read_two_integers, error::SigmaError, rsa::EXPONENT};

const RSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");
const RSA_PSS: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.10");
const EC: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
const P256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");
const P384: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.132.0.34");

pub(super) fn from_certificate(bytes: &[u8]) -> Result<KeyKind, SigmaError> {
    let malformed = || SigmaError::Malformed { what: "certificate" };
    let bytes = decode_der_or_pem(bytes, "certificate", "CERTIFICATE")?;
    let certificate = Certificate::from_der(&bytes).map_err(|_| malformed())?;
    let spki = certificate.tbs_certificate().subject_public_key_info();
    let spki = der::Encode::to_der(spki).map_err(|_| malformed())?;
    from_spki(&spki)
}

pub(super) fn from_spki(bytes: &[u8]) -> Result<KeyKind, SigmaError> {
    let bytes = decode_der_or_pem(bytes, "public key", "PUBLIC KEY")?;
    let (algorithm, parameters, key) =
        read_spki(&bytes).map_err(|_| SigmaError::Malformed { what: "public key" })?;
    match (algorithm, parameters) {
        (RSA, None) => parse_rsa_key(key),
        (RSA, Some(parameters)) if parameters.is_null() => parse_rsa_key(key),
        (RSA_PSS, None) => parse_rsa_key(key),
        (RSA_PSS, Some(_)) => {
            Err(SigmaError::not_supported("RSA-PSS key", "a key with parameters"))
        }
        (EC, Some(parameters)) => match parameters.decode_as::<ObjectIdentifier>() {
            Ok(P256) => KeyKind::from_p256_point(key),
            Ok(P384) => KeyKind::from_p384_point(key),
            Ok(other) => Err(SigmaError::not_supported("curve", &other.to_string())),
            Err(_) => Err(SigmaError::not_supported("curve", "explicit parameters")),
        },
        (other, _) => Err(SigmaError::not_supported("key algorithm", &other.to_string())),
    }
}

type SpkiParts<'a> = (ObjectIdentifier, Option<AnyRef<'a>>, &'a [u8]);

fn read_spki(bytes: &[u8]) -> Result<SpkiParts<'_>, der::Error> {
    let mut reader = SliceReader::new(bytes)?;
    let parts = reader.sequence(|reader| {
        let (algorithm, parameters) = reader.sequence(|reader| {
            Ok::<_, der::Error>((ObjectIdentifier::decode(reader)?, Option::decode(reader)?))
        })?;
        let key = BitStringRef::decode(reader)?;
        let key = key.as_bytes().ok_or_else(|| der::Tag::BitString.value_error())?;
        Ok::<_, der::Error>((algorithm, parameters, key))
    })?;
    reader.finish()?;
    Ok(parts)
}

fn parse_rsa_key(key: &[u8]) -> Result<KeyKind, SigmaError> {
    let numbers = read_two_integers(key);
    let (modulus, exponent) = numbers.ok_or(SigmaError::Malformed { what: "RSA key" })?;
    KeyKind::from_rsa_numbers(modulus, exponent)
}

/// Decodes a file that is DER, or PEM with this label, to DER.
fn decode_der_or_pem(bytes: &[u8], what: &'static str, label: &str) -> Result<Vec<u8>, SigmaError> {
    if bytes.len() > KEY_FILE_LENGTH_MAX {
        let max = KEY_FILE_LENGTH_MAX;
        return Err(SigmaError::TooLong { what, max, got: bytes.len() });
    }
    if bytes.first() == Some(&0x30) {
        return Ok(bytes.to_vec());
    }
    let read = || {
        let text = std::str::from_utf8(bytes).ok()?;
        let (_, rest) = text.split_once(&format!("-----BEGIN {label}-----"))?;
        let (body, _) = rest.split_once(&format!("-----END {label}-----"))?;
        let body: String = body.split_ascii_whitespace().collect();
        STANDARD.decode(body).ok()
    };
    read().ok_or(SigmaError::Malformed { what })
}

/// Encodes the DER `SubjectPublicKeyInfo` of a key, whose hash is the key's id.
pub(super) fn encode_spki(kind: &KeyKind) -> Vec<u8> {
    const RSA_ALGORITHM: [u8; 15] =
        [0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00];
    const P256_ALGORITHM: [u8; 21] = [
        0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86,
        0x48, 0xce, 0x3d, 0x03, 0x01, 0x07,
    ];
    const P384_ALGORITHM: [u8; 18] = [
        0x30, 0x10, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x05, 0x2b, 0x81,
        0x04, 0x00, 0x22,
    ];
    let (algorithm, key): (&[u8], Vec<u8>) = match kind {
        KeyKind::Rsa(key) => {
            let modulus = encode_der_integer(&key.modulus());
            let numbers = [modulus, encode_der_integer(&EXPONENT.to_be_bytes())].concat();
            (&RSA_ALGORITHM, encode_der_element(0x30, &numbers))
        }
        KeyKind::P256(_) => (&P256_ALGORITHM, kind.encode_point()),
        KeyKind::P384(_) => (&P384_ALGORITHM, kind.encode_point()),
    };
    let bits = encode_der_element(0x03, &[&[0], key.as_slice()].concat());
    encode_der_element(0x30, &[algorithm, &bits].concat())
}

/// Encodes a non-negative DER INTEGER.
fn encode_der_integer(bytes: &[u8]) -> Vec<u8> {
    let start = bytes.iter().position(|byte| *byte != 0).unwrap_or(bytes.len());
    let digits = &bytes[start..];
    match digits.first() {
        Some(first) if *first < 0x80 => encode_der_element(0x02, digits),
        _ => encode_der_element(0x02, &[&[0], digits].concat()),
    }
}

fn encode_der_element(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    let length = content.len().to_be_bytes();
    let start = length.iter().position(|byte| *byte != 0).unwrap_or(length.len() - 1);
    if content.len() >= 0x80 {
        out.push(0x80 | (length.len() - start) as u8);
    }
    out.extend_from_slice(&length[start..]);
    out.extend_from_slice(content);
    out
}
