//! The routes of report 003 as a compatibility layer. What they say of encryption is computed from
//! what ran; what its server claimed and did not do is named in `docs/serve.md`.

mod chat;
pub mod frame;
mod query;
mod selftest;
mod socket;
mod split;
mod split_socket;
mod state;
mod stream;

use std::sync::Arc;

use axum::{
    Router,
    routing::{get, post},
};

pub(crate) use socket::Held;

use crate::site::Site;

pub(crate) fn routes() -> Router<Arc<Site>> {
    Router::new()
        .route("/api/v1/adapters", get(state::adapters))
        .route("/api/v1/adapters/{name}/swap", post(state::swap))
        .route("/api/v1/metrics", get(state::metrics))
        .route("/api/v1/chat/compare", post(chat::compare))
        .route("/api/v1/chat/stream", get(stream::open))
        .route("/api/v1/split/config", get(split::config))
        .route("/api/v1/split/forward", post(split::forward))
        .route("/api/v1/split/selftest", get(selftest::run))
        .route("/api/v1/selftest", get(selftest::run))
        .route("/api/v1/split/stream", get(split_socket::open))
        .route("/api/v1/split/tokenize", post(split::tokenize))
        .route("/api/v1/split/verify", post(split::verify))
}
