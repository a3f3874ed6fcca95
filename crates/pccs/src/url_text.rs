//! Percent encoding (RFC 3986 section 2.1), in which the services put PEM into header fields.

use std::fmt::Write;

/// Everything but unreserved characters as `%XX`, as Intel's services do.
pub(crate) fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len() + text.len() / 4);
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

/// The text that was encoded; `None` where an escape or the text is malformed. `+` stays `+`.
pub(crate) fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        if *first == b'%' {
            let digits = std::str::from_utf8(tail.get(..2)?).ok()?;
            let hexadecimal = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
            bytes.push(u8::from_str_radix(digits, 16).ok().filter(|_| hexadecimal)?);
            rest = &tail[2..];
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_comes_back_as_it_was() {
        let chain = "-----BEGIN CERTIFICATE-----\nMII+/=\n-----END CERTIFICATE-----\n";
        let encoded = encode(chain);
        assert!(encoded.starts_with("-----BEGIN%20CERTIFICATE-----%0AMII%2B%2F%3D%0A"));
        assert_eq!(decode(&encoded).as_deref(), Some(chain));
    }

    #[test]
    fn malformed_escapes_are_refused() {
        for text in ["%", "%4", "%zz", "%+1", "%ff"] {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
