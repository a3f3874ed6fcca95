//! The state that the handlers of all routes share.

use std::{
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use confide_serve::ServerState;
use tokio::sync::{Mutex, Semaphore};

use crate::split_mode::LazyClientHead;

/// Configuration of the routes.
#[derive(Clone, Debug, Default)]
pub struct RouteOptions {
    /// The client's half of split mode, for the self-test and for clients without a tokenizer.
    pub head: Option<Arc<LazyClientHead>>,
    /// The limits of the WebSockets.
    pub sockets: SocketLimits,
}

/// The limits of the WebSockets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketLimits {
    /// The greatest number of open WebSockets.
    pub open: usize,
    /// The greatest length of a message in bytes: 2,048 embeddings of 1,536 elements in base64 are
    /// 16 MiB.
    pub message_bytes: usize,
    /// The longest time without a message from the client.
    pub idle: Duration,
}

impl Default for SocketLimits {
    fn default() -> Self {
        Self { open: 256, message_bytes: 17 << 20, idle: Duration::from_secs(300) }
    }
}

/// The state that the handlers share.
pub(super) struct RouteState {
    pub(super) server: Arc<ServerState>,
    pub(super) head: Option<Arc<LazyClientHead>>,
    pub(super) limits: SocketLimits,
    /// Permits for WebSockets, one for each that may be open.
    pub(super) sockets: Arc<Semaphore>,
    /// Locked while a self-test runs: it computes for seconds, so only one may run at a time.
    pub(super) selftest: Mutex<()>,
    pub(super) sockets_opened: AtomicU64,
    pub(super) split_forwards: AtomicU64,
}
