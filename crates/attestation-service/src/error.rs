//! The errors of the service and of its requests.

use std::time::Duration;

use confide_http::QueueError;
use http::StatusCode;

/// The reason for which the service could not start or did not stop cleanly.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServiceError {
    /// The signing key cannot be read or generated.
    #[error("signing key is not usable: wanted {wanted}")]
    SigningKey {
        /// The form that a key must have.
        wanted: &'static str,
    },
    /// The name of a policy is invalid or repeated, or there is no policy.
    #[error("policy name `{got}` is not usable: wanted {wanted}")]
    PolicyName {
        /// The form that a name must have.
        wanted: &'static str,
        /// The name.
        got: String,
    },
    /// The configured lifetime of results is zero or too long.
    #[error("lifetime of a result is {got} s, wanted 1 to {wanted} s")]
    Lifetime {
        /// The longest lifetime, in seconds.
        wanted: u64,
        /// The configured lifetime, in seconds.
        got: u64,
    },
    /// The service's own evidence could not be obtained.
    #[error("the service's own evidence could not be obtained: {0}")]
    OwnEvidence(String),
    /// The drain took too long; the remaining connections were closed.
    #[error("{left} connections were still open {} s after the stop", .limit.as_secs())]
    Undrained {
        /// The number of remaining connections.
        left: usize,
        /// The longest time of the drain.
        limit: Duration,
    },
}

/// The reason for which a request gets no result. The text is sent to the caller.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RequestError {
    #[error("body is longer than {limit} bytes")]
    BodyLength { limit: usize },
    #[error("too many request bodies in memory: wanted at most {limit} bytes together; try again")]
    BodiesFull { limit: usize },
    #[error("body did not arrive within {} s", .limit.as_secs())]
    BodyLate { limit: Duration },
    #[error("the connection broke before the end of the body")]
    BodyAborted,
    #[error("body is not valid JSON for this route: {0}")]
    Json(String),
    #[error("field `{field}` is not valid: wanted {wanted}")]
    Field { field: &'static str, wanted: &'static str },
    #[error("unknown policy: wanted one of {wanted}")]
    UnknownPolicy { wanted: String },
    #[error("evidence cannot be appraised: {0}")]
    NotAppraisable(String),
    #[error("too many requests are waiting: wanted at most {limit}")]
    QueueFull { limit: usize },
    #[error("the request was not started within {} s", .waited.as_secs())]
    Busy { waited: Duration },
    #[error("there is no such route")]
    NoRoute,
    #[error("method not allowed; the header field `Allow` lists the allowed ones")]
    NoMethod,
    #[error("result could not be signed")]
    Signing,
}

impl From<QueueError> for RequestError {
    fn from(error: QueueError) -> Self {
        match error {
            QueueError::Full { queued } => Self::QueueFull { limit: queued },
            QueueError::TimedOut { waited } => Self::Busy { waited },
        }
    }
}

impl RequestError {
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::BodyLength { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::BodyLate { .. } => StatusCode::REQUEST_TIMEOUT,
            Self::BodyAborted | Self::Json(_) | Self::Field { .. } | Self::NotAppraisable(_) => {
                StatusCode::BAD_REQUEST
            }
            Self::UnknownPolicy { .. } | Self::NoRoute => StatusCode::NOT_FOUND,
            Self::NoMethod => StatusCode::METHOD_NOT_ALLOWED,
            Self::BodiesFull { .. } | Self::QueueFull { .. } | Self::Busy { .. } => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::Signing => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// The code of the error in answers and metrics.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::BodyLength { .. } => "body_length",
            Self::BodiesFull { .. } => "bodies_full",
            Self::BodyLate { .. } => "body_late",
            Self::BodyAborted => "body_broken",
            Self::Json(_) => "json",
            Self::Field { .. } => "field",
            Self::UnknownPolicy { .. } => "no_policy",
            Self::NotAppraisable(_) => "unjudged",
            Self::QueueFull { .. } => "queue_full",
            Self::Busy { .. } => "busy",
            Self::NoRoute => "no_route",
            Self::NoMethod => "no_method",
            Self::Signing => "signing",
        }
    }
}
