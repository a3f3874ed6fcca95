//! The errors of report 003's routes, which no other server has.

use confide_serve::ApiError;
use http::StatusCode;

fn of_route(status: StatusCode, reason: String) -> ApiError {
    ApiError::ExtraRoute { status, reason }
}

pub(crate) fn no_adapter() -> ApiError {
    of_route(StatusCode::NOT_FOUND, "no adapter is loaded".into())
}

pub(crate) fn no_hidden_states() -> ApiError {
    of_route(StatusCode::NOT_IMPLEMENTED, "this engine gives no hidden states".into())
}

pub(crate) fn no_upgrade(got: &str) -> ApiError {
    let wanted = "upgrade: wanted a WebSocket handshake of version 13 (RFC 6455)";
    of_route(StatusCode::UPGRADE_REQUIRED, format!("{wanted}, got {got}"))
}

pub(crate) fn sockets_full(limit: usize) -> ApiError {
    let reason = format!("too many WebSockets are open: wanted at most {limit}");
    of_route(StatusCode::SERVICE_UNAVAILABLE, reason)
}

pub(crate) fn message_too_large(limit: usize, got: usize) -> ApiError {
    let reason = format!("message is too large: wanted at most {limit} bytes, got {got}");
    of_route(StatusCode::PAYLOAD_TOO_LARGE, reason)
}

pub(crate) fn unreadable_message(reason: &str) -> ApiError {
    of_route(StatusCode::BAD_REQUEST, format!("message cannot be read: {reason}"))
}
