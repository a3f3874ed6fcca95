//! Reads request bodies and writes JSON answers.

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use http::{HeaderValue, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde_json::Value;

use crate::{error::ApiError, limits::ServeLimits};

/// Reads a body within its limits of length and time.
///
/// # Errors
/// [`ApiError::BodyLate`], [`ApiError::BodyTooLarge`] or [`ApiError::BodyBroken`].
pub async fn read_body(limits: &ServeLimits, body: Body) -> Result<Bytes, ApiError> {
    match tokio::time::timeout(limits.body_wait, read_bounded(body, limits)).await {
        Err(_) => Err(ApiError::BodyLate { limit: limits.body_wait }),
        Ok(body) => body,
    }
}

/// An answer with status 200 and a JSON body.
pub fn json_response(value: &Value) -> Response {
    let kind = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, kind)], value.to_string()).into_response()
}

async fn read_bounded(mut body: Body, limits: &ServeLimits) -> Result<Bytes, ApiError> {
    let limit = limits.body_bytes;
    match Limited::new(&mut body, limit).collect().await {
        Ok(whole) => return Ok(whole.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {}
        Err(error) => return Err(ApiError::BodyBroken { reason: error.to_string() }),
    }
    let mut left = limits.discarded_bytes;
    while let Some(Ok(frame)) = body.frame().await {
        let length = frame.data_ref().map_or(0, Bytes::len);
        let Some(rest) = left.checked_sub(length) else { break };
        left = rest;
    }
    Err(ApiError::BodyTooLarge { limit })
}
