//! Accepts connections, speaks HTTP/1.1 or HTTP/2 on each, and drains when asked to stop.

use std::{
    future::{Future, pending},
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

use confide_http::{
    ClosingSignal, ConnectionDeadlines, ConnectionPlace, Http1Limits, PeerStream, StallGuard,
    UNBOUNDED, error_chain, http1::HeadLimits, interrupt, serve_http1, wait_until_closing,
};
use hyper_util::rt::TokioIo;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{
    acceptor::{Acceptor, OpenedStream},
    configuration_version::{ConfigurationVersion, ReplacementSignal},
    fresh_evidence::FreshEvidence,
    http_version::HttpVersion,
    http1_service::ProxyService,
    http2::serve_http2,
    limits::GatewayLimits,
    proxy::Proxy,
};

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
    // A client that is gone acknowledges nothing, long before the kernel's buffer is full. Where the
    // kernel has no such limit, the one for writes remains.
    let _ = SockRef::from(stream.tcp()).set_tcp_user_timeout(Some(limits.write_stall));
    // The evidence would attest a false digest, so no handshake is started.
    let mut lost = proxy.watch_model();
    let opening = Box::pin(async {
        let opened = acceptor.open_stream(stream).await?;
        let OpenedStream { stream, version, evidence } = opened;
        // Every future that the stream is moved into would otherwise hold room for it.
        let stream = Box::new(StallGuard::new(stream, limits.write_stall));
        Ok::<_, A::Refusal>(OpenedStream { stream, version, evidence })
    });
    let opened = tokio::select! {
        biased;
        () = lost.as_mut() => return tracing::info!("connection refused: upstream changed its model"),
        _ = closing.changed() => return,
        // What each step needs is boxed, so that an idle connection does not hold room for all.
        opened = opening => opened,
    };
    let OpenedStream { stream, version, evidence } = match opened {
        Ok(opened) => opened,
        Err(refusal) => {
            return tracing::info!(refusal = error_chain(&refusal), "connection refused");
        }
    };
    let signal = replaced.clone();
    // HTTP/2 has a frame (GOAWAY) that ends a connection without losing a request.
    let replaced_http2: Pin<Box<dyn Future<Output = ()> + Send>> = match version {
        HttpVersion::Http1 => Box::pin(pending()),
        HttpVersion::Http2 => Box::pin(async move { replaced.wait().await }),
    };
    let stop = Box::pin(async {
        let mut swapped = proxy.watch_model();
        tokio::select! {
            () = wait_until_closing(closing) => {}
            () = swapped.as_mut() => {}
            () = replaced_http2 => {}
        }
    });
    let serve = async {
        match version {
            HttpVersion::Http1 => {
                Box::pin(serve_requests(stream, &place, proxy, limits, evidence, signal, stop))
                    .await;
            }
            HttpVersion::Http2 => {
                let stream = TokioIo::new(stream);
                Box::pin(serve_http2(stream, &place, proxy, limits, stop)).await;
            }
        }
    };
    if !proxy.expects_model() {
        return serve.await;
    }
    let loss = async {
        lost.await;
        tokio::time::sleep(LOST_UPSTREAM_GRACE).await;
    };
    interrupt(pin!(serve), Box::pin(loss)).await;
}

async fn serve_requests<S>(
    stream: S,
    place: &ConnectionPlace,
    proxy: &Arc<Proxy>,
    limits: &GatewayLimits,
    evidence: Option<Arc<FreshEvidence>>,
    replaced: ReplacementSignal,
    stop: impl Future<Output = ()>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = ProxyService::new(proxy, place, evidence, replaced);
    let head = HeadLimits { bytes: limits.head_bytes, fields: limits.head_fields };
    let http = Http1Limits { head, body_linger: limits.request_body_linger };
    let deadlines = ConnectionDeadlines {
        first_request: limits.first_head,
        idle: limits.idle,
        grace: UNBOUNDED,
    };
    let upgraded = serve_http1(stream, &service, place, http, deadlines, stop).await;
    // The relay belongs to this task, so that an eviction or the end of the drain ends it too.
    if let Some((stream, relay)) = upgraded.zip(service.into_relay()) {
        Box::pin(relay.run_on(stream, place, limits)).await;
    }
}
