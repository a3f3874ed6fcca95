//! Admits, serves and drains connections.

use std::{future::Future, sync::Arc};

use axum::Router;
use confide_http::{
    Admission, AdmissionLimits, BusyGuard, ClosingSignal, ConnectionDeadlines, ConnectionPlace,
    DrainOutcome, PeerStream, StallGuard, UNBOUNDED, accept_until, serve_upgradeable,
    wait_until_closing,
};
use hyper::{
    Request,
    body::Incoming,
    server::conn::http1,
    service::{Service, service_fn},
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::net::TcpListener;

use crate::{limits::ServeLimits, routes::router, server_state::ServeOptions};

/// The request extension that represents the connection. A handler that upgrades a request keeps
/// it, so that the upgraded connection still counts.
#[derive(Clone)]
pub struct ConnectionHandle {
    _busy: Arc<BusyGuard>,
    stopped: ClosingSignal,
}

impl ConnectionHandle {
    /// Resolves when the server is asked to stop.
    pub async fn wait_until_stopped(&self) {
        wait_until_closing(self.stopped.clone()).await;
    }
}

/// Serves on `listener` until `stop` resolves, then lets running requests end within
/// [`ServeLimits::drain`].
pub async fn serve(
    listener: TcpListener,
    options: ServeOptions,
    stop: impl Future<Output = ()>,
) -> DrainOutcome {
    let limits = options.limits.clone();
    let router = router(options);
    // Most connections come from the gateway, which is one address.
    let admission = Admission::new(AdmissionLimits {
        newcomer_reserve: limits.connections / 8,
        ..AdmissionLimits::for_one_peer(limits.connections)
    });
    let deadline = limits.drain;
    let serve_one = move |stream, place, closing| {
        serve_connection(stream, router.clone(), limits.clone(), place, closing)
    };
    accept_until(listener, admission, deadline, stop, serve_one).await
}

async fn serve_connection(
    stream: PeerStream,
    router: Router,
    limits: ServeLimits,
    place: ConnectionPlace,
    closing: ClosingSignal,
) {
    let stopped = closing.clone();
    let routes = TowerToHyperService::new(router);
    let service = service_fn(|mut request: Request<Incoming>| {
        // A WebSocket outlives its HTTP connection, and continues to count as one.
        let connection =
            ConnectionHandle { _busy: Arc::new(place.mark_busy()), stopped: stopped.clone() };
        request.extensions_mut().insert(connection);
        place.run_exchange(routes.call(request))
    });
    let io = TokioIo::new(StallGuard::new(stream, limits.write_wait));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_wait)
        .serve_connection(io, service)
        .with_upgrades();
    let deadlines =
        ConnectionDeadlines { first_request: limits.head_wait, idle: UNBOUNDED, grace: UNBOUNDED };
    serve_upgradeable(connection, &place, deadlines, wait_until_closing(closing)).await;
}
