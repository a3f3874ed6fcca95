//! The connection on which a request has come.

use confide_http::Peer;
use tokio::sync::mpsc;

use crate::{fresh_evidence::FreshEvidence, websocket_relay::WebSocketRelay};

/// The connection on which a request has come.
#[derive(Clone, Copy)]
pub(crate) struct ClientConnection<'a> {
    pub(crate) peer: Peer,
    /// The queue of WebSockets that were accepted.
    pub(crate) relays: &'a mpsc::Sender<Box<WebSocketRelay>>,
    /// The source of fresh evidence for the client; `None` without session binding.
    pub(crate) evidence: Option<&'a FreshEvidence>,
}
