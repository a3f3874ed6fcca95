//! The accept loop of an adapter host, and its drain.

use std::{
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

use confide_http::{Admission, ConnectionPlace, HalfDuplexStream, Peer, PeerStream, accept_until};
use confide_lora::host::{AdapterHost, PeerPrefix};
use tokio::net::TcpListener;

use super::entrance::ChannelAcceptor;
use crate::process::warn_of_cut_connections;

/// How long running requests may continue after the signal to stop. A batch takes seconds.
const DRAIN_DEADLINE: Duration = Duration::from_secs(5);
/// Interval between checks for sessions without connections.
const EXPIRY_EVERY: Duration = Duration::from_secs(10);

/// Serves until `stop`, then lets running requests end.
pub(super) async fn serve(
    listener: TcpListener,
    entrance: Arc<ChannelAcceptor>,
    host: Arc<AdapterHost>,
    admission: Admission,
    stop: Pin<&mut impl Future<Output = ()>>,
) {
    let serving = {
        let (host, stopping) = (host.clone(), host.clone());
        let stop = async move {
            stop.await;
            stopping.stop();
        };
        let serve =
            move |stream, place, _| serve_connection(stream, place, entrance.clone(), host.clone());
        accept_until(listener, admission, DRAIN_DEADLINE, stop, serve)
    };
    let mut serving = pin!(serving);
    let mut expiry = tokio::time::interval(EXPIRY_EVERY);
    let drained = loop {
        tokio::select! {
            drained = serving.as_mut() => break drained,
            _ = expiry.tick() => host.expire_sessions(),
        }
    };
    warn_of_cut_connections(drained);
    host.write_final_counts();
}

/// Serves one connection. A key holder has one for each generation that runs, and one for preparations.
async fn serve_connection(
    stream: PeerStream,
    place: ConnectionPlace,
    entrance: Arc<ChannelAcceptor>,
    host: Arc<AdapterHost>,
) {
    let Some((stream, peer)) = entrance.accept(stream, Some(peer_prefix(place.peer()))).await
    else {
        return;
    };
    let stream = HalfDuplexStream::new(stream, place);
    if let Err(error) = host.serve(stream, peer).await {
        tracing::debug!(%error, "a key holder's connection ended early");
    }
}

/// The peer as the sessions count it.
fn peer_prefix(peer: Peer) -> PeerPrefix {
    match peer {
        Peer::V4(address) => PeerPrefix::V4(address),
        Peer::V6(groups) => {
            let mut network = [0; 8];
            for (pair, group) in network.chunks_exact_mut(2).zip(groups) {
                pair.copy_from_slice(&group.to_be_bytes());
            }
            PeerPrefix::V6(network)
        }
    }
}
