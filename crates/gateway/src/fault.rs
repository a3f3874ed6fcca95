//! The faults of an upstream.

use std::error::Error;

use confide_http::{ExchangeError, error_chain, http1::Http1Error};
use http::StatusCode;

use crate::answer_fault::AnswerFault;

/// The reason why an upstream's answer cannot be passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UpstreamFault {
    /// No TCP connection was established, or no TLS session with a valid certificate.
    Unreachable,
    /// The upstream is reachable, but has not yet named its model, or is no process with its weights.
    NotReady,
    /// The upstream serves a model that differs from the configured one, or no longer names a
    /// model.
    ModelChanged,
    /// The connection ended before the answer's head was complete.
    BrokeOff,
    /// The upstream did not start its answer in time.
    Slow,
    /// The upstream's answer is not valid HTTP.
    Malformed,
    /// The head of the upstream's answer is longer than allowed.
    HeadTooLarge,
    /// The head of the upstream's answer has more fields than allowed.
    TooManyFields,
    /// The answer has two different lengths, or a length that is not a number.
    BadLength,
    /// The answer has neither `Content-Length` nor chunks, so its end cannot be told from a broken
    /// connection.
    Unframed,
    /// The answer is compressed or of a type that cannot be filled up to the answer shape.
    Unshapeable,
    /// The upstream did not accept a WebSocket as RFC 6455 demands.
    BadUpgrade,
}

impl UpstreamFault {
    /// Classifies the reason for a missing answer.
    pub(crate) fn classify(fault: &AnswerFault) -> Self {
        match fault {
            AnswerFault::Http1(error) => Self::classify_http1(error),
            AnswerFault::Http2(error) if error.is_library() => Self::Malformed,
            AnswerFault::Http2(_) | AnswerFault::Http2Request(_) => Self::BrokeOff,
        }
    }

    fn classify_http1(error: &ExchangeError) -> Self {
        match error {
            ExchangeError::Malformed(Http1Error::HeadTooLong { .. }) => Self::HeadTooLarge,
            ExchangeError::Malformed(Http1Error::TooManyFields { .. }) => Self::TooManyFields,
            ExchangeError::Malformed(Http1Error::Length) => Self::BadLength,
            ExchangeError::Malformed(_) => Self::Malformed,
            ExchangeError::UnaskedUpgrade => Self::Unframed,
            ExchangeError::ConnectionClosed
            | ExchangeError::Stream(_)
            | ExchangeError::Request(_) => Self::BrokeOff,
        }
    }

    /// Returns the status, the error code and the text of the gateway's answer.
    pub(crate) fn to_status_and_message(self) -> (StatusCode, &'static str, &'static str) {
        let gateway = StatusCode::BAD_GATEWAY;
        let unavailable = StatusCode::SERVICE_UNAVAILABLE;
        match self {
            Self::Unreachable => (gateway, "upstream_unreachable", "upstream cannot be reached"),
            Self::NotReady => {
                (unavailable, "upstream_not_ready", "upstream has not shown its model yet")
            }
            Self::ModelChanged => (
                unavailable,
                "upstream_changed",
                "upstream does not serve the attested model: nothing is proxied to it",
            ),
            Self::BrokeOff => {
                (gateway, "upstream_broke_off", "upstream closed the connection before it answered")
            }
            Self::Slow => (
                StatusCode::GATEWAY_TIMEOUT,
                "upstream_timeout",
                "upstream did not start its answer in time",
            ),
            Self::Malformed => {
                (gateway, "upstream_malformed", "upstream sent something that is not valid HTTP")
            }
            Self::HeadTooLarge => (
                gateway,
                "upstream_head_too_large",
                "the head of the upstream's answer is too long",
            ),
            Self::TooManyFields => (
                gateway,
                "upstream_too_many_fields",
                "the head of the upstream's answer has too many fields",
            ),
            Self::BadLength => (
                gateway,
                "upstream_bad_length",
                "upstream's answer has two different lengths, or a length that is not a number",
            ),
            Self::BadUpgrade => (
                gateway,
                "upstream_bad_upgrade",
                "upstream did not accept the WebSocket in a valid way",
            ),
            Self::Unshapeable => (
                gateway,
                "upstream_unshapeable",
                "upstream's answer is compressed, or neither JSON nor a stream of events: its size \
                 cannot be hidden",
            ),
            Self::Unframed => (
                gateway,
                "upstream_unframed",
                "upstream's answer has neither Content-Length nor chunks: its end is undefined",
            ),
        }
    }
}

/// A fault and its details, for the local log.
#[derive(Clone, Debug)]
pub(crate) struct UpstreamFailure {
    pub(crate) fault: UpstreamFault,
    pub(crate) reason: String,
}

impl UpstreamFailure {
    pub(crate) fn new(fault: UpstreamFault, reason: impl ToString) -> Self {
        Self { fault, reason: reason.to_string() }
    }

    /// A failure whose reason names all causes.
    pub(crate) fn from_error(fault: UpstreamFault, error: &(dyn Error + 'static)) -> Self {
        Self { fault, reason: error_chain(error) }
    }
}
