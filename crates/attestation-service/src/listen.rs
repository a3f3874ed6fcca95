//! Connections: HTTP/1.1 and HTTP/2 on one port, each bounded, and the end of all of them.

use std::{future::Future, sync::Arc, time::Duration};

use axum::Router;
use confide_forward::{IdleGuard, StallGuard};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, watch},
};

use crate::{
    Limits, OwnEvidence, Policies, RESULT_LIFETIME_MAX, ServiceError, SigningKey, routes::router,
};

/// What the service is.
pub struct Options {
    /// The server's policies.
    pub policies: Policies,
    /// Signs results.
    pub key: SigningKey,
    /// `iss` of every result.
    pub issuer: String,
    /// `aud` of every result.
    pub audience: String,
    /// From `iat` to `exp`; at most [`RESULT_LIFETIME_MAX`].
    pub lifetime: Duration,
    /// Evidence over the key, where this machine attests.
    pub own_evidence: Option<OwnEvidence>,
    /// Bounds.
    pub limits: Limits,
    /// Unix seconds.
    pub clock: fn() -> u64,
}

/// Serves on `listener` until `stop` resolves, then lets what runs end.
///
/// # Errors
/// [`ServiceError::Lifetime`] at once; [`ServiceError::Undrained`] at the end.
pub async fn serve(
    listener: TcpListener,
    options: Options,
    stop: impl Future<Output = ()>,
) -> Result<(), ServiceError> {
    let (wanted, got) = (RESULT_LIFETIME_MAX.as_secs(), options.lifetime.as_secs());
    if got == 0 || got > wanted {
        return Err(ServiceError::Lifetime { wanted, got });
    }
    let limits = options.limits.clone();
    let router = router(options);
    let places = Arc::new(Semaphore::new(limits.connections));
    let (stopping, stopped) = watch::channel(false);
    let mut stop = std::pin::pin!(stop);
    loop {
        let (stream, place) = tokio::select! {
            () = &mut stop => break,
            accepted = accept(&listener, &places) => accepted,
        };
        let connection = connection(stream, router.clone(), limits.clone(), stopped.clone());
        tokio::spawn(async move {
            connection.await;
            drop(place);
        });
    }
    drop(listener);
    let _ = stopping.send(true);
    let all = u32::try_from(limits.connections).unwrap_or(u32::MAX);
    match tokio::time::timeout(limits.drain, places.acquire_many(all)).await {
        Ok(_) => Ok(()),
        Err(_) => {
            let left = limits.connections - places.available_permits();
            Err(ServiceError::Undrained { left, limit: limits.drain })
        }
    }
}

async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> (TcpStream, OwnedSemaphorePermit) {
    loop {
        let Ok(place) = Arc::clone(places).acquire_owned().await else {
            // Nobody closes the semaphore.
            return std::future::pending().await;
        };
        match listener.accept().await {
            Ok((stream, _)) => {
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

async fn connection(
    stream: TcpStream,
    router: Router,
    limits: Limits,
    mut stopped: watch::Receiver<bool>,
) {
    let guarded = IdleGuard::new(StallGuard::new(stream, limits.write_wait), limits.idle);
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(limits.head_wait);
    builder.http2().timer(TokioTimer::new()).max_concurrent_streams(limits.streams);
    let service = TowerToHyperService::new(router);
    let connection = builder.serve_connection(TokioIo::new(guarded), service);
    let mut connection = std::pin::pin!(connection);
    let over = async {
        tokio::select! {
            _ = stopped.wait_for(|stopped| *stopped) => {}
            () = tokio::time::sleep(limits.connection_age) => {}
        }
    };
    let outcome = tokio::select! {
        outcome = &mut connection => outcome,
        () = over => {
            connection.as_mut().graceful_shutdown();
            tokio::time::timeout(limits.idle, connection).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = outcome {
        tracing::debug!(%error, "a connection broke");
    }
}
