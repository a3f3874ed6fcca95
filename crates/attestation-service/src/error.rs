//! Why the service cannot start, and why a request gets no result.

use std::time::Duration;

use confide_http::QueueError;
use http::StatusCode;

/// Why the service could not be set up or ended before it was asked to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServiceError {
    /// The signing key cannot be read or made.
    #[error("signing key is not usable: wanted {wanted}")]
    SigningKey {
        /// The form that a key must have.
        wanted: &'static str,
    },
    /// Two policies of one name, a bad name, or none at all.
    #[error("policy name `{got}` is not usable: wanted {wanted}")]
    PolicyName {
        /// The form that a name must have.
        wanted: &'static str,
        /// The name given.
        got: String,
    },
    /// The configured lifetime of results is zero or too long.
    #[error("lifetime of a result is {got} s, wanted 1 to {wanted} s")]
    Lifetime {
        /// The longest lifetime, in seconds.
        wanted: u64,
        /// The seconds given.
        got: u64,
    },
    /// The service's own evidence could not be obtained.
    #[error("own evidence: {0}")]
    OwnEvidence(String),
    /// The drain took too long; the connections that were left are closed.
    #[error("{left} connections were still open {} s after the stop", .limit.as_secs())]
    Undrained {
        /// The number of connections that were left.
        left: usize,
        /// The time that they had.
        limit: Duration,
    },
}

/// Why a request gets no result. The text goes to the caller.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RequestError {
    #[error("body is longer than {limit} bytes")]
    BodyLength { limit: usize },
    #[error("bodies of all requests are too long together: wanted at most {limit} bytes")]
    BodiesFull { limit: usize },
    #[error("body did not come within {} s", .limit.as_secs())]
    BodyLate { limit: Duration },
    #[error("body broke off")]
    BodyBroken,
    #[error("body is not the wanted JSON: {0}")]
    Json(String),
    #[error("{field} is not as wanted: wanted {wanted}")]
    Field { field: &'static str, wanted: &'static str },
    #[error("policy is not known here: wanted one of {wanted}")]
    NoPolicy { wanted: String },
    #[error("evidence cannot be judged: {0}")]
    Unjudged(String),
    #[error("too many requests are waiting: wanted at most {limit}")]
    QueueFull { limit: usize },
    #[error("no place came free within {} s", .waited.as_secs())]
    Busy { waited: Duration },
    #[error("there is no such route")]
    NoRoute,
    #[error("this route does not accept the method; the header `Allow` lists those that it does")]
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
            Self::BodyBroken | Self::Json(_) | Self::Field { .. } | Self::Unjudged(_) => {
                StatusCode::BAD_REQUEST
            }
            Self::NoPolicy { .. } | Self::NoRoute => StatusCode::NOT_FOUND,
            Self::NoMethod => StatusCode::METHOD_NOT_ALLOWED,
            Self::BodiesFull { .. } | Self::QueueFull { .. } | Self::Busy { .. } => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::Signing => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// The word that stands for it in answers and metrics.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::BodyLength { .. } => "body_length",
            Self::BodiesFull { .. } => "bodies_full",
            Self::BodyLate { .. } => "body_late",
            Self::BodyBroken => "body_broken",
            Self::Json(_) => "json",
            Self::Field { .. } => "field",
            Self::NoPolicy { .. } => "no_policy",
            Self::Unjudged(_) => "unjudged",
            Self::QueueFull { .. } => "queue_full",
            Self::Busy { .. } => "busy",
            Self::NoRoute => "no_route",
            Self::NoMethod => "no_method",
            Self::Signing => "signing",
        }
    }
}
