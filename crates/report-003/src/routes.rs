//! The routes of report 003 under `/api/v1`, to be added to those of `confide-serve`
//! ([`confide_serve::Options::extra_routes`]). What they say of encryption is computed from what ran;
//! what the report's server claimed and did not do is named in `docs/serve.md`.

mod chat;
mod query;
mod selftest;
mod socket;
mod split;
mod split_socket;
mod state;
mod stream;

use std::{
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use axum::{
    Router,
    routing::{get, post},
};

use confide_serve::{ExtraRoutes, ServerState};
use tokio::sync::{Mutex, Semaphore};

use crate::split_mode::LateHead;

/// Configuration of the routes.
#[derive(Clone, Debug, Default)]
pub struct RouteOptions {
    /// The client's half of split mode, for the self-test and for clients without a tokenizer.
    pub head: Option<Arc<LateHead>>,
    /// The bounds of the WebSockets.
    pub sockets: SocketLimits,
}

/// The bounds of the WebSockets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketLimits {
    /// WebSockets open at once.
    pub open: usize,
    /// Longest message in bytes: 2,048 embeddings of 1,536 elements in base64 are 16 MiB.
    pub message_bytes: usize,
    /// Longest silence of a client.
    pub idle: Duration,
}

impl Default for SocketLimits {
    fn default() -> Self {
        Self { open: 256, message_bytes: 17 << 20, idle: Duration::from_secs(300) }
    }
}

/// What the handlers share.
struct Layer {
    server: Arc<ServerState>,
    head: Option<Arc<LateHead>>,
    limits: SocketLimits,
    /// WebSockets that may still be opened.
    sockets: Arc<Semaphore>,
    /// One self-test at a time: it computes for seconds.
    selftest: Mutex<()>,
    sockets_opened: AtomicU64,
    split_forwards: AtomicU64,
}

/// The routes, for a server that is made later.
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
