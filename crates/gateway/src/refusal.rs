//! The reasons why the gateway answers a request itself instead of passing on the upstream's
//! answer.

use confide_http::PaceFault;
use http::{HeaderName, HeaderValue, Response, StatusCode, header};

use crate::{
    answer::{self, AnswerBody},
    body::{BodyFault, find_body_fault},
    connection::UnansweredRequest,
    fault::UpstreamFailure,
    path::PathFault,
};

pub(crate) enum RequestRefusal {
    /// The allowed methods, as the `Allow` field lists them.
    Method(String),
    TransferCoding,
    WebSocketHandshake,
    Target(PathFault),
    Host,
    TooLong {
        limit: u64,
    },
    BodyNotAllowed,
    BodyPaused,
    BodySlow {
        bytes_per_s: u64,
    },
    BodyBroken,
    NoRoute,
    /// The head has more fields than allowed.
    TooManyFields,
    /// The limits on connections admit no further request at the same time.
    Busy,
    Upstream(UpstreamFailure),
    StreamOverHttp10,
}

impl RequestRefusal {
    /// The refusal for a request that got no answer: either its own body or the upstream is at
    /// fault.
    pub(crate) fn from_unanswered(unsent: UnansweredRequest) -> Self {
        match find_body_fault(&unsent.error) {
            Some(BodyFault::TooLong { limit }) => Self::TooLong { limit: *limit },
            Some(BodyFault::Pace(PaceFault::Paused { .. })) => Self::BodyPaused,
            Some(BodyFault::Pace(PaceFault::Slow { bytes_per_s, .. })) => {
                Self::BodySlow { bytes_per_s: *bytes_per_s }
            }
            Some(BodyFault::Trailers) => Self::TooManyFields,
            Some(BodyFault::Broken(_)) => Self::BodyBroken,
            None => Self::Upstream(unsent.into_failure()),
        }
    }

    pub(crate) fn into_response(self) -> Response<AnswerBody> {
        let bad = StatusCode::BAD_REQUEST;
        let text;
        let (status, code, message) = match &self {
            Self::Upstream(failure) => failure.fault.to_status_and_message(),
            Self::Method(_) => (
                StatusCode::METHOD_NOT_ALLOWED,
                "method_not_allowed",
                "this method is not proxied for this path",
            ),
            Self::TransferCoding => (
                StatusCode::NOT_IMPLEMENTED,
                "transfer_coding",
                "request body has an unsupported transfer coding: wanted none or chunked",
            ),
            Self::WebSocketHandshake => (
                bad,
                "bad_websocket_handshake",
                "wanted a WebSocket handshake of version 13 (RFC 6455 or RFC 8441)",
            ),
            Self::Target(fault) => {
                text = fault.to_string();
                (bad, "bad_request_target", text.as_str())
            }
            Self::Host => (bad, "bad_host", "wanted exactly one host, as HOST[:PORT]"),
            Self::TooLong { limit } => {
                text = format!("request body is too long: wanted at most {limit} bytes");
                (StatusCode::PAYLOAD_TOO_LARGE, "request_too_large", text.as_str())
            }
            Self::BodyNotAllowed => {
                (bad, "body_not_allowed", "a request with this method must not have a body")
            }
            Self::BodyPaused => {
                (StatusCode::REQUEST_TIMEOUT, "request_timeout", "request body paused too long")
            }
            Self::BodySlow { bytes_per_s } => {
                text = format!(
                    "request body arrived too slowly: wanted at least {bytes_per_s} bytes/s"
                );
                (StatusCode::REQUEST_TIMEOUT, "request_timeout", text.as_str())
            }
            Self::BodyBroken => (bad, "request_broken", "request body ended early"),
            Self::NoRoute => (
                StatusCode::NOT_FOUND,
                "route_not_allowed",
                "this path is not among the proxied routes",
            ),
            Self::TooManyFields => (
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                "too_many_fields",
                "the head of the request has too many fields",
            ),
            Self::Busy => (
                StatusCode::SERVICE_UNAVAILABLE,
                "gateway_busy",
                "too many requests at once: a limit on connections is reached",
            ),
            // HTTP/1.0 has no chunks, so a broken stream would look complete.
            Self::StreamOverHttp10 => (
                StatusCode::HTTP_VERSION_NOT_SUPPORTED,
                "http_1_1_needed",
                "a streamed answer needs HTTP/1.1",
            ),
        };
        self.log(code);
        let mut response = answer::error_response(status, code, message);
        response.headers_mut().extend(self.further_field());
        response
    }

    fn log(&self, code: &str) {
        match self {
            Self::Upstream(UpstreamFailure { reason, .. }) => {
                tracing::warn!(code, %reason, "upstream failed");
            }
            _ => tracing::info!(code, "request not proxied"),
        }
    }

    /// The field that tells the client what to change.
    fn further_field(&self) -> Option<(HeaderName, HeaderValue)> {
        match self {
            Self::Method(allowed) => Some((header::ALLOW, HeaderValue::from_str(allowed).ok()?)),
            Self::Busy => Some((header::RETRY_AFTER, HeaderValue::from_static("1"))),
            Self::WebSocketHandshake => {
                Some((header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13")))
            }
            _ => None,
        }
    }
}
