//! Connections: HTTP/1.1 and HTTP/2 on one port, each wait bounded.

use std::{io, sync::Arc, time::Duration};

use confide_forward::{
    Admission, AdmissionLimits, Closing, Drained, Occupancy, PeerStream, StallGuard, accept_until,
};
use http::{Request, Response};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use tokio::{net::TcpListener, sync::watch};

use crate::{Limits, Service, answer::Bytewise, service::Outcome};

/// Why a service ends otherwise than it was asked to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The drain took too long; the connections that were left are closed.
    #[error("{left} connections were still open {} s after the stop", .limit.as_secs())]
    Undrained {
        /// How many were left.
        left: usize,
        /// How long they had.
        limit: Duration,
    },
}

/// Serves on `listener` until `stop` resolves, then lets what runs end.
///
/// # Errors
/// [`ServeError::Undrained`].
pub async fn serve(
    listener: TcpListener,
    service: Arc<Service>,
    stop: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let limits = Arc::clone(service.limits());
    let admission = Admission::new(AdmissionLimits::shared(limits.connections));
    let refreshing = tokio::spawn(Arc::clone(&service).refresh());
    let stop = async {
        stop.await;
        refreshing.abort();
    };
    let one =
        move |stream, place, closing| connection(stream, Arc::clone(&service), place, closing);
    match accept_until(listener, admission, limits.drain, stop, one).await {
        Drained::Completely => Ok(()),
        Drained::Cut(left) => Err(ServeError::Undrained { left, limit: limits.drain }),
    }
}

async fn connection(
    stream: PeerStream,
    service: Arc<Service>,
    place: Occupancy,
    mut stopped: Closing,
) {
    let limits = Arc::clone(service.limits());
    // Which protocol it is shows in the first bytes; hyper waits for them without a limit.
    let mut first = [0];
    let spoken = tokio::select! {
        spoken = tokio::time::timeout(limits.head_wait, stream.tcp().peek(&mut first)) => spoken,
        _ = stopped.wait_for(|stopped| *stopped) => return,
    };
    if !matches!(spoken, Ok(Ok(1))) {
        return;
    }
    let builder = builder(&limits);
    let ending = stopped.clone();
    let answering = service_fn(move |request: Request<Incoming>| {
        let (busy, service, ending) = (place.mark_busy(), Arc::clone(&service), ending.clone());
        async move {
            let answer = answer(service, request, ending).await?;
            Ok::<_, io::Error>(answer.map(|body| busy.until_end_of(body)))
        }
    });
    let io = TokioIo::new(StallGuard::new(stream, limits.write_wait));
    let mut serving = std::pin::pin!(builder.serve_connection(io, answering));
    let over = async {
        tokio::select! {
            // A channel that is gone means that the service is, too.
            _ = stopped.wait_for(|stopped| *stopped) => {}
            () = tokio::time::sleep(limits.connection_age) => {}
        }
    };
    let outcome = tokio::select! {
        outcome = &mut serving => outcome,
        () = over => {
            serving.as_mut().graceful_shutdown();
            tokio::time::timeout(limits.answer_wait + limits.write_wait, serving)
                .await
                .unwrap_or(Ok(()))
        }
    };
    if let Err(error) = outcome {
        tracing::debug!(%error, "a connection broke");
    }
}

fn builder(limits: &Limits) -> auto::Builder<TokioExecutor> {
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

/// hyper refuses a smaller buffer.
const HEAD_BYTES_MIN: usize = 8192;

/// An answer that never comes ends with the service, or after its deadline: nothing hangs for ever.
async fn answer(
    service: Arc<Service>,
    request: Request<Incoming>,
    mut stopped: watch::Receiver<bool>,
) -> Result<Response<Bytewise>, io::Error> {
    match service.outcome(request).await {
        Outcome::Answer(response) => Ok(response),
        Outcome::Silence => {
            tokio::select! {
                _ = stopped.wait_for(|stopped| *stopped) => {}
                () = tokio::time::sleep(service.limits().connection_age) => {}
            }
            Err(io::ErrorKind::TimedOut.into())
        }
    }
}
