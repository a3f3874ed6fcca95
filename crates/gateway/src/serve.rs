//! Accepts connections, speaks HTTP/1.1 on each, and drains when asked to stop.

use std::{convert::Infallible, pin::pin, sync::Arc, time::Duration};

use confide_http::{
    ClosingSignal, ConnectionDeadlines, ConnectionPlace, PeerStream, StallGuard, UNBOUNDED,
    serve_connection, wait_until_closing,
};
use http::{HeaderValue, header};
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};

use crate::{acceptor::Acceptor, generation::Generation};

/// Asks the client to end the connection after this answer.
const CLOSE: HeaderValue = HeaderValue::from_static("close");
/// The time that running answers may take after the upstream has named another model.
const LOST_UPSTREAM_GRACE: Duration = Duration::from_secs(1);

/// Serves one connection of a generation.
pub(crate) async fn serve_connection_of<A: Acceptor>(
    generation: Arc<Generation<A>>,
    stream: PeerStream,
    place: ConnectionPlace,
    mut closing: ClosingSignal,
) {
    let Generation { acceptor, proxy, limits, .. } = &*generation;
    let replaced = generation.replacement_signal();
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
        let (proxy, replaced) = (proxy.clone(), replaced.clone());
        place.run_exchange(async move {
            let mut response = proxy.answer(request).await;
            if replaced.is_set() {
                response.headers_mut().insert(header::CONNECTION, CLOSE);
            }
            Ok::<_, Infallible>(response)
        })
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
