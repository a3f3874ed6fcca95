//! HTTP answers, with the statuses, header fields and bodies that the vendors send.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Response, StatusCode,
    header::{ALLOW, CONTENT_TYPE, ETAG, RETRY_AFTER, WARNING},
};
use http_body::{Body, Frame, SizeHint};
use sha2::{Digest, Sha256};

use crate::{
    document::Document,
    document_store::Freshness,
    kind::DocumentKind,
    request::{CrlEncoding, DocumentRequestError},
};

/// An answer before it is turned into an HTTP response.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn new(
        status: StatusCode,
        media_type: &'static str,
        body: impl Into<Bytes>,
    ) -> Self {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
        Self { status, headers, body: body.into() }
    }

    pub(crate) fn text(status: StatusCode, text: impl Into<String>) -> Self {
        Self::new(status, "text/plain; charset=utf-8", text.into())
    }

    pub(crate) fn with_retry_after(mut self, seconds: u64) -> Self {
        self.headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        self
    }

    pub(crate) fn with_allow(mut self, methods: &'static str) -> Self {
        self.headers.insert(ALLOW, HeaderValue::from_static(methods));
        self
    }

    /// A document in the requested encoding, or status 304 if the client already has it.
    pub(crate) fn from_document(
        document: &Document,
        encoding: Option<CrlEncoding>,
        freshness: Freshness,
        if_none_match: Option<&HeaderValue>,
    ) -> Self {
        let mut answer = Self::new(
            StatusCode::OK,
            media_type(document.kind, encoding),
            encode_body(document, encoding),
        );
        for (name, value) in &document.headers {
            // Fields from a database or a vendor may have any content; invalid ones are left out.
            if let (Ok(name), Ok(value)) =
                (name.parse::<HeaderName>(), HeaderValue::from_str(value))
            {
                answer.headers.insert(name, value);
            }
        }
        // RFC 7234 section 5.5: the warnings of a cache that serves a response that may be stale.
        let warning = match freshness {
            Freshness::Fresh => None,
            Freshness::Aged => Some("110 confide \"Response is Stale\""),
            Freshness::Overdue => Some("111 confide \"Revalidation Failed\""),
        };
        if let Some(warning) = warning {
            answer.headers.insert(WARNING, HeaderValue::from_static(warning));
        }
        let tag = answer.entity_tag(document);
        if if_none_match.is_some_and(|held| matches_tag(held, &tag)) {
            answer.status = StatusCode::NOT_MODIFIED;
            answer.body = Bytes::new();
            answer.headers.remove(CONTENT_TYPE);
        }
        if let Ok(tag) = HeaderValue::from_str(&tag) {
            answer.headers.insert(ETAG, tag);
        }
        answer
    }

    /// The HTTP response; if `truncated`, its body breaks off in the middle.
    pub(crate) fn into_response(self, truncated: bool) -> Response<AnswerBody> {
        let announced = self.body.len() as u64;
        let kept = if truncated { self.body.slice(..self.body.len() / 2) } else { self.body };
        let mut response = Response::new(AnswerBody { left: Some(kept), announced, truncated });
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
        response
    }

    /// The entity tag: a hash of the body and of the document's header fields.
    fn entity_tag(&self, document: &Document) -> String {
        let mut hash = Sha256::new();
        for (name, value) in &document.headers {
            hash.update((name.len() as u64).to_be_bytes());
            hash.update(name);
            hash.update((value.len() as u64).to_be_bytes());
            hash.update(value);
        }
        hash.update(&self.body);
        format!("\"{}\"", hex::encode(&hash.finalize()[..16]))
    }
}

impl From<DocumentRequestError> for Answer {
    fn from(refusal: DocumentRequestError) -> Self {
        let status = match refusal {
            DocumentRequestError::NotFound => StatusCode::NOT_FOUND,
            DocumentRequestError::Parameter { .. } => StatusCode::BAD_REQUEST,
        };
        Self::text(status, refusal.to_string())
    }
}

fn encode_body(document: &Document, encoding: Option<CrlEncoding>) -> Bytes {
    match encoding {
        Some(CrlEncoding::Hex) => hex::encode(&document.body).into(),
        Some(CrlEncoding::Pem) => encode_crl_pem(&document.body).into(),
        Some(CrlEncoding::Der) | None => document.body.clone().into(),
    }
}

fn media_type(kind: DocumentKind, encoding: Option<CrlEncoding>) -> &'static str {
    match (kind, encoding) {
        (_, Some(CrlEncoding::Pem)) => "application/x-pem-file",
        (_, Some(_)) | (DocumentKind::VcekCrl | DocumentKind::VlekCrl, None) => {
            "application/pkix-crl"
        }
        (
            DocumentKind::PckCertificate | DocumentKind::VcekChain | DocumentKind::VlekChain,
            None,
        ) => "application/x-pem-file",
        (DocumentKind::Vcek, None) => "application/octet-stream",
        _ => "application/json",
    }
}

/// Encodes a list in PEM (RFC 7468 section 6), in lines of 64 characters.
fn encode_crl_pem(der: &[u8]) -> String {
    let digits = STANDARD.encode(der);
    let mut text = String::from("-----BEGIN X509 CRL-----\n");
    for line in digits.as_bytes().chunks(64) {
        text.extend(line.iter().map(|byte| char::from(*byte)));
        text.push('\n');
    }
    text + "-----END X509 CRL-----\n"
}

/// Whether `If-None-Match` lists the tag, by weak comparison (RFC 9110 section 13.1.2).
fn matches_tag(held: &HeaderValue, tag: &str) -> bool {
    let Ok(held) = held.to_str() else { return false };
    held.trim() == "*"
        || held.split(',').any(|one| {
            let one = one.trim();
            one.strip_prefix("W/").unwrap_or(one) == tag
        })
}

/// A body in one chunk, which may break off after half of its announced length.
pub(crate) struct AnswerBody {
    left: Option<Bytes>,
    announced: u64,
    truncated: bool,
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if let Some(bytes) = self.left.take().filter(|bytes| !bytes.is_empty()) {
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        if std::mem::take(&mut self.truncated) {
            return Poll::Ready(Some(Err(io::ErrorKind::ConnectionAborted.into())));
        }
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        !self.truncated && self.left.as_ref().is_none_or(Bytes::is_empty)
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.announced)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_found_among_others() {
        let held = |text: &'static str| matches_tag(&HeaderValue::from_static(text), "\"a\"");
        assert!(held("\"a\"") && held("W/\"a\"") && held("\"b\", \"a\"") && held("*"));
        assert!(!held("a") && !held("\"ab\"") && !held(""));
    }

    #[test]
    fn a_list_is_written_in_lines() {
        let text = encode_crl_pem(&[0; 100]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "-----BEGIN X509 CRL-----");
        assert_eq!(lines[1].len(), 64);
        assert_eq!(lines.last(), Some(&"-----END X509 CRL-----"));
    }
}
