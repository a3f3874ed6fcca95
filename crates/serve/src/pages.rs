//! Which web pages may use this server: by default none.
//!
//! A page of any origin may send a POST without asking first, and may open a WebSocket and read all
//! that comes back (the Fetch standard, section 3.3; RFC 6455 section 10.2). A browser names the
//! page's origin on both, and programs name none.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::Response,
};
use http::{HeaderMap, HeaderValue, Method, header::ORIGIN};

use crate::error::ApiError;

/// Refuses requests of pages whose origin is not allowed, which could change or read something.
pub(crate) async fn refuse_foreign(
    State(allowed): State<Arc<[HeaderValue]>>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let foreign = |origin: &HeaderValue| !allowed.contains(origin);
    let reads_only = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    let upgrades = request.headers().contains_key(http::header::UPGRADE);
    if (!reads_only || upgrades) && request.headers().get_all(ORIGIN).iter().any(foreign) {
        return Err(ApiError::ForeignOrigin);
    }
    Ok(next.run(request).await)
}

/// Refuses every request of a web page, for a GET with a long computation: a page may send any GET
/// without naming its origin.
///
/// # Errors
/// [`ApiError::ForeignOrigin`].
pub fn refuse_pages(headers: &HeaderMap) -> Result<(), ApiError> {
    // Fetch metadata (W3C, section 2.2): every current browser sends it, programs do not.
    if headers.get_all("sec-fetch-site").iter().any(|site| site != "none") {
        return Err(ApiError::ForeignOrigin);
    }
    Ok(())
}
