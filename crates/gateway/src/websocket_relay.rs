//! Carries the bytes of an accepted WebSocket between a client and the upstream, unread.

use std::{sync::Arc, time::Duration};

use confide_http::{Activity, BusyGuard, ConnectionPlace, ObservedStream, StallGuard};
use http::Response;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{
    answer::AnswerBody, authorizer::Grant, client_connection::RelayPlace,
    http1_connection::UpgradedSocket, limits::GatewayLimits, server_group::ServerPermit,
};

/// The time without a byte once one side has ended its direction. The other side of a WebSocket only
/// has its closing frame left to send.
const HALF_CLOSED: Duration = Duration::from_secs(20);
/// The bytes of each direction that are read at once.
const BUFFER_BYTES: usize = 16 * 1024;

/// Two streams that the handshake has joined.
pub(crate) struct WebSocketRelay {
    /// The client's stream of HTTP/2; `None` in HTTP/1.1.
    client: Option<OnUpgrade>,
    upstream: UpgradedSocket,
    /// The place of the relay, if it shares its connection with others.
    _place: Option<Arc<BusyGuard>>,
    /// The permission to run a request on the server, which a WebSocket counts as.
    _permit: Option<ServerPermit>,
    /// The authorisation, whose request runs for as long as the relay.
    _grant: Option<Grant>,
}

impl WebSocketRelay {
    pub(crate) fn new(
        client: Option<OnUpgrade>,
        upstream: UpgradedSocket,
        place: Option<Arc<BusyGuard>>,
    ) -> Self {
        Self { client, upstream, _place: place, _permit: None, _grant: None }
    }

    /// Returns the relay, which now holds the permission to run on its server until it ends.
    pub(crate) fn with_permit(mut self, permit: ServerPermit) -> Self {
        self._permit = Some(permit);
        self
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
        let Some(client) = self.client.take() else { return };
        match tokio::time::timeout(limits.upgrade, client).await {
            Ok(Ok(client)) => self.run_on(TokioIo::new(client), place, limits).await,
            Ok(Err(error)) => tracing::debug!(%error, "a WebSocket was not opened"),
            Err(_) => tracing::debug!("a WebSocket was not opened in time"),
        }
    }

    /// Carries bytes until both sides have ended, one side fails or does not read for too long,
    /// nothing has moved for the idle limit, or the longest lifetime is over. Both sides then end.
    ///
    /// The connection counts as busy while bytes move; `place` is its place.
    pub(crate) async fn run_on<S>(self, client: S, place: &ConnectionPlace, limits: &GatewayLimits)
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let Self { client: _, upstream, _place, _permit, _grant } = self;
        let activity = Activity::new(place);
        let client = StallGuard::new(client, limits.write_stall);
        let upstream = StallGuard::new(upstream, limits.write_stall);
        let mut client = ObservedStream::with_observer(client, &activity);
        let mut upstream = ObservedStream::with_observer(upstream, &activity);
        let moved = tokio::io::copy_bidirectional_with_sizes(
            &mut client,
            &mut upstream,
            BUFFER_BYTES,
            BUFFER_BYTES,
        );
        tokio::select! {
            outcome = moved => match outcome {
                Ok((up, down)) => tracing::debug!(up, down, "a WebSocket ended"),
                Err(error) => tracing::debug!(%error, "a WebSocket was cut"),
            },
            () = activity.wait_until_idle(limits.upgraded_idle, HALF_CLOSED) => {
                tracing::debug!("a WebSocket was cut: idle");
            }
            () = tokio::time::sleep(limits.websocket) => {
                tracing::debug!("a WebSocket was cut: open for too long");
            }
        }
    }
}
