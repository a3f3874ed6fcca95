//! The body of an answer as it comes from a server that may be hostile.

use bytes::Bytes;
use confide_disclosure::HttpVersion;
use confide_http::has_marked_end;
use http::{
    HeaderMap, Method, Response,
    header::{CONTENT_ENCODING, CONTENT_LENGTH, TRANSFER_ENCODING},
};
use http_body::Body;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::{Instant, timeout};

use crate::{
    error::ExchangeError,
    gunzip::{DecodeError, Decoder},
    limits::Limits,
    target::Target,
    upstream::slow,
};

/// A body on its way: decoded, counted, never longer than its bound.
pub(crate) struct AnswerBody<'a> {
    incoming: Incoming,
    http: HttpVersion,
    decoder: Option<Decoder>,
    was_empty: bool,
    limits: Limits,
    target: &'a Target,
    until: Instant,
}

impl<'a> AnswerBody<'a> {
    /// Refuses an answer whose end is not marked or whose coding nobody undoes.
    pub(crate) fn new(
        response: Response<Incoming>,
        http: HttpVersion,
        method: &Method,
        target: &'a Target,
        limits: Limits,
        until: Instant,
    ) -> Result<Self, ExchangeError> {
        let host = || target.host().to_owned();
        if !is_framed(&response, http, method) {
            return Err(ExchangeError::Unframed { host: host() });
        }
        let decoder = coding(response.headers())
            .and_then(|coding| Decoder::for_coding(coding, limits.response_bytes))
            .ok_or_else(|| ExchangeError::Coding { host: host() })?;
        let incoming = response.into_body();
        let decoder = Some(decoder);
        Ok(Self { incoming, http, decoder, was_empty: true, limits, target, until })
    }

    /// Returns the next piece, decoded; `None` at the end. A piece may be empty.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<u8>>, ExchangeError> {
        let Some(mut decoder) = self.decoder.take() else { return Ok(None) };
        let Some(piece) = self.piece().await? else {
            if !self.is_whole() {
                return Err(ExchangeError::Unframed { host: self.target.host().to_owned() });
            }
            let rest = decoder.finish(self.was_empty).map_err(|error| self.fault(error))?;
            return Ok(Some(rest));
        };
        self.was_empty &= piece.is_empty();
        let decoded = decoder.push(&piece).map_err(|error| self.fault(error))?;
        self.decoder = Some(decoder);
        Ok(Some(decoded))
    }

    /// Reads the next piece as it came. Trailers are skipped: no statement covers them.
    async fn piece(&mut self) -> Result<Option<Bytes>, ExchangeError> {
        loop {
            let (pause, exchange) = (self.limits.response_pause, self.limits.exchange);
            let left = self.until.saturating_duration_since(Instant::now());
            // The limit that was met is named, not what was left of it.
            let (what, limit) = match left < pause {
                true => ("end its answer", exchange),
                false => ("go on with its answer", pause),
            };
            let frame = timeout(pause.min(left), self.incoming.frame()).await;
            let frame = frame.map_err(|_| slow(self.target, what, limit))?;
            let Some(frame) = frame else { return Ok(None) };
            let host = || self.target.host().to_owned();
            let frame = frame.map_err(|source| ExchangeError::Http { host: host(), source })?;
            if let Ok(data) = frame.into_data() {
                return Ok(Some(data));
            }
        }
    }

    /// Whether a body that brings no more has come to its end. The library takes a stream of HTTP/2
    /// that its server reset without an error for one that ended (RFC 9113 section 8.1).
    fn is_whole(&self) -> bool {
        let is_as_long_as_said = self.incoming.size_hint().exact() == Some(0);
        self.http == HttpVersion::V11 || self.incoming.is_end_stream() || is_as_long_as_said
    }

    fn fault(&self, error: DecodeError) -> ExchangeError {
        let host = self.target.host().to_owned();
        match error {
            DecodeError::Malformed => ExchangeError::Gzip { host },
            DecodeError::TooLong => {
                ExchangeError::TooLong { host, wanted: self.limits.response_bytes }
            }
        }
    }
}

/// Whether the end of the answer is marked. With HTTP/2 every message has an end of its own, which
/// is checked when it comes. With HTTP/1.1 there has to be one length, or chunks, and not both: two
/// readers would see two answers (RFC 9112 section 6.3).
fn is_framed(response: &Response<Incoming>, http: HttpVersion, method: &Method) -> bool {
    let headers = response.headers();
    let lengths = headers.get_all(CONTENT_LENGTH).iter().count();
    let both = lengths > 0 && headers.contains_key(TRANSFER_ENCODING);
    match http {
        HttpVersion::V2 => !response.status().is_informational(),
        HttpVersion::V11 => lengths <= 1 && !both && has_marked_end(response, method),
    }
}

/// Returns the one content coding; `None` if several are named.
fn coding(headers: &HeaderMap) -> Option<Option<&[u8]>> {
    let mut codings = headers.get_all(CONTENT_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => Some(None),
        (Some(only), None) => Some(Some(only.as_bytes())),
        _ => None,
    }
}
