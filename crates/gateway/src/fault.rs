//! The faults of an upstream, as far as they can be told apart.

use std::error::Error;

use confide_http::with_causes;
use http::StatusCode;

/// The reason for which an upstream gave no answer that can be passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UpstreamFault {
    /// No TCP connection was established.
    Unreachable,
    /// The upstream is there and does not yet say which model it serves.
    NotReady,
    /// The upstream serves another model than the configuration names, or no longer names one.
    Changed,
    /// The connection ended before the answer's head was complete.
    BrokeOff,
    /// The upstream did not start its answer in time.
    Slow,
    /// The upstream's answer is not HTTP/1.1.
    Malformed,
    /// The head of its answer is longer than allowed.
    HeadTooLarge,
    /// The head of its answer has more fields than allowed.
    TooManyFields,
    /// The answer has two different lengths, or one that is not a number.
    BadLength,
    /// The end of its answer could not be told from its death.
    Unframed,
}

impl UpstreamFault {
    /// Classifies an error of hyper for an answer that did not come. `received` counts the bytes
    /// since the request was sent, of which a head may have `head_bytes_max`.
    pub(crate) fn classify(error: &hyper::Error, received: u64, head_bytes_max: usize) -> Self {
        if error.is_parse_too_large() {
            // hyper has one error for both: a head that is short enough has too many fields.
            return match received >= head_bytes_max as u64 {
                true => Self::HeadTooLarge,
                false => Self::TooManyFields,
            };
        }
        match error.is_parse() {
            // hyper tells this apart in its text only; a test would notice another wording.
            true if error.to_string().contains("content-length") => Self::BadLength,
            true => Self::Malformed,
            false => Self::BrokeOff,
        }
    }

    /// The status, the error code and the text of the gateway's answer.
    pub(crate) fn answer(self) -> (StatusCode, &'static str, &'static str) {
        let gateway = StatusCode::BAD_GATEWAY;
        let unavailable = StatusCode::SERVICE_UNAVAILABLE;
        match self {
            Self::Unreachable => (gateway, "upstream_unreachable", "upstream cannot be reached"),
            Self::NotReady => {
                (unavailable, "upstream_not_ready", "upstream does not say yet which model it has")
            }
            Self::Changed => (
                unavailable,
                "upstream_changed",
                "upstream does not serve the model that was attested: nothing is proxied to it",
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
                (gateway, "upstream_malformed", "upstream sent something that is not HTTP/1.1")
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
                "upstream's answer has two different lengths, or one that is not a number",
            ),
            Self::Unframed => (
                gateway,
                "upstream_unframed",
                "upstream framed its answer so that its end could not be told from its death",
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

    /// A failure with all causes in its reason: hyper's own text names only the first.
    pub(crate) fn from_error(fault: UpstreamFault, error: &(dyn Error + 'static)) -> Self {
        Self { fault, reason: with_causes(error) }
    }
}
