//! The body of an answer, as it arrives from a server that may be hostile.

use bytes::Bytes;
use confide_disclosure::HttpVersion;
use confide_http::has_explicit_end;
use http::{
    HeaderMap, Method, Response,
    header::{CONTENT_ENCODING, CONTENT_LENGTH, TRANSFER_ENCODING},
};
use http_body::Body;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::{Instant, timeout};

use crate::{
    content_coding::{ContentDecoder, DecodeError},
    error::ExchangeError,
    limits::NotaryLimits,
    target::FetchTarget,
    upstream::timeout_error,
};

/// A body that is decoded as it arrives, and never longer than its limit.
pub(crate) struct AnswerBody<'a> {
    incoming: Incoming,
    http: HttpVersion,
    decoder: Option<ContentDecoder>,
    was_empty: bool,
    limits: NotaryLimits,
    target: &'a FetchTarget,
    until: Instant,
}

impl<'a> AnswerBody<'a> {
    /// Refuses an answer whose end is not marked or whose coding is not supported.
    pub(crate) fn new(
        response: Response<Incoming>,
        http: HttpVersion,
        method: &Method,
        target: &'a FetchTarget,
        limits: NotaryLimits,
        until: Instant,
    ) -> Result<Self, ExchangeError> {
        let host = || target.host().to_owned();
        if !has_marked_end(&response, http, method) {
            return Err(ExchangeError::UnmarkedEnd { host: host() });
        }
        let decoder = content_coding(response.headers())
            .and_then(|coding| ContentDecoder::for_coding(coding, limits.response_bytes))
            .ok_or_else(|| ExchangeError::UnsupportedCoding { host: host() })?;
        let incoming = response.into_body();
        let decoder = Some(decoder);
        Ok(Self { incoming, http, decoder, was_empty: true, limits, target, until })
    }

    /// Reads and decodes the next piece; `None` at the end. A piece may be empty.
    pub(crate) async fn next_piece(&mut self) -> Result<Option<Vec<u8>>, ExchangeError> {
        let Some(mut decoder) = self.decoder.take() else { return Ok(None) };
        let Some(piece) = self.read_piece().await? else {
            if !self.is_complete() {
                return Err(ExchangeError::UnmarkedEnd { host: self.target.host().to_owned() });
            }
            let rest = decoder.finish(self.was_empty).map_err(|error| self.decode_error(error))?;
            return Ok(Some(rest));
        };
        self.was_empty &= piece.is_empty();
        let decoded = decoder.push(&piece).map_err(|error| self.decode_error(error))?;
        self.decoder = Some(decoder);
        Ok(Some(decoded))
    }

    /// Reads the next piece without decoding it. Trailers are skipped: no statement covers them.
    async fn read_piece(&mut self) -> Result<Option<Bytes>, ExchangeError> {
        loop {
            let (pause, exchange) = (self.limits.response_pause, self.limits.exchange);
            let left = self.until.saturating_duration_since(Instant::now());
            // The error names the whole limit, not the rest of it.
            let (what, limit) = match left < pause {
                true => ("end its answer", exchange),
                false => ("continue its answer", pause),
            };
            let frame = timeout(pause.min(left), self.incoming.frame()).await;
            let frame = frame.map_err(|_| timeout_error(self.target, what, limit))?;
            let Some(frame) = frame else { return Ok(None) };
            let host = || self.target.host().to_owned();
            let frame = frame.map_err(|source| ExchangeError::Http { host: host(), source })?;
            if let Ok(data) = frame.into_data() {
                return Ok(Some(data));
            }
        }
    }

    /// Whether a body without further pieces is complete. The HTTP library also reports the end for
    /// an HTTP/2 stream that the server reset without an error (RFC 9113 section 8.1).
    fn is_complete(&self) -> bool {
        let is_as_long_as_said = self.incoming.size_hint().exact() == Some(0);
        self.http == HttpVersion::V11 || self.incoming.is_end_stream() || is_as_long_as_said
    }

    fn decode_error(&self, error: DecodeError) -> ExchangeError {
        let host = self.target.host().to_owned();
        match error {
            DecodeError::Malformed => ExchangeError::InvalidGzip { host },
            DecodeError::TooLong => {
                ExchangeError::TooLong { host, wanted: self.limits.response_bytes }
            }
        }
    }
}

/// Whether the end of the answer is marked. In HTTP/2 every message has a marked end, which is
/// checked when it arrives. In HTTP/1.1 there must be either one length or chunks: with both, two
/// readers could see two answers (RFC 9112 section 6.3).
fn has_marked_end(response: &Response<Incoming>, http: HttpVersion, method: &Method) -> bool {
    let headers = response.headers();
    let lengths = headers.get_all(CONTENT_LENGTH).iter().count();
    let both = lengths > 0 && headers.contains_key(TRANSFER_ENCODING);
    match http {
        HttpVersion::V2 => !response.status().is_informational(),
        HttpVersion::V11 => lengths <= 1 && !both && has_explicit_end(response, method),
    }
}

/// Returns the content coding, if any; the outer `None` if there are several.
fn content_coding(headers: &HeaderMap) -> Option<Option<&[u8]>> {
    let mut codings = headers.get_all(CONTENT_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => Some(None),
        (Some(only), None) => Some(Some(only.as_bytes())),
        _ => None,
    }
}
