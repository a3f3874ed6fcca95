//! The routes of report 003 under `/api/v1`, to be added to those of `confide-serve`
//! ([`confide_serve::ServeOptions::extra_routes`]). Their statements about encryption are computed from
//! the operations that ran. `docs/serve.md` lists the claims of the report's server that were not
//! true.

mod adapters;
mod chat;
mod query;
mod route_state;
mod selftest;
mod socket;
mod split;
mod split_socket;
mod stream;

use std::sync::Arc;

use axum::{
    Router,
    routing::{get, post},
};

use confide_serve::ExtraRoutes;
use tokio::sync::Semaphore;

use route_state::RouteState;
pub use route_state::{RouteOptions, SocketLimits};

/// Returns a function that adds the routes to a server.
pub fn routes(options: RouteOptions) -> ExtraRoutes {
    Arc::new(move |server| {
        let RouteOptions { head, sockets: limits } = options.clone();
        let sockets = Arc::new(Semaphore::new(limits.open));
        let (selftest, sockets_opened, split_forwards) = Default::default();
        let state =
            RouteState { server, head, limits, sockets, selftest, sockets_opened, split_forwards };
        router().with_state(Arc::new(state))
    })
}

fn router() -> Router<Arc<RouteState>> {
    Router::new()
        .route("/api/v1/adapters", get(adapters::list_adapters))
        .route("/api/v1/adapters/{name}/swap", post(adapters::swap_adapter))
        .route("/api/v1/metrics", get(adapters::metrics))
        .route("/api/v1/chat/compare", post(chat::compare_with_base))
        .route("/api/v1/chat/stream", get(stream::open_chat_socket))
        .route("/api/v1/split/config", get(split::model_config))
        .route("/api/v1/split/forward", post(split::forward))
        .route("/api/v1/split/selftest", get(selftest::run_selftest))
        .route("/api/v1/selftest", get(selftest::run_selftest))
        .route("/api/v1/split/stream", get(split_socket::open_split_socket))
        .route("/api/v1/split/tokenize", post(split::tokenize))
        .route("/api/v1/split/verify", post(split::verify_forward))
}
