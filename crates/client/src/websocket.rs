//! WebSockets between local clients and the attested end.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use confide_http::{ConnectionPlace, RewoundStream, WebSocketLimits, relay_websocket};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{limits::ClientLimits, remote_stream::RemoteStream, running_request::RequestPlace};

/// A WebSocket that the attested end has accepted, on a connection of its own.
pub(crate) struct AttestedWebSocket {
    /// The attested end's stream.
    pub(crate) stream: RewoundStream<RemoteStream>,
    /// The time until its evidence is too old or its claims expire. Fresh evidence cannot be asked
    /// for on a connection that no longer carries HTTP.
    pub(crate) lifetime: Duration,
    /// The permission to run a request, which a WebSocket counts as.
    pub(crate) place: RequestPlace,
}

/// The WebSocket that follows a local connection's HTTP, if there is one.
#[derive(Default)]
pub(crate) struct WebSocketSlot(Mutex<Option<AttestedWebSocket>>);

impl AttestedWebSocket {
    /// Carries bytes between `client` and the attested end until the WebSocket ends; `place` is the
    /// place of the local connection.
    pub(crate) async fn relay<S>(self, client: S, place: &ConnectionPlace, limits: &ClientLimits)
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let Self { stream, lifetime, place: request_place } = self;
        let limits = WebSocketLimits {
            idle: limits.websocket_idle,
            write_stall: limits.write_stall,
            lifetime,
        };
        relay_websocket(client, stream, place, limits).await;
        drop(request_place);
    }
}

impl WebSocketSlot {
    /// Leaves the WebSocket for the connection, whose HTTP ends with the answer that accepts.
    pub(crate) fn put(&self, websocket: AttestedWebSocket) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(websocket);
    }

    /// Takes the WebSocket.
    pub(crate) fn take(&self) -> Option<AttestedWebSocket> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
