//! Accepts connections, speaks HTTP/1.1 on each, and drains when asked to stop.

use std::{
    convert::Infallible,
    future::Future,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use confide_forward::StallGuard;
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    task::JoinSet,
};

use crate::{Limits, door::Door, proxy::Proxy};

/// Pause after a failed accept (out of file descriptors), so that the loop does not spin.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// How the end went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// Every running answer was finished.
    Completely,
    /// The deadline came first; this many connections were cut.
    Cut(usize),
}

pub(crate) async fn serve<D: Door>(
    listener: TcpListener,
    door: Arc<D>,
    proxy: Arc<Proxy>,
    limits: Limits,
    stop: impl Future<Output = ()>,
) -> Drained {
    let slots = Arc::new(Semaphore::new(limits.connections));
    let (closing, _) = watch::channel(false);
    let mut connections = JoinSet::new();
    let mut stop = pin!(stop);
    loop {
        tokio::select! {
            // In this order, so that no stream of connections keeps the signal from being seen.
            biased;
            () = &mut stop => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            accepted = accept(&listener, &slots) => {
                let Some((stream, slot)) = accepted else { continue };
                let (door, proxy) = (door.clone(), proxy.clone());
                let closing = closing.subscribe();
                connections.spawn(async move {
                    connection(stream, door, proxy, limits, closing).await;
                    drop(slot);
                });
            }
        }
    }
    drop(listener);
    let _ = closing.send(true);
    drain(connections, limits.drain).await
}

async fn accept(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
) -> Option<(TcpStream, OwnedSemaphorePermit)> {
    let slot = slots.clone().acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _)) => Some((stream, slot)),
        Err(error) => {
            tracing::warn!(%error, "no connection could be accepted");
            tokio::time::sleep(ACCEPT_RETRY).await;
            None
        }
    }
}

async fn drain(mut connections: JoinSet<()>, deadline: Duration) -> Drained {
    let finished = async { while connections.join_next().await.is_some() {} };
    match tokio::time::timeout(deadline, finished).await {
        Ok(()) => Drained::Completely,
        Err(_) => {
            let cut = connections.len();
            connections.shutdown().await;
            Drained::Cut(cut)
        }
    }
}

async fn connection<D: Door>(
    stream: TcpStream,
    door: Arc<D>,
    proxy: Arc<Proxy>,
    limits: Limits,
    mut closing: watch::Receiver<bool>,
) {
    // A token is a small write: without this each would wait for the acknowledgement of the last.
    let _ = stream.set_nodelay(true);
    let opened = tokio::select! {
        opened = door.open(stream) => opened,
        _ = closing.changed() => return,
    };
    let stream = match opened {
        Ok(stream) => TokioIo::new(StallGuard::new(stream, limits.write_stall)),
        Err(refusal) => return tracing::info!(%refusal, "connection refused"),
    };
    let spoke = Arc::new(AtomicBool::new(false));
    let service = service_fn(|request| {
        spoke.store(true, Ordering::Relaxed);
        let proxy = proxy.clone();
        async move { Ok::<_, Infallible>(proxy.answer(request).await) }
    });
    let mut http = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.idle)
            .max_header_size(limits.head_bytes)
            .max_headers(limits.head_fields)
            .serve_connection(stream, service)
    );
    let mut first_head = pin!(tokio::time::sleep(limits.first_head));
    let (mut asked, mut stopping) = (false, false);
    loop {
        tokio::select! {
            ended = http.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "connection ended early");
                }
                return;
            }
            () = first_head.as_mut(), if !asked => {
                asked = true;
                if !spoke.load(Ordering::Relaxed) {
                    return tracing::debug!("no request came");
                }
            }
            _ = closing.changed(), if !stopping => {
                stopping = true;
                http.as_mut().graceful_shutdown();
            }
        }
    }
}
