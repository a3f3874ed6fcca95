//! Accepts connections, speaks HTTP/1.1 on each, and drains when asked to stop.

use std::{convert::Infallible, future::Future, pin::pin, sync::Arc, time::Duration};

use confide_http::{
    Admission, ClosingSignal, ConnectionDeadlines, ConnectionPlace, DrainOutcome, PeerStream,
    StallGuard, UNBOUNDED, accept_until, serve_connection, wait_until_closing,
};
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;

use crate::{acceptor::Acceptor, limits::GatewayLimits, proxy::Proxy};

pub(crate) async fn serve<A: Acceptor>(
    listener: TcpListener,
    acceptor: Arc<A>,
    proxy: Arc<Proxy>,
    limits: GatewayLimits,
    admission: Admission,
    stop: impl Future<Output = ()>,
) -> DrainOutcome {
    let pools = proxy.clone();
    let serve = move |stream, place, closing| {
        serve_gateway_connection(stream, place, acceptor.clone(), proxy.clone(), limits, closing)
    };
    tokio::select! {
        drained = accept_until(listener, admission, limits.drain, stop, serve) => drained,
        never = pools.maintain_pools() => match never {},
    }
}

/// The time that running answers may take after the upstream has named another model.
const LOST_UPSTREAM_GRACE: Duration = Duration::from_secs(1);

async fn serve_gateway_connection<A: Acceptor>(
    stream: PeerStream,
    place: ConnectionPlace,
    acceptor: Arc<A>,
    proxy: Arc<Proxy>,
    limits: GatewayLimits,
    mut closing: ClosingSignal,
) {
    // The evidence would attest a false digest, so no handshake is started.
    let mut lost = pin!(proxy.wait_for_model_change());
    let opened = tokio::select! {
        biased;
        () = lost.as_mut() => return tracing::info!("connection refused: upstream changed its model"),
        _ = closing.changed() => return,
        opened = acceptor.open_stream(stream) => opened,
    };
    let stream = match opened {
        Ok(stream) => TokioIo::new(StallGuard::new(stream, limits.write_stall)),
        Err(refusal) => return tracing::info!(%refusal, "connection refused"),
    };
    let service = service_fn(|request| {
        let proxy = proxy.clone();
        place.run_exchange(async move { Ok::<_, Infallible>(proxy.answer(request).await) })
    });
    let http = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.idle)
        .max_header_size(limits.head_bytes)
        .max_headers(limits.head_fields)
        .serve_connection(stream, service);
    let stop = async {
        tokio::select! {
            () = wait_until_closing(closing) => {}
            () = proxy.wait_for_model_change() => {}
        }
    };
    let loss = async {
        lost.await;
        tokio::time::sleep(LOST_UPSTREAM_GRACE).await;
    };
    let deadlines = ConnectionDeadlines { first_request: limits.first_head, grace: UNBOUNDED };
    tokio::select! {
        () = serve_connection(http, &place, deadlines, stop) => {}
        () = loss => {}
    }
}
