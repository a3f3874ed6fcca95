//! The errors of the API, with their statuses and codes.

use std::{fmt::Display, time::Duration};

use axum::response::{IntoResponse, Response};
use confide_engine::EngineError;
use confide_lora::AdaptError;
use http::{HeaderValue, StatusCode, header};
use serde_json::{Value, json};

use crate::{
    adapters::{LoadError, SourceError},
    clip::truncate_with_ellipsis,
};

/// The reason why a client gets no completion.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages explain the fields")]
pub enum ApiError {
    #[error("request body is not a JSON object: {reason}")]
    NotJson { reason: String },
    #[error("request body is too large: wanted at most {limit} bytes")]
    BodyTooLarge { limit: usize },
    #[error("request body did not arrive within {} s", .limit.as_secs())]
    BodyLate { limit: Duration },
    #[error("request body ended early: {reason}")]
    BodyBroken { reason: String },
    #[error("{param} is missing")]
    Missing { param: String },
    #[error("{param}: wanted {wanted}, got {got}")]
    Field { param: String, wanted: String, got: String },
    #[error("{param} is not a known field")]
    UnknownField { param: String },
    #[error("no such route: {method} {path}")]
    NoRoute { method: String, path: String },
    #[error("method {method} is not allowed for {path}")]
    NotAllowed { method: String, path: String },
    #[error("model {got:?} is not served here: wanted {served}")]
    NoModel { got: String, served: String },
    #[error("no slot became free within {} s", .waited.as_secs())]
    Busy { waited: Duration },
    #[error("generation took longer than {} s", .limit.as_secs())]
    Deadline { limit: Duration },
    #[error("request comes from a web page whose origin is not allowed")]
    ForeignOrigin,
    #[error("too many adapters are being loaded; try again later")]
    LoadsQueued,
    /// The error of a route that the caller added.
    #[error("{reason}")]
    ExtraRoute { status: StatusCode, reason: String },
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl ApiError {
    /// An error about a field's value. A long value is shortened, so that the answer stays small.
    pub fn invalid_field(param: &str, wanted: impl Display, got: &Value) -> Self {
        let got = truncate_with_ellipsis(&got.to_string());
        ApiError::Field { param: param.into(), wanted: wanted.to_string(), got }
    }

    /// The HTTP status of the answer.
    pub fn status(&self) -> StatusCode {
        match self {
            ApiError::NotJson { .. }
            | ApiError::BodyBroken { .. }
            | ApiError::Missing { .. }
            | ApiError::Field { .. }
            | ApiError::UnknownField { .. } => StatusCode::BAD_REQUEST,
            ApiError::BodyLate { .. } => StatusCode::REQUEST_TIMEOUT,
            ApiError::BodyTooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            ApiError::NoRoute { .. } | ApiError::NoModel { .. } => StatusCode::NOT_FOUND,
            ApiError::ForeignOrigin => StatusCode::FORBIDDEN,
            ApiError::LoadsQueued => StatusCode::TOO_MANY_REQUESTS,
            ApiError::ExtraRoute { status, .. } => *status,
            ApiError::Load(error) => load_status(error),
            ApiError::NotAllowed { .. } => StatusCode::METHOD_NOT_ALLOWED,
            ApiError::Busy { .. } | ApiError::Deadline { .. } => StatusCode::SERVICE_UNAVAILABLE,
            ApiError::Engine(error) => engine_status(error),
        }
    }

    /// The error as an object of OpenAI's API.
    pub fn body(&self) -> Value {
        json!({ "error": {
            "message": self.to_string(),
            "type": self.error_type(),
            "param": self.param(),
            "code": self.code(),
        }})
    }

    fn error_type(&self) -> &'static str {
        match self.status() {
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            status if status.is_client_error() => "invalid_request_error",
            _ => "server_error",
        }
    }

    fn param(&self) -> Option<&str> {
        match self {
            ApiError::Missing { param }
            | ApiError::Field { param, .. }
            | ApiError::UnknownField { param } => Some(param),
            ApiError::NoModel { .. } | ApiError::Engine(EngineError::UnknownModel { .. }) => {
                Some("model")
            }
            _ => None,
        }
    }

    fn code(&self) -> Option<&'static str> {
        Some(match self {
            ApiError::Missing { .. } => "missing_required_parameter",
            ApiError::Field { .. } => "invalid_value",
            ApiError::UnknownField { .. } => "unknown_parameter",
            ApiError::BodyTooLarge { .. } => "body_too_large",
            ApiError::Busy { .. } => "busy",
            ApiError::Deadline { .. } => "deadline_exceeded",
            ApiError::NoModel { .. } | ApiError::Engine(EngineError::UnknownModel { .. }) => {
                "model_not_found"
            }
            ApiError::Engine(EngineError::PromptTooLong { .. }) => "context_length_exceeded",
            ApiError::Engine(EngineError::QueueFull { .. }) => "queue_full",
            ApiError::Engine(EngineError::Unavailable { .. }) => "engine_unavailable",
            ApiError::Engine(EngineError::OutOfMemory { .. }) => "out_of_memory",
            ApiError::ForeignOrigin => "foreign_origin",
            ApiError::Load(LoadError::Disabled) => "runtime_adapters_off",
            ApiError::Load(LoadError::Source(SourceError::Refused { .. })) => {
                "adapter_path_refused"
            }
            ApiError::Engine(EngineError::Adapter { error, .. }) => match error {
                AdaptError::HostLost { .. } => "adapter_lost",
                AdaptError::Budget { .. } | AdaptError::BudgetTooSmall { .. } => "adapter_budget",
                AdaptError::Activation { .. } => "adapter_activation",
                _ => "adapter_refused",
            },
            _ => return None,
        })
    }
}

fn engine_status(error: &EngineError) -> StatusCode {
    match error {
        EngineError::UnknownModel { .. } => StatusCode::NOT_FOUND,
        EngineError::Prompt { .. }
        | EngineError::PromptTooLong { .. }
        | EngineError::NoAdapters
        | EngineError::NameTaken { .. }
        | EngineError::TooManyAdapters { .. }
        | EngineError::AdapterSite { .. } => StatusCode::BAD_REQUEST,
        EngineError::QueueFull { .. } => StatusCode::TOO_MANY_REQUESTS,
        EngineError::Stopped
        | EngineError::Unavailable { .. }
        | EngineError::OutOfMemory { .. } => StatusCode::SERVICE_UNAVAILABLE,
        EngineError::Adapter { error, .. } => match error {
            // Clients retry a 429, but a used-up budget does not recover.
            AdaptError::Budget { .. } | AdaptError::BudgetTooSmall { .. } => StatusCode::FORBIDDEN,
            AdaptError::Activation { .. } => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::BAD_GATEWAY,
        },
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

fn load_status(error: &LoadError) -> StatusCode {
    match error {
        LoadError::NotLoaded { .. } => StatusCode::NOT_FOUND,
        LoadError::Disabled | LoadError::Source(SourceError::Refused { .. }) => {
            StatusCode::FORBIDDEN
        }
        LoadError::Engine(error) => engine_status(error),
        _ => StatusCode::BAD_REQUEST,
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = self.status();
        let json = HeaderValue::from_static("application/json");
        let body = self.body().to_string();
        (status, [(header::CONTENT_TYPE, json)], body).into_response()
    }
}
