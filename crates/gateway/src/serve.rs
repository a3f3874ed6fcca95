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

use confide_forward::{
    Admission, Closing, Drained, Occupancy, PeerStream, StallGuard, accept_until,
};
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{net::TcpListener, time::Instant};

use crate::{Limits, door::Door, proxy::Proxy};

pub(crate) async fn serve<D: Door>(
    listener: TcpListener,
    door: Arc<D>,
    proxy: Arc<Proxy>,
    limits: Limits,
    admission: Admission,
    stop: impl Future<Output = ()>,
) -> Drained {
    let pools = proxy.clone();
    let serve = move |stream, place, closing| {
        connection(stream, place, door.clone(), proxy.clone(), limits, closing)
    };
    tokio::select! {
        drained = accept_until(listener, admission, limits.drain, stop, serve) => drained,
        never = pools.maintain_pools() => match never {},
    }
}

/// How long answers to those who have asked may still take when the upstream is another one.
const LOST_UPSTREAM_GRACE: Duration = Duration::from_secs(1);

async fn connection<D: Door>(
    stream: PeerStream,
    place: Occupancy,
    door: Arc<D>,
    proxy: Arc<Proxy>,
    limits: Limits,
    mut closing: Closing,
) {
    // Evidence would attest a digest that is false: no handshake is worth beginning.
    let mut lost = pin!(proxy.loses_its_upstream());
    let opened = tokio::select! {
        biased;
        () = lost.as_mut() => return tracing::info!("connection refused: another upstream"),
        _ = closing.changed() => return,
        opened = door.open(stream) => opened,
    };
    let stream = match opened {
        Ok(stream) => TokioIo::new(StallGuard::new(stream, limits.write_stall)),
        Err(refusal) => return tracing::info!(%refusal, "connection refused"),
    };
    let spoke = Arc::new(AtomicBool::new(false));
    let service = service_fn(|request| {
        spoke.store(true, Ordering::Relaxed);
        let (busy, proxy) = (place.mark_busy(), proxy.clone());
        async move {
            let answer = proxy.answer(request).await;
            Ok::<_, Infallible>(answer.map(|body| busy.until_end_of(body)))
        }
    });
    let mut http = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.idle)
            .max_header_size(limits.head_bytes)
            .max_headers(limits.head_fields)
            .serve_connection(stream, service)
    );
    let mut grace = pin!(tokio::time::sleep(LOST_UPSTREAM_GRACE));
    let mut first_head = pin!(tokio::time::sleep(limits.first_head));
    let (mut asked, mut stopping, mut proxy_is_lost) = (false, false, false);
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
            () = lost.as_mut(), if !proxy_is_lost => {
                proxy_is_lost = true;
                grace.as_mut().reset(Instant::now() + LOST_UPSTREAM_GRACE);
                http.as_mut().graceful_shutdown();
            }
            () = grace.as_mut(), if proxy_is_lost => return,
            _ = closing.changed(), if !stopping => {
                stopping = true;
                http.as_mut().graceful_shutdown();
            }
        }
    }
}
