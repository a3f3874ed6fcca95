//! The connection on which a request has come.

use confide_http::Peer;

use crate::{fresh_evidence::FreshEvidence, websocket_relay::RelaySink};

/// The connection on which a request has come.
#[derive(Clone, Copy)]
pub(crate) struct ClientConnection<'a> {
    pub(crate) peer: Peer,
    /// The destination of accepted WebSockets.
    pub(crate) relays: RelaySink<'a>,
    /// The source of fresh evidence for the client; `None` without session binding.
    pub(crate) evidence: Option<&'a FreshEvidence>,
}
