//! The page for visitors: one file, which a tunnel's listener serves as it is.
//!
//! The file was read at the start, so that no request names one. A page that comes from the host that it
//! judges proves nothing; docs/page.md says what a visitor does instead.

use std::{fmt::Write as _, io, time::Duration};

use bytes::{Bytes, BytesMut};
use confide_http::{
    RewoundStream,
    http1::{HeadLimits, RequestHead, RequestHeadParser},
};
use http::{Method, header};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The path of the page.
pub const PAGE_PATH: &str = "/.well-known/confide/page";
/// The path of the page's digest, in the form of `sha256sum`.
const DIGEST_PATH: &str = "/.well-known/confide/page.sha256";
/// The name of the released file.
const FILE_NAME: &str = "confide-page.html";
/// The largest number of bytes of the file.
pub const PAGE_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// The head of a request: as much as a tunnel reads, and a cookie or two of other services on the host.
const HEAD: HeadLimits = HeadLimits { bytes: 8 * 1024, fields: 48 };
/// The time for a client to take the page, at 5 KB a second.
const SEND_DEADLINE: Duration = Duration::from_secs(300);

/// The beginning of the element in which the file states its Content-Security-Policy.
const POLICY_ELEMENT: &str = "<meta http-equiv=\"Content-Security-Policy\" content=\"";
/// The number of bytes at the beginning of the file in which that element has to be.
const POLICY_WITHIN: usize = 4096;

/// Fields of every answer. Nothing about the page is for others: no frame, no window, no script of another origin.
const SECURITY_FIELDS: &str = "X-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\n\
    Referrer-Policy: no-referrer\r\nCross-Origin-Opener-Policy: same-origin\r\n\
    Cross-Origin-Resource-Policy: same-origin\r\n\
    Permissions-Policy: camera=(), geolocation=(), microphone=()\r\nCache-Control: no-cache\r\n\
    Connection: close\r\n";
/// The policy of answers that are not the page.
const NO_CONTENT_POLICY: &str = "default-src 'none'; frame-ancestors 'none'";

/// A page that can be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VisitorPage {
    file: Bytes,
    sha256: [u8; 32],
    content_policy: String,
    /// Where `/` leads: the page, with the only target of the tunnel in its fragment.
    entry: String,
}

/// The reason why a file is not served as a page.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PageError {
    /// It states no strict policy for its content, so that it is not the released file.
    #[error(
        "wanted the released {FILE_NAME}, which states a Content-Security-Policy with default-src \
         'none' in its first {POLICY_WITHIN} bytes, got a file without one"
    )]
    ContentPolicy,
}

impl VisitorPage {
    /// The page in `file`, next to a tunnel to `targets`.
    ///
    /// # Errors
    /// [`PageError`] if it is not a page of this project's.
    pub fn new<'a>(
        file: Vec<u8>,
        targets: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, PageError> {
        let content_policy = read_content_policy(&file).ok_or(PageError::ContentPolicy)?;
        let mut targets = targets.into_iter();
        let entry = match (targets.next(), targets.next()) {
            (Some(only), None) => format!("{PAGE_PATH}#server=https://{only}"),
            _ => PAGE_PATH.to_owned(),
        };
        let sha256 = Sha256::digest(&file).into();
        Ok(Self { file: file.into(), sha256, content_policy, entry })
    }

    /// The SHA-256 of the file in hexadecimal.
    pub fn digest(&self) -> String {
        hex::encode(self.sha256)
    }

    /// Reads the head of a request, and answers it if it is one for the page. Otherwise returns the
    /// stream as it was, for the tunnel to answer.
    ///
    /// # Errors
    /// An [`io::Error`] if the head or the answer takes too long, or the connection fails.
    pub async fn serve<S>(
        &self,
        mut stream: S,
        head_deadline: Duration,
    ) -> io::Result<Option<impl AsyncRead + AsyncWrite + Send + Unpin + use<S>>>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin,
    {
        let (head, received) =
            tokio::time::timeout(head_deadline, read_head(&mut stream)).await??;
        let Some((answer, body)) = head.and_then(|head| self.answer(&head)) else {
            return Ok(Some(RewoundStream::new(stream, received)));
        };
        let sending = async {
            stream.write_all(answer.as_bytes()).await?;
            stream.write_all(&body).await?;
            stream.shutdown().await
        };
        tokio::time::timeout(SEND_DEADLINE, sending).await??;
        Ok(None)
    }

