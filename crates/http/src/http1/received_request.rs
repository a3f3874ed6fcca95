//! Heads of requests, as they are received (RFC 9112 section 3).

use std::mem::MaybeUninit;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, Uri, Version, header};
use httparse::Status;

use super::{
    body_decoder::BodyFraming,
    error::Http1Error,
    fields::{FIELDS_MAX, collect_fields, field_error, keeps_connection, read_content_length},
    head_scanner::{HeadLimits, HeadScanner},
};
use crate::hop::has_supported_transfer_codings;

/// Finds the head of a request among the bytes received so far. Each byte is looked at a bounded
/// number of times, however small the pieces are in which the bytes come.
#[derive(Clone, Copy, Debug)]
pub struct RequestHeadParser(HeadScanner);

/// The head of a request.
#[derive(Debug)]
pub struct RequestHead {
    /// The method.
    pub method: Method,
    /// The request target.
    pub target: Uri,
    /// HTTP/1.0 or HTTP/1.1.
    pub version: Version,
    /// The fields.
    pub fields: HeaderMap,
}

impl RequestHeadParser {
    /// A parser of the next request.
    pub fn new(limits: HeadLimits) -> Self {
        Self(HeadScanner::new(limits))
    }

    /// Takes the next head from `received`; `None` if it is not complete yet. Empty lines before it
    /// are skipped (RFC 9112 section 2.2).
    ///
    /// # Errors
    /// [`Http1Error`] for a head that is malformed or exceeds a limit. No more may be parsed then.
    pub fn parse(&mut self, received: &mut BytesMut) -> Result<Option<RequestHead>, Http1Error> {
        let Some(head) = self.0.take_head(received, None)? else {
            // Someone who has sent no HTTP may wait for the answer: the first bytes are looked at
            // before the end has come.
            if self.0.is_first_look() {
                let mut room = [const { MaybeUninit::uninit() }; FIELDS_MAX];
                let mut request = httparse::Request::new(&mut []);
                parse_bytes(received, &mut request, &mut room, self.0.limits().fields)?;
            }
            return Ok(None);
        };
        parse_whole_head(&head, self.0.limits().fields).map(Some)
    }
}

impl RequestHead {
    /// How the body ends (RFC 9112 section 6.3). Two equal lengths become one. A length beside chunks
    /// stays: whoever passes the request on has to remove one of them.
    ///
    /// # Errors
    /// [`Http1Error::Length`] for a length that is not one number, and for a transfer coding whose
    /// end is unknown or that HTTP/1.0 does not have.
    pub fn frame_body(&mut self) -> Result<BodyFraming, Http1Error> {
        let length = read_content_length(&mut self.fields)?;
        if !self.fields.contains_key(header::TRANSFER_ENCODING) {
            return Ok(match length {
                None | Some(0) => BodyFraming::Empty,
                Some(length) => BodyFraming::Length(length),
            });
        }
        match self.version == Version::HTTP_11 && ends_chunked(&self.fields) {
            true => Ok(BodyFraming::Chunked),
            false => Err(Http1Error::Length),
        }
    }

    /// Whether another request may follow on the connection (RFC 9112 sections 6.1 and 9.3): not after
    /// one with both a length and chunks.
    pub fn keeps_connection(&self) -> bool {
        let is_ambiguous = self.fields.contains_key(header::TRANSFER_ENCODING)
            && self.fields.contains_key(header::CONTENT_LENGTH);
        !is_ambiguous && keeps_connection(self.version, &self.fields)
    }

    /// Whether the client sends the body only once it is asked for it (RFC 9110 section 10.1.1).
    pub fn awaits_continue(&self) -> bool {
        let expected = self.fields.get(header::EXPECT);
        self.version == Version::HTTP_11
            && expected.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
    }
}

/// Whether `chunked` is the last transfer coding, so that the end of the body is known even if the
/// others are not.
fn ends_chunked(fields: &HeaderMap) -> bool {
    has_supported_transfer_codings(fields)
        || fields.get_all(header::TRANSFER_ENCODING).iter().next_back().is_some_and(|last| {
            let last = last.as_bytes().rsplit(|&byte| byte == b',').next().unwrap_or_default();
            last.trim_ascii().eq_ignore_ascii_case(b"chunked")
        })
}

fn parse_whole_head(head: &Bytes, fields_max: usize) -> Result<RequestHead, Http1Error> {
    let mut room = [const { MaybeUninit::uninit() }; FIELDS_MAX];
    let mut request = httparse::Request::new(&mut []);
    match parse_bytes(head, &mut request, &mut room, fields_max)? {
        Status::Complete(parsed) if parsed == head.len() => {}
        _ => return Err(Http1Error::Head),
    }
    let (Some(method), Some(target)) = (request.method, request.path) else {
        return Err(Http1Error::Head);
    };
    let method = Method::from_bytes(method.as_bytes()).map_err(|_| Http1Error::Head)?;
    let target = Uri::from_maybe_shared(head.slice_ref(target.as_bytes()));
    let target = target.map_err(|_| Http1Error::Head)?;
    let version = if request.version == Some(0) { Version::HTTP_10 } else { Version::HTTP_11 };
    let fields = collect_fields(head, request.headers).map_err(|_| Http1Error::Head)?;
    Ok(RequestHead { method, target, version, fields })
}

fn parse_bytes<'h, 'b>(
    bytes: &'b [u8],
    request: &mut httparse::Request<'h, 'b>,
    room: &'h mut [MaybeUninit<httparse::Header<'b>>],
    fields_max: usize,
) -> Result<Status<usize>, Http1Error> {
    let limit = fields_max.min(FIELDS_MAX);
    let room = &mut room[..limit];
    let parsed =
        httparse::ParserConfig::default().parse_request_with_uninit_headers(request, bytes, room);
    parsed.map_err(|error| field_error(error, limit, Http1Error::Head))
}
