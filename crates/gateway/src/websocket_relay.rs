//! An accepted WebSocket, and what it holds until it ends.

use std::sync::Arc;

use confide_http::{BusyGuard, ConnectionPlace, relay_websocket};
use http::Response;
use hyper::upgrade::OnUpgrade;
use tokio::sync::mpsc;

use crate::{
    answer::AnswerBody, authorizer::Grant, http1_connection::UpgradedSocket, limits::GatewayLimits,
    server_group::ServerPermit,
};

/// Two streams that the handshake has joined.
pub(crate) struct WebSocketRelay {
    client: OnUpgrade,
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
        client: OnUpgrade,
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
        place: mpsc::Permit<'_, Box<Self>>,
        mut grant: Option<Grant>,
    ) -> Response<AnswerBody> {
        if let Some(grant) = &mut grant {
            grant.read_answer_head(answer.status(), answer.headers_mut());
        }
        self._grant = grant;
        place.send(Box::new(self));
        answer
    }

    /// Carries bytes until the WebSocket ends; `place` is the place of its connection.
    pub(crate) async fn run(self, place: &ConnectionPlace, limits: &GatewayLimits) {
        let Self { client, upstream, _place, _permit, _grant } = self;
        relay_websocket(client, upstream, place, limits.websocket_limits()).await;
    }
}