    /// The head and the body of the answer, if the request is one for the page.
    fn answer(&self, request: &RequestHead) -> Option<(String, Bytes)> {
        if request.fields.contains_key(header::UPGRADE) || request.target.query().is_some() {
            return None;
        }
        let is_method = [Method::GET, Method::HEAD].contains(&request.method);
        let path = request.target.path();
        let (status, fields, body) = match path {
            "/" | PAGE_PATH | DIGEST_PATH if !is_method => {
                ("405 Method Not Allowed", "Allow: GET, HEAD\r\n".to_owned(), Bytes::new())
            }
            "/" => ("302 Found", format!("Location: {}\r\n", self.entry), Bytes::new()),
            PAGE_PATH => self.answer_with_file(request),
            DIGEST_PATH => {
                let text = format!("{}  {FILE_NAME}\n", self.digest());
                ("200 OK", "Content-Type: text/plain\r\n".to_owned(), text.into())
            }
            _ => return None,
        };
        let content_policy = match path {
            PAGE_PATH => &self.content_policy,
            _ => NO_CONTENT_POLICY,
        };
        let mut head = format!("HTTP/1.1 {status}\r\n{fields}{SECURITY_FIELDS}");
        let _ = write!(head, "Content-Security-Policy: {content_policy}\r\n");
        if status != NOT_MODIFIED {
            let _ = write!(head, "Content-Length: {}\r\n", body.len());
        }
        head.push_str("\r\n");
        let body = if request.method == Method::HEAD { Bytes::new() } else { body };
        Some((head, body))
    }

    fn answer_with_file(&self, request: &RequestHead) -> (&'static str, String, Bytes) {
        let tag = format!("\"{}\"", self.digest());
        let known = request.fields.get(header::IF_NONE_MATCH);
        let mut fields = format!("ETag: {tag}\r\n");
        if known.is_some_and(|known| known.as_bytes() == tag.as_bytes()) {
            return (NOT_MODIFIED, fields, Bytes::new());
        }
        let digest =
            base64::Engine::encode(&base64::engine::general_purpose::STANDARD, self.sha256);
        let _ = write!(
            fields,
            "Content-Type: text/html; charset=utf-8\r\nRepr-Digest: sha-256=:{digest}:\r\n"
        );
        ("200 OK", fields, self.file.clone())
    }
}

const NOT_MODIFIED: &str = "304 Not Modified";

/// The policy that the file states, with what only a header field can state.
fn read_content_policy(file: &[u8]) -> Option<String> {
    let beginning = &file[..file.len().min(POLICY_WITHIN)];
    let element = POLICY_ELEMENT.as_bytes();
    let start = beginning.windows(element.len()).position(|part| part == element)?;
    let rest = &beginning[start + element.len()..];
    let stated = &rest[..rest.iter().position(|byte| *byte == b'"')?];
    let stated = std::str::from_utf8(stated).ok()?;
    let is_text = stated.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    (is_text && stated.starts_with("default-src 'none';"))
        .then(|| format!("{stated}; frame-ancestors 'none'"))
}

