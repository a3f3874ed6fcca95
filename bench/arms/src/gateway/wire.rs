//! One small request on an open stream: written and read as bytes, so that the client is cheap.

use crate::stream::Stream;
use confide_arm_line::Outcome;
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// The most bytes of an answer, head and body together.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// The bytes of the request that a whole run repeats.
pub(crate) fn encode_request(path: &str, host: &str, kept: bool) -> Outcome<Vec<u8>> {
    if !path.starts_with('/') || path.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
        return Err(
            format!("path: wanted one that starts with / and has no spaces, got {path}").into()
        );
    }
    let connection = if kept { "keep-alive" } else { "close" };
    let text = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: {connection}\r\n\r\n");
    Ok(text.into_bytes())
}

/// Sends a request and reads one answer of status 200, whose body has a length; gives its SHA-256.
pub(crate) async fn exchange(
    stream: &mut Stream,
    request: &[u8],
    buffer: &mut Vec<u8>,
) -> Outcome<[u8; 32]> {
    let broke = |error: std::io::Error| format!("the connection broke: {error}");
    stream.write_all(request).await.map_err(broke)?;
    stream.flush().await.map_err(broke)?;
    buffer.clear();
    loop {
        if let Some(body) = complete_body(buffer)? {
            return Ok(Sha256::digest(body).into());
        }
        if buffer.len() > ANSWER_BYTES_MAX {
            return Err(format!("wanted an answer of at most {ANSWER_BYTES_MAX} bytes").into());
        }
        if stream.read_buf(buffer).await.map_err(broke)? == 0 {
            return Err(format!("the answer ended early, after {} bytes", buffer.len()).into());
        }
    }
}

/// The body of an answer, or `None` while bytes are missing.
fn complete_body(answer: &[u8]) -> Outcome<Option<&[u8]>> {
    let Some(end) = answer.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
    let head = std::str::from_utf8(&answer[..end]).map_err(|_| "the head is not text")?;
    let mut lines = head.split("\r\n");
    let status = lines.next().unwrap_or_default();
    if status.split(' ').nth(1) != Some("200") {
        return Err(format!("wanted status 200, got {status}").into());
    }
    let length = lines
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, value)| value.trim().parse::<usize>().ok())
        .ok_or("wanted an answer with a content-length")?;
    let body = &answer[end + 4..];
    match body.len() {
        len if len > length => Err(format!("wanted {length} bytes of body, got {len}").into()),
        len => Ok((len == length).then_some(body)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_whole_at_its_last_byte_and_not_before() {
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        for end in 0..answer.len() {
            assert_eq!(complete_body(&answer[..end]).unwrap(), None, "{end} bytes");
        }
        assert_eq!(complete_body(answer).unwrap(), Some(&b"ok"[..]));
    }

    #[test]
    fn an_answer_of_another_shape_is_an_error() {
        for answer in [
            "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nok",
            "\r\n\r\n",
        ] {
            assert!(complete_body(answer.as_bytes()).is_err(), "{answer}");
        }
    }

    #[test]
    fn a_path_cannot_end_the_request() {
        assert!(encode_request("/health", "h", false).is_ok());
        for path in ["health", "/a b", "/a\r\nx: y", ""] {
            assert!(encode_request(path, "h", true).is_err(), "{path}");
        }
    }
}
