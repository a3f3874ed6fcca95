//! An accepted WebSocket, and what it holds until it ends.

use std::sync::{Arc, Mutex, PoisonError};

use confide_http::{BusyGuard, ConnectionPlace, open_client_stream, relay_websocket};
use http::Response;
use hyper::upgrade::OnUpgrade;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::mpsc,
};

use crate::{
    answer::AnswerBody, authorizer::Grant, connection::UpgradedSocket, limits::GatewayLimits,
    server_group::ServerPermit,
};

/// Two streams that the handshake has joined.
pub(crate) struct WebSocketRelay {
    /// The client's stream of HTTP/2; `None` in HTTP/1.1.
    client: Option<OnUpgrade>,
    upstream: UpgradedSocket,
    /// The place of the relay, if it shares its connection with others.
    _place: Option<Arc<BusyGuard>>,
    /// The permission to run a request on the server, which a WebSocket counts as.
    _permit: ServerPermit,
    /// The authorisation, whose request runs for as long as the relay.
    _grant: Option<Grant>,
}

impl WebSocketRelay {
    /// A relay that holds `permit` and `place` until it ends.
    pub(crate) fn new(
        client: Option<OnUpgrade>,
        upstream: UpgradedSocket,
        permit: ServerPermit,
        place: Option<Arc<BusyGuard>>,
    ) -> Self {
        Self { client, upstream, _place: place, _permit: permit, _grant: None }
    }

    /// Queues the relay in `place`, and returns the answer that accepts the WebSocket. The relay runs
    /// as a request of its API key until its end.
    pub(crate) fn start(
        mut self,
        mut answer: Response<AnswerBody>,
        place: RelayPlace<'_>,
        mut grant: Option<Grant>,
    ) -> Response<AnswerBody> {
        if let Some(grant) = &mut grant {
            grant.read_answer_head(answer.status(), answer.headers_mut());
        }
        self._grant = grant;
        place.send(Box::new(self));
        answer
    }

    /// Carries bytes as [`Self::run_on`] does, once the client's stream of HTTP/2 is open.
    pub(crate) async fn run(mut self, place: &ConnectionPlace, limits: &GatewayLimits) {
        if let Some(client) = self.client.take()
            && let Some(client) = open_client_stream(client, limits.upgrade).await
        {
            self.run_on(client, place, limits).await;
        }
    }

    /// Carries bytes until the WebSocket ends; `place` is the place of its connection.
    pub(crate) async fn run_on<S>(self, client: S, place: &ConnectionPlace, limits: &GatewayLimits)
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let Self { client: _, upstream, _place, _permit, _grant } = self;
        relay_websocket(client, upstream, place, limits.websocket_limits()).await;
    }
}

/// The destination of accepted WebSockets, whose relays run once their answers are sent.
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
