//! The errors of report 003's routes, which no other server has.

use confide_serve::ApiError;
use http::StatusCode;

fn route_error(status: StatusCode, reason: String) -> ApiError {
    ApiError::ExtraRoute { status, reason }
}

pub(crate) fn no_adapter_error() -> ApiError {
    route_error(StatusCode::NOT_FOUND, "no adapter is loaded".into())
}

pub(crate) fn no_hidden_states_error() -> ApiError {
    route_error(StatusCode::NOT_IMPLEMENTED, "this engine does not return hidden states".into())
}

pub(crate) fn upgrade_required_error(got: &str) -> ApiError {
    let wanted = "upgrade: wanted a WebSocket handshake of version 13 (RFC 6455)";
    route_error(StatusCode::UPGRADE_REQUIRED, format!("{wanted}, got {got}"))
}

pub(crate) fn sockets_full_error(limit: usize) -> ApiError {
    let reason = format!("too many WebSockets are open: wanted at most {limit}");
    route_error(StatusCode::SERVICE_UNAVAILABLE, reason)
}

pub(crate) fn message_too_large_error(limit: usize, got: usize) -> ApiError {
    let reason = format!("message is too large: wanted at most {limit} bytes, got {got}");
    route_error(StatusCode::PAYLOAD_TOO_LARGE, reason)
}

pub(crate) fn unreadable_message_error(reason: &str) -> ApiError {
    route_error(StatusCode::BAD_REQUEST, format!("message cannot be read: {reason}"))
}
