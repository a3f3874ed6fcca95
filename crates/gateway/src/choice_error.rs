//! The reasons why no model server is chosen for a request.

use std::time::Duration;

use confide_http::QueueError;
use http::StatusCode;

use crate::model_field::ModelFieldError;

/// The reason why a request goes to no model server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ChoiceError {
    /// The body has a coding, so that its model cannot be found.
    #[error("request body has a content coding: wanted none, because the body names the model")]
    ContentCoding,
    /// The body has several types, one in which its model cannot be found, or another character
    /// set.
    #[error(
        "request body: wanted one Content-Type, JSON or multipart/, and no character set but utf-8"
    )]
    ContentType,
    /// The body did not arrive whole in time.
    #[error("request body did not arrive whole within {deadline:?}")]
    BodyLate {
        /// The longest time for it to arrive.
        deadline: Duration,
    },
    /// The body names no model, or in a way that servers read differently.
    #[error(transparent)]
    ModelNotNamed(#[from] ModelFieldError),
    /// No salt for the prefix cache can be written into the body.
    #[error(
        "request body: wanted one JSON object in UTF-8, of at most 4,096 members and without a byte \
         order mark, got something else"
    )]
    Unsaltable,
    /// Requests get a salt, which the model server is not known to honour on this path.
    #[error(
        "path: wanted /v1/chat/completions, /v1/completions or /v1/responses for a prompt, because \
         model servers are not known to honour a cache salt on others"
    )]
    UnsaltedPath,
    /// No server of the group lists the model.
    #[error("the model does not exist: no model server of this path lists it")]
    ModelNotFound,
    /// The request bodies in memory, of all clients or of one address, have reached their bound.
    #[error(
        "too many bytes of request bodies are in memory, of all clients or of yours: try again"
    )]
    BuffersFull,
    /// All servers are busy.
    #[error("all model servers are busy: {0}")]
    Queue(#[from] QueueError),
    /// All servers are busy, and too many requests of one address wait.
    #[error("all model servers are busy: {queued} requests of your address wait")]
    QueueShareFull {
        /// The largest number of requests of one address that may wait.
        queued: usize,
    },
}

impl ChoiceError {
    /// The status and the error code of the gateway's answer.
    pub(crate) fn to_status_and_code(self) -> (StatusCode, &'static str) {
        match self {
            Self::ContentCoding => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "content_coding"),
            Self::ContentType => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "content_type"),
            Self::BodyLate { .. } => (StatusCode::REQUEST_TIMEOUT, "request_timeout"),
            Self::ModelNotNamed(_) => (StatusCode::BAD_REQUEST, "model_not_named"),
            Self::Unsaltable => (StatusCode::BAD_REQUEST, "body_not_json"),
            Self::UnsaltedPath => (StatusCode::FORBIDDEN, "cache_salt_unsupported"),
            Self::ModelNotFound => (StatusCode::NOT_FOUND, "model_not_found"),
            Self::BuffersFull => (StatusCode::SERVICE_UNAVAILABLE, "gateway_busy"),
            Self::Queue(QueueError::Full { .. }) | Self::QueueShareFull { .. } => {
                (StatusCode::SERVICE_UNAVAILABLE, "queue_full")
            }
            Self::Queue(QueueError::TimedOut { .. }) => {
                (StatusCode::SERVICE_UNAVAILABLE, "queue_timeout")
            }
        }
    }

    /// Whether the same request may succeed a little later.
    pub(crate) fn is_transient(self) -> bool {
        matches!(self, Self::BuffersFull | Self::Queue(_) | Self::QueueShareFull { .. })
    }
}
