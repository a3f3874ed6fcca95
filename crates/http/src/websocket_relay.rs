//! Carries the bytes of an accepted WebSocket between a client and the next hop, unread.

use std::time::Duration;

use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{
    activity::Activity, admission::ConnectionPlace, observed_stream::ObservedStream,
    stall::StallGuard,
};

/// The time without a byte once one side has ended its direction. The other side of a WebSocket only
/// has its closing frame left to send.
const HALF_CLOSED: Duration = Duration::from_secs(20);
/// The bytes of each direction that are read at once.
const BUFFER_BYTES: usize = 16 * 1024;

/// Limits of an accepted WebSocket.
#[derive(Clone, Copy, Debug)]
pub struct WebSocketLimits {
    /// The longest time in which nothing moves.
    pub idle: Duration,
    /// The longest time for which a side may not read.
    pub write_stall: Duration,
    /// The longest time for which the WebSocket is open.
    pub lifetime: Duration,
}

/// Waits until the client's stream is open, once the answer that accepts was sent; `None` if that takes
/// longer than `deadline`.
pub async fn open_client_stream(
    client: OnUpgrade,
    deadline: Duration,
) -> Option<TokioIo<Upgraded>> {
    match tokio::time::timeout(deadline, client).await {
        Ok(Ok(stream)) => return Some(TokioIo::new(stream)),
        Ok(Err(error)) => tracing::debug!(%error, "a WebSocket was not opened"),
        Err(_) => tracing::debug!("a WebSocket was not opened in time"),
    }
    None
}

/// Carries bytes until both sides have ended, one side fails or does not read for too long, nothing
/// has moved for the idle limit, or the longest lifetime is over. Both sides then end.
///
/// The connection counts as busy while bytes move; `place` is its place.
pub async fn relay_websocket<C, S>(
    client: C,
    upstream: S,
    place: &ConnectionPlace,
    limits: WebSocketLimits,
) where
    C: AsyncRead + AsyncWrite + Unpin,
    S: AsyncRead + AsyncWrite + Unpin,
{
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
        () = activity.wait_until_idle(limits.idle, HALF_CLOSED) => {
            tracing::debug!("a WebSocket was cut: idle");
        }
        () = tokio::time::sleep(limits.lifetime) => {
            tracing::debug!("a WebSocket was cut: open for too long");
        }
    }
}
