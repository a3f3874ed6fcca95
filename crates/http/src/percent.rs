//! Percent encoding (RFC 3986 section 2.1), which services use for PEM in header fields and for
//! names in queries.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// All characters except the unreserved ones of RFC 3986 section 2.3.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Percent-encodes everything except letters, digits and `-._~`.
pub fn encode_percent(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

/// Decodes percent-encoded text; `None` if an escape is malformed or the result is not UTF-8. A
/// plus sign stays a plus sign, since base64 contains it.
pub fn decode_percent(text: &str) -> Option<String> {
    // The decoder leaves malformed escapes as they are.
    let is_escape = |rest: &str| {
        let digits = rest.as_bytes().get(..2);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    if !text.split('%').skip(1).all(is_escape) {
        return None;
    }
    percent_decode_str(text).decode_utf8().ok().map(String::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_comes_back_as_it_was() {
        let chain = "-----BEGIN CERTIFICATE-----\nMII+/=\n-----END CERTIFICATE-----\n";
        let encoded = encode_percent(chain);
        assert!(encoded.starts_with("-----BEGIN%20CERTIFICATE-----%0AMII%2B%2F%3D%0A"));
        assert_eq!(decode_percent(&encoded).as_deref(), Some(chain));
    }

    #[test]
    fn a_plus_sign_stays_one() {
        assert_eq!(decode_percent("a%20b+c%0A").as_deref(), Some("a b+c\n"));
    }

    #[test]
    fn malformed_escapes_are_refused() {
        for text in ["%", "%4", "%zz", "%+1", "%ff"] {
            assert_eq!(decode_percent(text), None, "{text}");
        }
    }
}
