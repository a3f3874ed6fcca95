//! DER, written by hand where an encoder would choose other bytes than AMD did.

use der::{Encode, asn1::ObjectIdentifier};

pub(crate) const BOOLEAN_TRUE: [u8; 3] = [0x01, 0x01, 0xff];
const BIT_STRING: u8 = 0x03;
pub(crate) const OCTET_STRING: u8 = 0x04;
const NULL: [u8; 2] = [0x05, 0x00];
pub(crate) const UTF8_STRING: u8 = 0x0c;
pub(crate) const PRINTABLE_STRING: u8 = 0x13;
pub(crate) const IA5_STRING: u8 = 0x16;
pub(crate) const UTC_TIME: u8 = 0x17;
pub(crate) const SET: u8 = 0x31;

/// A SEQUENCE of elements that are already encoded.
pub(crate) fn sequence(parts: &[&[u8]]) -> Vec<u8> {
    encode_element(0x30, parts)
}

/// A constructed element with the context tag `[number]`.
pub(crate) fn context_tagged(number: u8, parts: &[&[u8]]) -> Vec<u8> {
    encode_element(0xa0 | number, parts)
}

/// A BIT STRING of whole bytes.
pub(crate) fn bit_string(bytes: &[u8]) -> Vec<u8> {
    encode_element(BIT_STRING, &[&[0], bytes])
}

/// An INTEGER that is not negative, from big-endian bytes.
pub(crate) fn integer(bytes: &[u8]) -> Vec<u8> {
    let start = bytes.iter().position(|&byte| byte != 0).unwrap_or(bytes.len());
    let value = &bytes[start..];
    // One leading zero where the number would read as negative, or is zero.
    let pad = value.first().is_none_or(|&byte| byte >= 0x80);
    encode_element(0x02, &[if pad { &[0] } else { &[] }, value])
}

/// An AlgorithmIdentifier with NULL parameters.
pub(crate) fn algorithm_identifier(oid: &str) -> Vec<u8> {
    sequence(&[&object_identifier(oid), &NULL])
}

/// An OBJECT IDENTIFIER. The identifiers here are constants of this crate.
pub(crate) fn object_identifier(oid: &str) -> Vec<u8> {
    ObjectIdentifier::new_unwrap(oid).to_der().expect("an identifier has an encoding")
}

/// An element: tag, length and content.
pub(crate) fn encode_element(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let mut out = vec![tag];
    match length {
        0..0x80 => out.push(length as u8),
        0x80..0x100 => out.extend([0x81, length as u8]),
        // Certificates and revocation lists of this simulation stay far below 64 KiB.
        _ => out.extend([0x82, (length >> 8) as u8, length as u8]),
    }
    parts.iter().for_each(|part| out.extend_from_slice(part));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_short_and_never_negative() {
        assert_eq!(integer(&[0]), [2, 1, 0]);
        assert_eq!(integer(&[0, 0x44]), [2, 1, 0x44]);
        assert_eq!(integer(&[0xd9]), [2, 2, 0, 0xd9]);
    }

    #[test]
    fn lengths_take_as_many_bytes_as_they_need() {
        assert_eq!(encode_element(4, &[&[0; 127]])[..2], [4, 127]);
        assert_eq!(encode_element(4, &[&[0; 128]])[..3], [4, 0x81, 128]);
        assert_eq!(encode_element(4, &[&[0; 300]])[..4], [4, 0x82, 1, 44]);
    }
}
