//! The head of an answer as text, which the notary encodes and both sides parse.

use confide_disclosure::HttpVersion;
use http::Response;

use crate::limits::RESPONSE_HEAD_BYTES_MAX;

/// The reason for which bytes are not the head of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("head of the answer is not readable: wanted {wanted}")]
pub struct HeadError {
    /// The part that is missing or wrong.
    pub wanted: &'static str,
}

/// Encodes the head in the form of HTTP/1.1, for every version: a status line without a reason, the
/// fields in the order of their arrival, an empty line. `None` if it is too long.
pub(crate) fn encode_head<B>(response: &Response<B>, http: HttpVersion) -> Option<Vec<u8>> {
    let status = response.status().as_u16();
    let mut bytes = format!("{} {status}\r\n", http.as_str()).into_bytes();
    for (name, value) in response.headers() {
        bytes.extend_from_slice(name.as_str().as_bytes());
        bytes.extend_from_slice(b": ");
        bytes.extend_from_slice(value.as_bytes());
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"\r\n");
    (bytes.len() <= RESPONSE_HEAD_BYTES_MAX).then_some(bytes)
}

/// The head of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerHead {
    /// The version of HTTP that was used.
    pub http: HttpVersion,
    /// The status code, 100 to 999.
    pub status: u16,
    /// Names in lower case with their values, in the order of their arrival.
    pub fields: Vec<(String, Vec<u8>)>,
}

impl AnswerHead {
    /// Parses a head as the notary encodes it.
    ///
    /// # Errors
    /// [`HeadError`] if the bytes have any other form.
    pub fn parse(bytes: &[u8]) -> Result<Self, HeadError> {
        let wrong = |wanted| HeadError { wanted };
        let ended = bytes.strip_suffix(b"\r\n\r\n");
        let text = ended.ok_or(wrong("an empty line at its end"))?;
        let mut lines = CrLfLines(Some(text));
        let (http, status) = parse_status_line(lines.next().unwrap_or_default())
            .ok_or(wrong("HTTP/1.1 or HTTP/2 and a status of three digits"))?;
        let mut fields = Vec::new();
        for line in lines {
            let at = line.windows(2).position(|pair| pair == b": ");
            let (name, value) = line.split_at(at.ok_or(wrong("a colon and a space"))?);
            let value = &value[2..];
            let known = http::HeaderName::from_bytes(name)
                .ok()
                .filter(|known| known.as_str().as_bytes() == name)
                .filter(|_| http::HeaderValue::from_bytes(value).is_ok());
            let known =
                known.ok_or(wrong("a name in lower case and a value of RFC 9110 section 5.5"))?;
            fields.push((known.as_str().to_owned(), value.to_vec()));
        }
        Ok(Self { http, status, fields })
    }
}

fn parse_status_line(line: &[u8]) -> Option<(HttpVersion, u16)> {
    let (http, digits) = match line.strip_prefix(b"HTTP/1.1 ") {
        Some(digits) => (HttpVersion::V11, digits),
        None => (HttpVersion::V2, line.strip_prefix(b"HTTP/2 ")?),
    };
    let digits: [u8; 3] = digits.try_into().ok()?;
    let plain = digits[0] != b'0' && digits.iter().all(u8::is_ascii_digit);
    let value = digits.iter().fold(0, |value, digit| value * 10 + u16::from(digit - b'0'));
    plain.then_some((http, value))
}

/// The lines between CR LF pairs; a lone CR or LF is part of a line.
struct CrLfLines<'a>(Option<&'a [u8]>);

impl<'a> Iterator for CrLfLines<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.0.take()?;
        match rest.windows(2).position(|pair| pair == b"\r\n") {
            None => Some(rest),
            Some(at) => {
                self.0 = Some(&rest[at + 2..]);
                Some(&rest[..at])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_as_it_is_written() {
        let response = Response::builder()
            .status(404)
            .header("content-type", "text/plain")
            .header("x-raw", http::HeaderValue::from_bytes(b"a: \xff").unwrap())
            .header("x-empty", "")
            .body(())
            .unwrap();
        let bytes = encode_head(&response, HttpVersion::V2).unwrap();
        assert!(bytes.starts_with(b"HTTP/2 404\r\ncontent-type: text/plain\r\n"));
        let head = AnswerHead::parse(&bytes).unwrap();
        assert_eq!((head.http, head.status), (HttpVersion::V2, 404));
        assert_eq!(head.fields[1], ("x-raw".into(), b"a: \xff".to_vec()));
        assert_eq!(head.fields[2], ("x-empty".into(), Vec::new()));
        let bare = AnswerHead::parse(b"HTTP/1.1 200\r\n\r\n").unwrap();
        assert!(bare.fields.is_empty());
    }

    #[test]
    fn other_bytes_are_no_head() {
        for bytes in [
            &b""[..],
            b"HTTP/1.1 200\r\n",
            b"HTTP/1.0 200\r\n\r\n",
            b"HTTP/1.1 20\r\n\r\n",
            b"HTTP/1.1 099\r\n\r\n",
            b"HTTP/1.1 200 OK\r\n\r\n",
            b"HTTP/1.1 200\r\nName: v\r\n\r\n",
            b"HTTP/1.1 200\r\nname:v\r\n\r\n",
            b"HTTP/1.1 200\r\nname: a\nb\r\n\r\n",
            b"HTTP/1.1 200\r\nn\xff: a\r\n\r\n",
            b"HTTP/1.1 200\r\n: a\r\n\r\n",
            b"HTTP/1.1 200\r\nname: v\r\n\r\n\r\n",
            b"HTTP/1.1 200\r\nname: v\r\n\r\nbody",
        ] {
            assert!(AnswerHead::parse(bytes).is_err(), "{}", String::from_utf8_lossy(bytes));
        }
    }
}