/// Reads until a head is complete; `None` if it is not one of HTTP/1.1. Returns all bytes that came.
async fn read_head<S: AsyncRead + Unpin>(
    stream: &mut S,
) -> io::Result<(Option<RequestHead>, BytesMut)> {
    let mut received = BytesMut::with_capacity(1024);
    loop {
        let is_ended = stream.read_buf(&mut received).await? == 0;
        // A tunnel reads them again, so the bytes stay.
        match RequestHeadParser::new(HEAD).parse(&mut received.clone()) {
            Ok(None) if !is_ended => {}
            Ok(head) => return Ok((head, received)),
            Err(_) => return Ok((None, received)),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;

    const FILE: &str = "<!doctype html><meta http-equiv=\"Content-Security-Policy\" \
        content=\"default-src 'none'; script-src 'sha256-x'\"><p>page";

    fn page() -> VisitorPage {
        VisitorPage::new(FILE.into(), ["127.0.0.1:8443"]).unwrap()
    }

    /// The answer to a request, or the bytes that were left to the tunnel.
    async fn exchange(page: &VisitorPage, request: &str) -> Result<String, String> {
        let (mut client, server) = duplex(64 * 1024);
        client.write_all(request.as_bytes()).await.unwrap();
        client.shutdown().await.unwrap();
        match page.serve(server, Duration::from_secs(10)).await.unwrap() {
            None => {
                let mut answer = String::new();
                client.read_to_string(&mut answer).await.unwrap();
                Ok(answer)
            }
            Some(mut rest) => {
                let mut left = String::new();
                rest.read_to_string(&mut left).await.unwrap();
                Err(left)
            }
        }
    }

    fn request(line: &str, fields: &str) -> String {
        format!("{line} HTTP/1.1\r\nHost: h\r\n{fields}\r\n")
    }

    #[tokio::test]
    async fn the_page_is_the_file_with_its_own_strict_policy() {
        let answer = exchange(&page(), &request(&format!("GET {PAGE_PATH}"), "")).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert_eq!(body, FILE);
        for line in [
            "HTTP/1.1 200 OK",
            "Content-Type: text/html; charset=utf-8",
            "Content-Security-Policy: default-src 'none'; script-src 'sha256-x'; frame-ancestors 'none'",
            "X-Content-Type-Options: nosniff",
            "X-Frame-Options: DENY",
            "Referrer-Policy: no-referrer",
            "Cross-Origin-Opener-Policy: same-origin",
            "Cache-Control: no-cache",
            "Connection: close",
            &format!("ETag: \"{}\"", page().digest()),
            &format!("Content-Length: {}", FILE.len()),
        ] {
            assert!(head.lines().any(|got| got == line), "{line}\n{head}");
        }
        assert!(head.contains("Repr-Digest: sha-256=:"), "{head}");
    }

    #[tokio::test]
    async fn a_head_request_gets_the_length_and_no_body() {
        let answer = exchange(&page(), &request(&format!("HEAD {PAGE_PATH}"), "")).await.unwrap();
        assert!(answer.contains(&format!("Content-Length: {}\r\n", FILE.len())), "{answer}");
        assert!(answer.ends_with("\r\n\r\n"), "{answer}");
    }

    #[tokio::test]
    async fn a_known_page_is_not_sent_again() {
        let known = format!("If-None-Match: \"{}\"\r\n", page().digest());
        let answer =
            exchange(&page(), &request(&format!("GET {PAGE_PATH}"), &known)).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 304 "), "{answer}");
        assert!(answer.ends_with("\r\n\r\n") && !answer.contains("Content-Length"), "{answer}");
    }

    #[tokio::test]
    async fn the_root_leads_to_the_page_and_names_the_only_target() {
        let answer = exchange(&page(), &request("GET /", "")).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 302 "), "{answer}");
        let wanted = format!("Location: {PAGE_PATH}#server=https://127.0.0.1:8443\r\n");
        assert!(answer.contains(&wanted), "{answer}");
        let two = VisitorPage::new(FILE.into(), ["a:1", "b:1"]).unwrap();
        let answer = exchange(&two, &request("GET /", "")).await.unwrap();
        assert!(answer.contains(&format!("Location: {PAGE_PATH}\r\n")), "{answer}");
    }

    #[tokio::test]
    async fn the_digest_is_that_of_sha256sum() {
        let answer = exchange(&page(), &request(&format!("GET {DIGEST_PATH}"), "")).await.unwrap();
        let wanted = format!("\r\n\r\n{}  confide-page.html\n", hex::encode(Sha256::digest(FILE)));
        assert!(answer.ends_with(&wanted), "{answer}");
    }

    #[tokio::test]
    async fn other_methods_are_refused() {
        for method in ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"] {
            let line = format!("{method} {PAGE_PATH}");
            let answer = exchange(&page(), &request(&line, "")).await.unwrap();
            assert!(answer.starts_with("HTTP/1.1 405 "), "{answer}");
            assert!(answer.contains("Allow: GET, HEAD\r\n"), "{answer}");
            assert!(answer.contains("Content-Length: 0\r\n"), "{answer}");
        }
    }

    #[tokio::test]
    async fn no_path_leads_to_another_file() {
        for path in [
            "/.well-known/confide/page/",
            "/.well-known/confide/page/../page",
            "/.well-known/confide/../../etc/passwd",
            "/.well-known/confide/%2e%2e/page",
            "/.well-known/confide/page%00",
            "/.well-known/confide/page?file=/etc/passwd",
            "//etc/passwd",
            "/etc/passwd",
            "/tunnel?target=127.0.0.1:8443",
        ] {
            let request = request(&format!("GET {path}"), "");
            assert_eq!(exchange(&page(), &request).await, Err(request));
        }
    }

    #[tokio::test]
    async fn what_is_no_request_for_the_page_is_left_to_the_tunnel_whole() {
        let upgrade = request(&format!("GET {PAGE_PATH}"), "Upgrade: websocket\r\n");
        let long = request(&format!("GET {PAGE_PATH}"), &format!("X: {}\r\n", "a".repeat(9000)));
        for bytes in [upgrade, long, "nonsense\r\n\r\n".into(), "GET / HT".into(), String::new()] {
            assert_eq!(exchange(&page(), &bytes).await, Err(bytes));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_client_is_not_waited_for() {
        let (client, server) = duplex(1024);
        let served = page().serve(server, Duration::from_secs(10)).await;
        assert!(matches!(served, Err(error) if error.kind() == io::ErrorKind::TimedOut));
        drop(client);
    }

    #[test]
    fn a_file_without_a_strict_policy_is_refused() {
        let strict = "default-src 'none'; ";
        for file in [
            String::new(),
            "<p>page".into(),
            FILE.replace("default-src 'none'; ", ""),
            FILE.replace("'sha256-x'", "'sha256-x'\r\nSet-Cookie: a=b"),
            FILE.replace("\"><p>", ""),
            format!("{}{FILE}", " ".repeat(POLICY_WITHIN)),
            FILE.replace(strict, "default-src *; "),
        ] {
            let refused = VisitorPage::new(file.clone().into(), ["h:1"]);
            assert!(matches!(refused, Err(PageError::ContentPolicy)), "{file}");
        }
    }
}
