//! The routes of report 003 under `/api/v1`, to be added to those of `confide-serve`
//! ([`confide_serve::Options::extra_routes`]). Their statements about encryption are computed from
//! the operations that ran; `docs/serve.md` names the claims of the report's server that it did not
//! keep.

mod chat;
mod layer;
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

use confide_serve::ExtraRoutes;
use tokio::sync::Semaphore;

use layer::Layer;
pub use layer::{RouteOptions, SocketLimits};

/// Makes the routes, for a server that is made later.
pub fn routes(options: RouteOptions) -> ExtraRoutes {
    Arc::new(move |server| {
        let RouteOptions { head, sockets: limits } = options.clone();
        let sockets = Arc::new(Semaphore::new(limits.open));
        let (selftest, sockets_opened, split_forwards) = Default::default();
        let layer =
            Layer { server, head, limits, sockets, selftest, sockets_opened, split_forwards };
        router().with_state(Arc::new(layer))
    })
}

fn router() -> Router<Arc<Layer>> {
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
