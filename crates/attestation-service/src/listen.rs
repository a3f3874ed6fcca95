//! Accepts HTTP/1.1 and HTTP/2 connections on one port, with limits, and drains them at the stop.

use std::{convert::Infallible, future::Future, sync::Arc};

use confide_http::{
    Admission, AdmissionLimits, ClosingSignal, ConnectionDeadlines, ConnectionPlace, DrainOutcome,
    IdleGuard, PeerStream, StallGuard, UNBOUNDED, accept_until, serve_connection,
    wait_until_closing,
};
use hyper::service::service_fn;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use tokio::net::TcpListener;

use crate::{
    error::ServiceError,
    limits::{RESULT_LIFETIME_MAX, ServiceLimits},
    options::ServiceOptions,
    routes::{self, ServiceState},
};

/// Serves on `listener` until `stop` resolves, then waits for running requests to finish.
///
/// # Errors
/// [`ServiceError::Lifetime`] before it serves; [`ServiceError::Undrained`] after the stop.
pub async fn serve(
    listener: TcpListener,
    options: ServiceOptions,
    stop: impl Future<Output = ()>,
) -> Result<(), ServiceError> {
    let (wanted, got) = (RESULT_LIFETIME_MAX.as_secs(), options.lifetime.as_secs());
    if got == 0 || got > wanted {
        return Err(ServiceError::Lifetime { wanted, got });
    }
    let limits = options.limits.clone();
    let site = Arc::new(ServiceState::new(options));
    let admission = Admission::new(AdmissionLimits::for_many_peers(limits.connections));
    let limit = limits.drain;
    let one = move |stream, place, closing| {
        serve_one_connection(stream, Arc::clone(&site), limits.clone(), place, closing)
    };
    match accept_until(listener, admission, limit, stop, one).await {
        DrainOutcome::Completely => Ok(()),
        DrainOutcome::Cut(left) => Err(ServiceError::Undrained { left, limit }),
    }
}

async fn serve_one_connection(
    stream: PeerStream,
    site: Arc<ServiceState>,
    limits: ServiceLimits,
    place: ConnectionPlace,
    closing: ClosingSignal,
) {
    let guarded = IdleGuard::new(StallGuard::new(stream, limits.write_wait), limits.idle);
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(limits.head_wait);
    builder.http2().timer(TokioTimer::new()).max_concurrent_streams(limits.streams);
    let service = service_fn(|request| {
        let answer = routes::answer_request(Arc::clone(&site), request);
        place.run_exchange(async { Ok::<_, Infallible>(answer.await) })
    });
    let connection = builder.serve_connection(TokioIo::new(guarded), service);
    let stop = async {
        tokio::select! {
            () = wait_until_closing(closing) => {}
            () = tokio::time::sleep(limits.connection_age) => {}
        }
    };
    let deadlines = ConnectionDeadlines {
        first_request: limits.head_wait,
        idle: UNBOUNDED,
        grace: limits.idle,
    };
    serve_connection(connection, &place, deadlines, stop).await;
}
