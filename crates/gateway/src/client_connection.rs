//! The connection on which a request has come.

use std::sync::{Mutex, PoisonError};

use confide_http::Peer;
use tokio::sync::mpsc;

use crate::{fresh_evidence::FreshEvidence, websocket_relay::WebSocketRelay};

/// The connection on which a request has come.
#[derive(Clone, Copy)]
pub(crate) struct ClientConnection<'a> {
    pub(crate) peer: Peer,
    /// Where accepted WebSockets go.
    pub(crate) relays: RelaySink<'a>,
    /// The source of fresh evidence for the client; `None` without session binding.
    pub(crate) evidence: Option<&'a FreshEvidence>,
}

/// Where accepted WebSockets go, of which a relay is run once the answer is sent.
#[derive(Clone, Copy)]
pub(crate) enum RelaySink<'a> {
    /// The connection of HTTP/1.1 becomes the only one.
    Single(&'a Mutex<Option<Box<WebSocketRelay>>>),
    /// Each is a stream of a connection of HTTP/2.
    Many(&'a mpsc::Sender<Box<WebSocketRelay>>),
}

/// Room for one accepted WebSocket.
pub(crate) enum RelayPlace<'a> {
    Single(&'a Mutex<Option<Box<WebSocketRelay>>>),
    Many(mpsc::Permit<'a, Box<WebSocketRelay>>),
}

impl<'a> RelaySink<'a> {
    /// Room for one more; `None` if there is none.
    pub(crate) fn reserve(self) -> Option<RelayPlace<'a>> {
        match self {
            Self::Single(slot) => Some(RelayPlace::Single(slot)),
            Self::Many(queue) => queue.try_reserve().ok().map(RelayPlace::Many),
        }
    }
}

impl RelayPlace<'_> {
    pub(crate) fn send(self, relay: Box<WebSocketRelay>) {
        match self {
            Self::Single(slot) => {
                *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(relay);
            }
            Self::Many(permit) => permit.send(relay),
        }
    }
}
