//! Serves HTTP/1.1 and HTTP/2 on one port, with a limit on every wait.

use std::{io, sync::Arc, time::Duration};

use confide_http::{
    Admission, AdmissionLimits, ClosingSignal, ConnectionDeadlines, ConnectionPlace, DrainOutcome,
    PeerStream, StallGuard, UNBOUNDED, accept_until, serve_connection, wait_until_closing,
};
use http::{Request, Response};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use tokio::net::TcpListener;

use crate::{
    answer::AnswerBody,
    limits::PccsLimits,
    service::{RequestOutcome, Service},
};

/// The reason for which a service did not stop cleanly.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The drain took too long; the remaining connections were closed.
    #[error("{left} connections were still open {} s after the stop", .limit.as_secs())]
    Undrained {
        /// The number of remaining connections.
        left: usize,
        /// The longest time of the drain.
        limit: Duration,
    },
}

/// Serves on `listener` until `stop` resolves, then waits for running requests to finish.
///
/// # Errors
/// [`ServeError::Undrained`] if connections remain after the drain.
pub async fn serve(
    listener: TcpListener,
    service: Arc<Service>,
    stop: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let limits = Arc::clone(service.limits());
    let admission = Admission::new(AdmissionLimits::for_many_peers(limits.connections));
    let refreshing = tokio::spawn(Arc::clone(&service).refresh_in_loop());
    let stop = async {
        stop.await;
        refreshing.abort();
    };
    let one = move |stream, place, closing| {
        serve_one_connection(stream, Arc::clone(&service), place, closing)
    };
    match accept_until(listener, admission, limits.drain, stop, one).await {
        DrainOutcome::Completely => Ok(()),
        DrainOutcome::Cut(left) => Err(ServeError::Undrained { left, limit: limits.drain }),
    }
}

async fn serve_one_connection(
    stream: PeerStream,
    service: Arc<Service>,
    place: ConnectionPlace,
    closing: ClosingSignal,
) {
    let limits = Arc::clone(service.limits());
    let builder = http_builder(&limits);
    let ending = closing.clone();
    let answering = service_fn(|request: Request<Incoming>| {
        place.run_exchange(answer_request(Arc::clone(&service), request, ending.clone()))
    });
    let io = TokioIo::new(StallGuard::new(stream, limits.write_wait));
    let connection = builder.serve_connection(io, answering);
    let stop = async {
        tokio::select! {
            () = wait_until_closing(closing) => {}
            () = tokio::time::sleep(limits.connection_age) => {}
        }
    };
    let deadlines = ConnectionDeadlines {
        first_request: limits.head_wait,
        idle: UNBOUNDED,
        grace: limits.answer_wait + limits.write_wait,
    };
    serve_connection(connection, &place, deadlines, stop).await;
}

fn http_builder(limits: &PccsLimits) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_wait)
        .max_buf_size(limits.head_bytes.max(HEAD_BYTES_MIN))
        .max_headers(limits.head_fields);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(u32::try_from(limits.head_bytes).unwrap_or(u32::MAX))
        .max_concurrent_streams(limits.streams)
        .keep_alive_interval(limits.head_wait)
        .keep_alive_timeout(limits.head_wait);
    builder
}

/// The smallest buffer that hyper accepts, in bytes.
const HEAD_BYTES_MIN: usize = 8192;

/// Answers one request. A simulated request without an answer ends with the service, or after the
/// connection's age.
async fn answer_request(
    service: Arc<Service>,
    request: Request<Incoming>,
    closing: ClosingSignal,
) -> Result<Response<AnswerBody>, io::Error> {
    match service.answer_request(request).await {
        RequestOutcome::Answer(response) => Ok(response),
        RequestOutcome::Silence => {
            tokio::select! {
                () = wait_until_closing(closing) => {}
                () = tokio::time::sleep(service.limits().connection_age) => {}
            }
            Err(io::ErrorKind::TimedOut.into())
        }
    }
}
