//! Accepts connections, speaks HTTP/1.1 or HTTP/2 on each, and drains when asked to stop.

use std::{
    convert::Infallible,
    future::{Future, pending},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use confide_http::{
    ClosingSignal, ConnectionDeadlines, ConnectionPlace, PeerStream, StallGuard, UNBOUNDED,
    error_chain, interrupt, serve_upgradeable, wait_until_closing,
};
use http::{HeaderValue, StatusCode, header};
use hyper::{
    rt::{Read, Write},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::sync::mpsc;

use crate::{
    acceptor::{Acceptor, HttpVersion, OpenedStream},
    client_connection::ClientConnection,
    configuration_version::{ConfigurationVersion, ReplacementSignal},
    fresh_evidence::FreshEvidence,
    http2::serve_http2,
    limits::GatewayLimits,
    proxy::Proxy,
};

/// Asks the client to end the connection after this answer.
const CLOSE: HeaderValue = HeaderValue::from_static("close");
/// The time that running answers may take after the upstream has named another model.
const LOST_UPSTREAM_GRACE: Duration = Duration::from_secs(1);

/// Serves one connection of a version of the configuration.
pub(crate) async fn serve_connection_of<A: Acceptor>(
    configuration: Arc<ConfigurationVersion<A>>,
    mut replaced: ReplacementSignal,
    stream: PeerStream,
    place: ConnectionPlace,
    mut closing: ClosingSignal,
) {
    let ConfigurationVersion { acceptor, proxy, limits, .. } = &*configuration;
    let _open = proxy.count_connection();
    // The evidence would attest a false digest, so no handshake is started.
    let mut lost = pin!(proxy.wait_for_model_change());
    let opened = tokio::select! {
        biased;
        () = lost.as_mut() => return tracing::info!("connection refused: upstream changed its model"),
        _ = closing.changed() => return,
        // What each step needs is boxed, so that an idle connection does not hold room for all.
        opened = Box::pin(acceptor.open_stream(stream)) => opened,
    };
    let OpenedStream { stream, version, evidence } = match opened {
        Ok(opened) => opened,
        Err(refusal) => {
            return tracing::info!(refusal = error_chain(&refusal), "connection refused");
        }
    };
    // Every future that the stream is moved into would otherwise hold room for it.
    let stream = TokioIo::new(Box::new(StallGuard::new(stream, limits.write_stall)));
    let signal = replaced.clone();
    // HTTP/2 has a frame (GOAWAY) that ends a connection without losing a request.
    let replaced_http2 = async {
        match version {
            HttpVersion::Http1 => pending().await,
            HttpVersion::Http2 => replaced.wait().await,
        }
    };
    let stop = async {
        tokio::select! {
            () = wait_until_closing(closing) => {}
            () = proxy.wait_for_model_change() => {}
            () = replaced_http2 => {}
        }
    };
    let loss = async {
        lost.await;
        tokio::time::sleep(LOST_UPSTREAM_GRACE).await;
    };
    let served = async {
        match version {
            HttpVersion::Http1 => {
                Box::pin(serve_http1(stream, &place, proxy, limits, evidence, signal, stop)).await;
            }
            HttpVersion::Http2 => {
                Box::pin(serve_http2(stream, &place, proxy, limits, stop)).await;
            }
        }
    };
    interrupt(pin!(served), loss).await;
}

async fn serve_http1<I>(
    stream: I,
    place: &ConnectionPlace,
    proxy: &Arc<Proxy>,
    limits: &GatewayLimits,
    evidence: Option<Arc<FreshEvidence>>,
    replaced: ReplacementSignal,
    stop: impl Future<Output = ()>,
) where
    I: Read + Write + Unpin + Send + 'static,
{
    // The channel makes room for 32 messages at once: for boxes, not for relays.
    let (relays, mut opened) = mpsc::channel(1);
    let service = service_fn(|request| {
        let (proxy, relays, replaced) = (proxy.clone(), relays.clone(), replaced.clone());
        let (peer, evidence) = (place.peer(), evidence.clone());
        // hyper keeps room for one future on each connection: for a box, not for a whole exchange.
        Box::pin(place.run_exchange(async move {
            let evidence = evidence.as_deref();
            let connection = ClientConnection { peer, relays: &relays, evidence };
            let mut response = proxy.answer(request, connection).await;
            if replaced.is_set() && response.status() != StatusCode::SWITCHING_PROTOCOLS {
                response.headers_mut().insert(header::CONNECTION, CLOSE);
            }
            Ok::<_, Infallible>(response)
        }))
    });
    let deadlines = ConnectionDeadlines {
        first_request: limits.first_head,
        idle: limits.idle,
        grace: UNBOUNDED,
    };
    let served = {
        let http = http1::Builder::new()
            // The deadlines of the connection cover the heads of its requests.
            .header_read_timeout(None)
            .max_header_size(limits.head_bytes)
            .max_headers(limits.head_fields)
            .serve_connection(stream, service)
            .with_upgrades();
        serve_upgradeable(http, place, deadlines, stop)
    };
    served.await;
    // The relay belongs to this task, so that an eviction or the end of the drain ends it too.
    if let Ok(relay) = opened.try_recv() {
        Box::pin(relay.run(place, limits)).await;
    }
}
