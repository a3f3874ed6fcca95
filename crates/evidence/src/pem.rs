//! PEM chains of certificates (RFC 7468), strictly: certificates and nothing else.

use alloc::vec::Vec;

use base64::{Engine, engine::general_purpose::STANDARD};

use crate::parse_error::ParseError;

/// The largest number of certificates in one chain: a leaf, an intermediate CA and the root, and one to spare so
/// that a wrong shape is named by the verifier.
const CHAIN_CERTIFICATES_MAX: usize = 4;
/// The longest PEM text of one chain; three of Intel's certificates take 3.7 KB.
pub const CHAIN_LENGTH_MAX: usize = 16 * 1024;

const BEGIN: &[u8] = b"-----BEGIN CERTIFICATE-----";
const END: &[u8] = b"-----END CERTIFICATE-----";

/// The DER of each certificate, in the order of the text.
///
/// Between the certificates only white space is accepted, and zero bytes at the very end, which
/// Intel's quoting library leaves there.
///
/// # Errors
/// [`ParseError::TooLong`] over [`CHAIN_LENGTH_MAX`], [`ParseError::TooMany`] over
/// four certificates, [`ParseError::Text`] if the text is not PEM certificates.
pub fn decode_chain(subject: &'static str, text: &[u8]) -> Result<Vec<Vec<u8>>, ParseError> {
    decode_chain_with_limit(subject, text, CHAIN_CERTIFICATES_MAX)
}

/// As [`decode_chain`], for certificates that carry evidence: up to `length_max` bytes of text.
///
/// # Errors
/// As [`decode_chain`].
pub fn decode_long_chain(
    subject: &'static str,
    text: &[u8],
    length_max: usize,
) -> Result<Vec<Vec<u8>>, ParseError> {
    decode_with_limits(subject, text, CHAIN_CERTIFICATES_MAX, length_max)
}

/// As [`decode_chain`], with another limit on the certificates.
pub(crate) fn decode_chain_with_limit(
    subject: &'static str,
    text: &[u8],
    certificates_max: usize,
) -> Result<Vec<Vec<u8>>, ParseError> {
    decode_with_limits(subject, text, certificates_max, CHAIN_LENGTH_MAX)
}

fn decode_with_limits(
    subject: &'static str,
    text: &[u8],
    certificates_max: usize,
    length_max: usize,
) -> Result<Vec<Vec<u8>>, ParseError> {
    let malformed = ParseError::Text { subject, wanted: "PEM certificates" };
    if text.len() > length_max {
        return Err(ParseError::TooLong { subject, limit: length_max, got: text.len() });
    }
    let end = text.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let mut rest = text[..end].trim_ascii();
    let mut chain = Vec::with_capacity(certificates_max);
    while !rest.is_empty() {
        if chain.len() == certificates_max {
            return Err(ParseError::TooMany { subject, limit: certificates_max });
        }
        let body = rest.strip_prefix(BEGIN).ok_or_else(|| malformed.clone())?;
        let length = body.iter().position(|byte| *byte == b'-').ok_or_else(|| malformed.clone())?;
        let (body, after) = body.split_at(length);
        rest = after.strip_prefix(END).ok_or_else(|| malformed.clone())?.trim_ascii_start();
        let base64 = join_lines(body).ok_or_else(|| malformed.clone())?;
        chain.push(STANDARD.decode(&base64).map_err(|_| malformed.clone())?);
    }
    Ok(chain)
}

/// The lines between two boundaries, without their ends (RFC 7468 section 3). A blank line among
/// them is refused: others take what stands before it for headers.
fn join_lines(body: &[u8]) -> Option<Vec<u8>> {
    let mut base64 = Vec::with_capacity(body.len());
    let mut lines = body.split(|byte| *byte == b'\n');
    let content = |line: &[u8]| line.len() - usize::from(line.ends_with(b"\r"));
    lines.next().filter(|rest| content(rest) == 0)?;
    let mut lines = lines.peekable();
    // Copied line by line: copying byte by byte takes as long as the decoding.
    while let Some(line) = lines.next() {
        let length = content(line);
        match lines.peek() {
            None if line.is_empty() && !base64.is_empty() => return Some(base64),
            Some(_) if length > 0 => base64.extend_from_slice(&line[..length]),
            _ => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    const ONE: &[u8] = b"-----BEGIN CERTIFICATE-----\nAQID\n-----END CERTIFICATE-----\n";

    #[test]
    fn boundaries_have_lines_of_their_own_and_no_line_is_blank() {
        for body in
            ["AQID\n", "\nAQID", "\n\nAQID\n", "\nAQ\n\nID\n", " \nAQID\n", "\nAQID \n", "\n"]
        {
            let text = [BEGIN, body.as_bytes(), END].concat();
            assert!(decode_chain("chain", &text).is_err(), "{body:?}");
        }
        for body in ["\nAQID\n", "\r\nAQ\r\nID\r\n"] {
            let text = [BEGIN, body.as_bytes(), END].concat();
            assert_eq!(decode_chain("chain", &text).unwrap(), [[1, 2, 3]], "{body:?}");
        }
    }

    #[test]
    fn a_chain_is_read_in_order_and_zero_bytes_at_its_end_are_dropped() {
        let mut text = ONE.to_vec();
        text.extend_from_slice(
            b"-----BEGIN CERTIFICATE-----\r\nBA\r\nUG\r\n-----END CERTIFICATE-----",
        );
        text.extend_from_slice(&[0, 0]);
        assert_eq!(decode_chain("chain", &text), Ok(vec![vec![1, 2, 3], vec![4, 5, 6]]));
    }

    #[test]
    fn text_between_certificates_is_refused() {
        let mut text = ONE.to_vec();
        text.extend_from_slice(b"note");
        text.extend_from_slice(ONE);
        assert!(matches!(decode_chain("chain", &text), Err(ParseError::Text { .. })));
    }

    #[test]
    fn base64_that_is_not_canonical_is_refused() {
        let text = b"-----BEGIN CERTIFICATE-----\nAQJ=\n-----END CERTIFICATE-----\n";
        assert!(matches!(decode_chain("chain", text), Err(ParseError::Text { .. })));
    }

    #[test]
    fn five_certificates_are_too_many() {
        let text = ONE.repeat(5);
        assert!(matches!(decode_chain("chain", &text), Err(ParseError::TooMany { .. })));
    }
}
