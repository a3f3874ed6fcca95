//! The accept loop: a bounded number of connections, and an end that lets them finish.

use std::{pin::Pin, sync::Arc, time::Duration};

use confide_lora::host::AdapterHost;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinSet,
};

use super::evidence::Door;

/// Connections at once; further ones wait in the kernel's backlog. A key holder has one for each
/// generation that runs, and one for preparations.
const CONNECTIONS_MAX: usize = 1024;
/// How long running requests may go on after the signal to stop. A batch takes seconds.
const DRAIN_DEADLINE: Duration = Duration::from_secs(5);
/// Pause after a failed accept (out of file descriptors), so that the loop does not spin.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);
/// How often sessions without connections are looked for.
const EXPIRY_EVERY: Duration = Duration::from_secs(10);

/// Serves until `stop`, then lets requests end that have begun.
pub(super) async fn serve(
    listener: TcpListener,
    door: Arc<Door>,
    host: Arc<AdapterHost>,
    mut stop: Pin<&mut impl Future<Output = ()>>,
) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    let mut expiry = tokio::time::interval(EXPIRY_EVERY);
    loop {
        let next = async {
            let slot = slots.clone().acquire_owned().await.ok();
            (listener.accept().await, slot)
        };
        tokio::select! {
            // In this order, so that no stream of connections keeps the signal from being seen.
            biased;
            () = &mut stop => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            _ = expiry.tick() => host.expire(),
            (accepted, slot) = next => match accepted {
                Ok((stream, _)) => {
                    let (door, host) = (door.clone(), host.clone());
                    connections.spawn(async move {
                        one(stream, &door, &host).await;
                        drop(slot);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "no connection could be accepted");
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
            }
        }
    }
    host.stop();
    let finished = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(DRAIN_DEADLINE, finished).await.is_err() {
        tracing::warn!(connections = connections.len(), "cut after the drain deadline");
        connections.shutdown().await;
    }
    host.close();
}

async fn one(stream: TcpStream, door: &Door, host: &Arc<AdapterHost>) {
    // Each answer is a small write that the key holder's next layer waits for.
    let _ = stream.set_nodelay(true);
    let Some((stream, peer)) = door.pass(stream).await else { return };
    if let Err(error) = host.serve(stream, peer).await {
        tracing::debug!(%error, "a key holder's connection ended early");
    }
}
