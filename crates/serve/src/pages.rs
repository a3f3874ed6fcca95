//! Decides which web pages may use this server; by default none. A page of any origin may send a
//! POST without a preflight, and may open a WebSocket and read from it (Fetch standard, section
//! 3.3; RFC 6455 section 10.2). A browser sends the page's origin with both, and programs send
//! none.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::Response,
};
use http::{HeaderMap, HeaderValue, Method, header::ORIGIN};

use crate::error::ApiError;

/// Refuses requests of pages whose origin is not allowed, except plain reads.
pub(crate) async fn refuse_foreign_origins(
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

/// Refuses every request of a web page. It is for a GET that causes a long computation, since pages
/// may send a GET without an origin.
///
/// # Errors
/// [`ApiError::ForeignOrigin`].
pub fn refuse_web_pages(headers: &HeaderMap) -> Result<(), ApiError> {
    // Fetch metadata (W3C, section 2.2), which every current browser sends and programs do not.
    if headers.get_all("sec-fetch-site").iter().any(|site| site != "none") {
        return Err(ApiError::ForeignOrigin);
    }
    Ok(())
}
