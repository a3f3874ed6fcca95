//! Who is let in, and an end that lets those finish who were.

use std::{
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

use confide_http::{Admission, Drained, Occupancy, Peer, PeerStream, TurnWatch, accept_until};
use confide_lora::host::{AdapterHost, PeerPrefix};
use tokio::net::TcpListener;

use super::evidence::Door;

/// How long running requests may go on after the signal to stop. A batch takes seconds.
const DRAIN_DEADLINE: Duration = Duration::from_secs(5);
/// How often sessions without connections are looked for.
const EXPIRY_EVERY: Duration = Duration::from_secs(10);

/// Serves until `stop`, then lets requests end that have begun.
pub(super) async fn serve(
    listener: TcpListener,
    door: Arc<Door>,
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
        let serve = move |stream, place, _| one(stream, place, door.clone(), host.clone());
        accept_until(listener, admission, DRAIN_DEADLINE, stop, serve)
    };
    let mut serving = pin!(serving);
    let mut expiry = tokio::time::interval(EXPIRY_EVERY);
    let drained = loop {
        tokio::select! {
            drained = serving.as_mut() => break drained,
            _ = expiry.tick() => host.expire(),
        }
    };
    if let Drained::Cut(connections) = drained {
        tracing::warn!(connections, "cut after the drain deadline");
    }
    host.close();
}

/// A key holder has one connection for each generation that runs, and one for preparations.
async fn one(stream: PeerStream, place: Occupancy, door: Arc<Door>, host: Arc<AdapterHost>) {
    let Some((stream, peer)) = door.pass(stream, Some(prefix_of(place.peer()))).await else {
        return;
    };
    let stream = TurnWatch::new(stream, place);
    if let Err(error) = host.serve(stream, peer).await {
        tracing::debug!(%error, "a key holder's connection ended early");
    }
}

/// The same peer in the words of the sessions.
fn prefix_of(peer: Peer) -> PeerPrefix {
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
