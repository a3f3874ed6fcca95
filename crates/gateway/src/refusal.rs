//! The reasons for which a request gets an answer of the gateway instead of the upstream's.

use confide_http::PaceFault;
use http::{HeaderValue, Response, StatusCode, header};

use crate::{
    answer::{self, AnswerBody},
    body::{BodyFault, find_body_fault},
    connection::UnsentRequest,
    fault::UpstreamFailure,
    path::PathFault,
};

pub(crate) enum Refusal {
    /// The allowed methods, as the `Allow` field lists them.
    Method(String),
    Coding,
    Upgrade,
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
    Upstream(UpstreamFailure),
    OldVersion,
}

impl Refusal {
    /// The refusal of a request that got no answer: its own body is at fault, or the upstream.
    pub(crate) fn from_unsent(unsent: UnsentRequest) -> Self {
        match find_body_fault(&unsent.error) {
            Some(BodyFault::TooLong { limit }) => Self::TooLong { limit: *limit },
            Some(BodyFault::Pace(PaceFault::Paused { .. })) => Self::BodyPaused,
            Some(BodyFault::Pace(PaceFault::Slow { bytes_per_s, .. })) => {
                Self::BodySlow { bytes_per_s: *bytes_per_s }
            }
            Some(BodyFault::Broken(_)) => Self::BodyBroken,
            None => Self::Upstream(unsent.into_failure()),
        }
    }

    pub(crate) fn into_response(self) -> Response<AnswerBody> {
        let bad = StatusCode::BAD_REQUEST;
        let text;
        let (status, code, message) = match &self {
            Self::Upstream(failure) => failure.fault.answer(),
            Self::Method(_) => (
                StatusCode::METHOD_NOT_ALLOWED,
                "method_not_allowed",
                "this method is not proxied, or not for this path",
            ),
            Self::Coding => (
                StatusCode::NOT_IMPLEMENTED,
                "transfer_coding",
                "request body is not readable: wanted no transfer coding but chunked",
            ),
            Self::Upgrade => (
                StatusCode::NOT_IMPLEMENTED,
                "upgrade_unsupported",
                "WebSocket upgrades are not carried",
            ),
            Self::Target(fault) => {
                text = fault.to_string();
                (bad, "bad_request_target", text.as_str())
            }
            Self::Host => (bad, "bad_host", "wanted exactly one Host field with HOST[:PORT]"),
            Self::TooLong { limit } => {
                text = format!("request body is too long: wanted at most {limit} bytes");
                (StatusCode::PAYLOAD_TOO_LARGE, "request_too_large", text.as_str())
            }
            Self::BodyNotAllowed => {
                (bad, "body_not_allowed", "a request with this method has no body here")
            }
            Self::BodyPaused => {
                (StatusCode::REQUEST_TIMEOUT, "request_timeout", "request body paused too long")
            }
            Self::BodySlow { bytes_per_s } => {
                text =
                    format!("request body came too slowly: wanted at least {bytes_per_s} bytes/s");
                (StatusCode::REQUEST_TIMEOUT, "request_timeout", text.as_str())
            }
            Self::BodyBroken => (bad, "request_broken", "request body broke off"),
            Self::NoRoute => (
                StatusCode::NOT_FOUND,
                "route_not_allowed",
                "this path is not among the routes that are proxied",
            ),
            // HTTP/1.0 has no chunks: a stream that broke would look complete.
            Self::OldVersion => (
                StatusCode::HTTP_VERSION_NOT_SUPPORTED,
                "http_1_1_needed",
                "a streamed answer needs HTTP/1.1",
            ),
        };
        match &self {
            Self::Upstream(UpstreamFailure { reason, .. }) => {
                tracing::warn!(code, %reason, "upstream failed");
            }
            _ => tracing::info!(code, "request not proxied"),
        }
        let mut response = answer::error(status, code, message);
        if let Self::Method(allowed) = &self
            && let Ok(allowed) = HeaderValue::from_str(allowed)
        {
            response.headers_mut().insert(header::ALLOW, allowed);
        }
        response
    }
}
