//! Accepts connections, speaks HTTP/1.1 on each, and drains when asked to stop.

use std::{
    convert::Infallible,
    future::Future,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use confide_forward::{Closing, Drained, StallGuard, accept_until};
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};

use crate::{Limits, door::Door, proxy::Proxy};

pub(crate) async fn serve<D: Door>(
    listener: TcpListener,
    door: Arc<D>,
    proxy: Arc<Proxy>,
    limits: Limits,
    stop: impl Future<Output = ()>,
) -> Drained {
    let serve =
        move |stream, closing| connection(stream, door.clone(), proxy.clone(), limits, closing);
    accept_until(listener, limits.connections, limits.drain, stop, serve).await
}

async fn connection<D: Door>(
    stream: TcpStream,
    door: Arc<D>,
    proxy: Arc<Proxy>,
    limits: Limits,
    mut closing: Closing,
) {
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
