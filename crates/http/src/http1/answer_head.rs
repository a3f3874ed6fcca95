//! Heads of answers (RFC 9112 section 4).

use std::mem::MaybeUninit;

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, Method, StatusCode, Version, header};
use httparse::Status;

use super::{
    BodyFraming, Http1Error,
    fields::{FIELDS_MAX, collect_fields, field_error},
};
use crate::hop::{has_supported_transfer_codings, list_members};

/// How the first line of an answer begins, but for the last digit of the version.
const BEGINNING: &[u8] = b"HTTP/1.";

/// The largest head that is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadLimits {
    /// The largest number of bytes of the first line and the fields together.
    pub bytes: usize,
    /// The largest number of fields, at most 256.
    pub fields: usize,
}

/// Finds the head of an answer among the bytes received so far. Each byte is looked at a bounded
/// number of times, however small the pieces are in which the bytes come.
#[derive(Clone, Copy, Debug)]
pub struct AnswerHeadParser {
    limits: HeadLimits,
    /// The number of bytes in which no end of a head begins.
    scanned: usize,
}

/// The head of an answer.
#[derive(Debug)]
pub struct AnswerHead {
    /// The status.
    pub status: StatusCode,
    /// HTTP/1.0 or HTTP/1.1.
    pub version: Version,
    /// The fields.
    pub fields: HeaderMap,
}

impl AnswerHeadParser {
    /// A parser of the next answer.
    pub fn new(limits: HeadLimits) -> Self {
        Self { limits, scanned: 0 }
    }

    /// Takes the next head from `received`; `None` if it is not complete yet. Empty lines before it
    /// are skipped (RFC 9112 section 2.2).
    ///
    /// # Errors
    /// [`Http1Error`] for a head that is malformed or exceeds a limit. No more may be parsed then.
    pub fn parse(&mut self, received: &mut BytesMut) -> Result<Option<AnswerHead>, Http1Error> {
        if self.scanned == 0 {
            let skipped = received.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
            received.advance(skipped);
            let known = received.len().min(BEGINNING.len());
            if received[..known] != BEGINNING[..known] {
                return Err(Http1Error::Head);
            }
        }
        let Some(length) = find_head_end(received, self.scanned) else {
            // An end may have begun with the last two bytes.
            self.scanned = received.len().saturating_sub(2);
            let limit = self.limits.bytes;
            return match received.len() < limit {
                true => Ok(None),
                false => Err(Http1Error::HeadTooLong { limit }),
            };
        };
        if length > self.limits.bytes {
            return Err(Http1Error::HeadTooLong { limit: self.limits.bytes });
        }
        self.scanned = 0;
        let head = received.split_to(length).freeze();
        parse_whole_head(&head, self.limits.fields).map(Some)
    }
}

impl AnswerHead {
    /// How the body of the answer to a request with `method` ends (RFC 9112 section 6.3). Two equal
    /// lengths become one; a length beside chunks is removed.
    ///
    /// # Errors
    /// [`Http1Error::Length`] for a length that is not one number, [`Http1Error::Head`] for chunks
    /// in HTTP/1.0.
    pub fn frame_body(&mut self, method: &Method) -> Result<BodyFraming, Http1Error> {
        let is_chunked = self.fields.contains_key(header::TRANSFER_ENCODING);
        if is_chunked && self.version == Version::HTTP_10 {
            return Err(Http1Error::Head);
        }
        let length = self.content_length();
        let status = self.status;
        if status.is_informational()
            || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
            || method == Method::HEAD
        {
            return Ok(BodyFraming::Empty);
        }
        if is_chunked {
            self.fields.remove(header::CONTENT_LENGTH);
            return Ok(match has_supported_transfer_codings(&self.fields) {
                true => BodyFraming::Chunked,
                false => BodyFraming::UntilEnd,
            });
        }
        Ok(match length? {
            Some(0) => BodyFraming::Empty,
            Some(length) => BodyFraming::Length(length),
            None => BodyFraming::UntilEnd,
        })
    }

    /// Whether the sender keeps the connection open after the answer (RFC 9112 section 9.3).
    pub fn keeps_connection(&self) -> bool {
        let names = |wanted: &str| {
            list_members(&self.fields, &header::CONNECTION)
                .any(|name| name.eq_ignore_ascii_case(wanted))
        };
        match self.version == Version::HTTP_10 {
            true => names("keep-alive"),
            false => !self.fields.contains_key(header::CONNECTION) || !names("close"),
        }
    }

    fn content_length(&mut self) -> Result<Option<u64>, Http1Error> {
        let mut values = self.fields.get_all(header::CONTENT_LENGTH).iter();
        let Some(first) = values.next() else { return Ok(None) };
        let length = parse_length(first.as_bytes())?;
        let mut repeats = 0;
        for other in values {
            repeats += 1;
            if parse_length(other.as_bytes())? != length {
                return Err(Http1Error::Length);
            }
        }
        if repeats > 0 {
            self.fields.insert(header::CONTENT_LENGTH, length.into());
        }
        Ok(Some(length))
    }
}

/// The number of bytes of the head, with the empty line that ends it. An end is looked for from
/// `from` on.
fn find_head_end(received: &[u8], from: usize) -> Option<usize> {
    let mut start = from;
    while let Some(feed) = memchr::memchr(b'\n', &received[start..]) {
        let next = start + feed + 1;
        match received[next..] {
            [b'\n', ..] => return Some(next + 1),
            [b'\r', b'\n', ..] => return Some(next + 2),
            _ => start = next,
        }
    }
    None
}

fn parse_whole_head(head: &Bytes, fields_max: usize) -> Result<AnswerHead, Http1Error> {
    let limit = fields_max.min(FIELDS_MAX);
    let mut room = [const { MaybeUninit::uninit() }; FIELDS_MAX];
    let mut answer = httparse::Response::new(&mut []);
    let parsed = httparse::ParserConfig::default().parse_response_with_uninit_headers(
        &mut answer,
        head,
        &mut room[..limit],
    );
    match parsed.map_err(|error| field_error(error, limit, Http1Error::Head))? {
        Status::Complete(parsed) if parsed == head.len() => {}
        _ => return Err(Http1Error::Head),
    }
    let version = if answer.version == Some(0) { Version::HTTP_10 } else { Version::HTTP_11 };
    let status = answer.code.and_then(|code| StatusCode::from_u16(code).ok());
    let fields = collect_fields(head, answer.headers).map_err(|_| Http1Error::Head)?;
    Ok(AnswerHead { status: status.ok_or(Http1Error::Head)?, version, fields })
}

/// Parses a length: digits only, at most 64 bits.
fn parse_length(text: &[u8]) -> Result<u64, Http1Error> {
    let is_number = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(text).ok().filter(|_| is_number);
    text.and_then(|text| text.parse().ok()).ok_or(Http1Error::Length)
}
