//! The way in which a request ended, as telemetry distinguishes it.

use http::StatusCode;

/// The way in which a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestOutcome {
    /// The whole answer was passed on, with a status below 400.
    Complete,
    /// The answer was a complete one with a status of 400 to 499.
    ClientError,
    /// The answer was a complete one with a status from 500.
    ServerError,
    /// The upstream failed in the middle of the answer.
    Broken,
    /// The client left before the end of the answer, or the gateway stopped.
    Cancelled,
}

impl RequestOutcome {
    /// The number of outcomes.
    pub(crate) const COUNT: usize = 5;

    /// The outcome of a complete answer.
    pub(crate) fn from_status(status: StatusCode) -> Self {
        match status.as_u16() {
            500.. => Self::ServerError,
            400.. => Self::ClientError,
            _ => Self::Complete,
        }
    }

    /// The value of OpenTelemetry's `error.type`; `None` without an error.
    pub(crate) fn error_type(self) -> Option<&'static str> {
        match self {
            Self::Complete => None,
            Self::ClientError => Some("client_error"),
            Self::ServerError => Some("server_error"),
            Self::Broken => Some("answer_broken"),
            Self::Cancelled => Some("cancelled"),
        }
    }
}
