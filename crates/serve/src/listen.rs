use std::{convert::Infallible, future::Future, sync::Arc, time::Duration};

use axum::Router;
use confide_forward::StallGuard;
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
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
};

use crate::{Limits, Options, router, seed::Held};

/// Why a server ends before it is asked to.
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
    options: Options,
    stop: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let limits = options.limits.clone();
    let router = router(options);
    let places = Arc::new(Semaphore::new(limits.connections));
    let (stopping, stopped) = watch::channel(false);
    let mut stop = std::pin::pin!(stop);
    loop {
        let accepted = tokio::select! {
            () = &mut stop => break,
            accepted = accept(&listener, &places) => accepted,
        };
        let (stream, place) = accepted;
        let held = Held { _place: Arc::new(place), stopped: stopped.clone() };
        tokio::spawn(connection(stream, router.clone(), limits.clone(), held));
    }
    drop(listener);
    let _ = stopping.send(true);
    let all = u32::try_from(limits.connections).unwrap_or(u32::MAX);
    match tokio::time::timeout(limits.drain, places.acquire_many(all)).await {
        Ok(_) => Ok(()),
        Err(_) => {
            let left = limits.connections - places.available_permits();
            Err(ServeError::Undrained { left, limit: limits.drain })
        }
    }
}

type Place = tokio::sync::OwnedSemaphorePermit;

async fn accept(listener: &TcpListener, places: &Arc<Semaphore>) -> (TcpStream, Place) {
    loop {
        let Ok(place) = Arc::clone(places).acquire_owned().await else {
            // Nobody closes the semaphore.
            std::future::pending::<Infallible>().await;
            continue;
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                // Tokens are small and must not wait for each other.
                let _ = stream.set_nodelay(true);
                return (stream, place);
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                // Out of descriptors, most likely: a later try may do.
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn connection(stream: TcpStream, router: Router, limits: Limits, held: Held) {
    let mut stopped = held.stopped.clone();
    let routes = TowerToHyperService::new(router);
    // A WebSocket outlives the connection that it was: it takes its place with it.
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(held.clone());
        routes.call(request)
    });
    let io = TokioIo::new(StallGuard::new(stream, limits.write_wait));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_wait)
        .serve_connection(io, service)
        .with_upgrades();
    let mut connection = std::pin::pin!(connection);
    let stop = async {
        // A channel that is gone means that the server is, too.
        let _ = stopped.wait_for(|stopped| *stopped).await;
    };
    let outcome = tokio::select! {
        outcome = &mut connection => outcome,
        () = stop => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = outcome {
        tracing::debug!(%error, "a connection broke");
    }
}
