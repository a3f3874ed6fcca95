//! Heads of answers (RFC 9112 section 4).

use std::mem::MaybeUninit;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, StatusCode, Version, header};
use httparse::Status;

use super::{
    body_decoder::BodyFraming,
    error::Http1Error,
    fields::{FIELDS_MAX, collect_fields, field_error, keeps_connection, read_content_length},
    head_scanner::{HeadLimits, HeadScanner},
};
use crate::hop::has_supported_transfer_codings;

/// How the first line of an answer begins, but for the last digit of the version.
const BEGINNING: &[u8] = b"HTTP/1.";

/// Finds the head of an answer among the bytes received so far. Each byte is looked at a bounded
/// number of times, however small the pieces are in which the bytes come.
#[derive(Clone, Copy, Debug)]
pub struct AnswerHeadParser(HeadScanner);

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
        Self(HeadScanner::new(limits))
    }

    /// Takes the next head from `received`; `None` if it is not complete yet. Empty lines before it
    /// are skipped (RFC 9112 section 2.2).
    ///
    /// # Errors
    /// [`Http1Error`] for a head that is malformed or exceeds a limit. No more may be parsed then.
    pub fn parse(&mut self, received: &mut BytesMut) -> Result<Option<AnswerHead>, Http1Error> {
        let Some(head) = self.0.take_head(received, Some(BEGINNING))? else { return Ok(None) };
        parse_whole_head(&head, self.0.limits().fields).map(Some)
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
        let length = read_content_length(&mut self.fields);
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
        keeps_connection(self.version, &self.fields)
    }
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
