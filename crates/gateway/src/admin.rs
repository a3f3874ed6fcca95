//! The administrator's HTTP server: metrics, status and reload, on a Unix socket; and metrics alone
//! on a TCP address.

use std::time::Duration;
use std::{convert::Infallible, future::Future, io, net::SocketAddr, pin::Pin, sync::Arc};

use bytes::Bytes;
use confide_http::metrics::MEDIA_TYPE;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::{Map, Value, json};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream, UnixStream},
    sync::{Mutex, Semaphore},
    task::JoinSet,
};

use crate::{admin_socket::AdminSocket, metrics::GatewayMetrics, telemetry_error::TelemetryError};

/// The largest number of connections at once: a scraper and a few people. Further ones wait.
const CONNECTIONS_MAX: usize = 16;
/// The deadline for the head of a request.
const HEAD_DEADLINE: Duration = Duration::from_secs(5);
/// The deadline of a connection, which carries one request. A reload goes on after it.
const CONNECTION_DEADLINE: Duration = Duration::from_secs(30);
/// The largest number of bytes of a request's head (the least that hyper allows).
const HEAD_BYTES_MAX: usize = 8 * 1024;
/// The largest number of header fields of a request.
const HEAD_FIELDS_MAX: usize = 32;
/// The pause after a failed accept (out of file descriptors), which prevents a busy loop.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// The outcome of a reload, as JSON: applied, or refused with nothing changed.
pub type ReloadOutcome = Result<Value, Value>;
type ReloadFuture = Pin<Box<dyn Future<Output = ReloadOutcome> + Send>>;

/// The answers of the administrator's server.
#[derive(Clone)]
pub struct AdminRoutes {
    metrics: Arc<GatewayMetrics>,
    status: Arc<dyn Fn() -> Map<String, Value> + Send + Sync>,
    reload: Arc<dyn Fn() -> ReloadFuture + Send + Sync>,
    /// The lock that the running reload holds.
    reloading: Arc<Mutex<()>>,
}

/// The TCP address at which metrics are served.
#[derive(Debug)]
pub struct MetricsListener(TcpListener);

impl AdminRoutes {
    /// Makes the routes. `status` returns fields that are added to those of
    /// [`GatewayMetrics::status`], such as listeners and servers; `reload` reads the configuration
    /// again. It runs once at a time, and to its end even if its client leaves.
    pub fn new<F>(
        metrics: Arc<GatewayMetrics>,
        status: impl Fn() -> Map<String, Value> + Send + Sync + 'static,
        reload: impl Fn() -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = ReloadOutcome> + Send + 'static,
    {
        Self {
            metrics,
            status: Arc::new(status),
            reload: Arc::new(move || Box::pin(reload())),
            reloading: Arc::default(),
        }
    }

    async fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        match request.uri().path() {
            "/metrics" => answer_metrics(&self.metrics, request),
            "/status" if is_read(request) => {
                let mut status = self.metrics.status();
                status.extend((self.status)());
                json_answer(StatusCode::OK, &Value::Object(status))
            }
            "/status" => refuse_method("GET, HEAD"),
            "/reload" if request.method() == Method::POST => self.reload().await,
            "/reload" => refuse_method("POST"),
            _ => refuse(StatusCode::NOT_FOUND, "wanted /metrics, /status or /reload"),
        }
    }

    async fn reload(&self) -> Response<Full<Bytes>> {
        let Ok(turn) = self.reloading.clone().try_lock_owned() else {
            return refuse(StatusCode::CONFLICT, "another reload is running");
        };
        let reload = (self.reload)();
        let reload = tokio::spawn(async move {
            let outcome = reload.await;
            drop(turn);
            outcome
        });
        match reload.await {
            Ok(Ok(applied)) => json_answer(StatusCode::OK, &applied),
            Ok(Err(refused)) => json_answer(StatusCode::UNPROCESSABLE_ENTITY, &refused),
            Err(_) => refuse(StatusCode::INTERNAL_SERVER_ERROR, "the reload failed"),
        }
    }
}

impl AdminSocket {
    /// Serves `GET /metrics`, `GET /status` and `POST /reload` until `stop` resolves.
    pub async fn serve(self, routes: AdminRoutes, stop: impl Future<Output = ()>) {
        serve_until(&self, &ServedRoutes::All(routes), stop).await;
    }
}

impl MetricsListener {
    /// Listens at a loopback address.
    ///
    /// # Errors
    /// [`TelemetryError::MetricsAddress`] for another address, [`TelemetryError::MetricsListen`] if
    /// the operating system refuses.
    pub async fn bind(address: SocketAddr) -> Result<Self, TelemetryError> {
        if !address.ip().to_canonical().is_loopback() {
            return Err(TelemetryError::MetricsAddress { address });
        }
        Self::dangerous_bind_beyond_loopback(address).await
    }

    /// Listens at any address: whoever reaches it can read the metrics, which travel in the clear.
    ///
    /// # Errors
    /// [`TelemetryError::MetricsListen`] if the operating system refuses.
    pub async fn dangerous_bind_beyond_loopback(
        address: SocketAddr,
    ) -> Result<Self, TelemetryError> {
        let listening = TcpListener::bind(address).await;
        listening.map(Self).map_err(|source| TelemetryError::MetricsListen { address, source })
    }

    /// The address, with the port that the operating system chose.
    ///
    /// # Errors
    /// The error of the operating system if it does not know the address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    /// Serves `GET /metrics` until `stop` resolves.
    pub async fn serve(self, metrics: Arc<GatewayMetrics>, stop: impl Future<Output = ()>) {
        serve_until(&self.0, &ServedRoutes::Metrics(metrics), stop).await;
    }
}

/// The routes that a listener serves.
#[derive(Clone)]
enum ServedRoutes {
    All(AdminRoutes),
    Metrics(Arc<GatewayMetrics>),
}

impl ServedRoutes {
    async fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        match self {
            Self::All(routes) => routes.answer(request).await,
            Self::Metrics(metrics) if request.uri().path() == "/metrics" => {
                answer_metrics(metrics, request)
            }
            Self::Metrics(_) => refuse(StatusCode::NOT_FOUND, "wanted /metrics"),
        }
    }
}

/// A listener of either kind.
trait Listen {
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    fn accept_stream(&self) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

impl Listen for AdminSocket {
    type Stream = UnixStream;

    async fn accept_stream(&self) -> io::Result<UnixStream> {
        self.accept().await
    }
}

impl Listen for TcpListener {
    type Stream = TcpStream;

    async fn accept_stream(&self) -> io::Result<TcpStream> {
        Ok(self.accept().await?.0)
    }
}

/// Serves one request on each accepted connection until `stop` resolves.
async fn serve_until<L: Listen>(
    listener: &L,
    routes: &ServedRoutes,
    stop: impl Future<Output = ()>,
) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut running = JoinSet::new();
    let serve = async {
        loop {
            // The semaphore is never closed.
            let Ok(place) = places.clone().acquire_owned().await else { return };
            let stream = match listener.accept_stream().await {
                Ok(stream) => stream,
                Err(error) => {
                    tracing::warn!(%error, "no connection of an administrator could be accepted");
                    tokio::time::sleep(ACCEPT_RETRY).await;
                    continue;
                }
            };
            while running.try_join_next().is_some() {}
            let routes = routes.clone();
            running.spawn(async move {
                serve_one_request(stream, &routes).await;
                drop(place);
            });
        }
    };
    tokio::select! {
        () = serve => {}
        () = stop => {}
    }
}

async fn serve_one_request<S>(stream: S, routes: &ServedRoutes)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let service = service_fn(|request: Request<Incoming>| async move {
        Ok::<_, Infallible>(routes.answer(&request).await)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_DEADLINE)
        .keep_alive(false)
        .max_header_size(HEAD_BYTES_MAX)
        .max_headers(HEAD_FIELDS_MAX)
        .serve_connection(TokioIo::new(stream), service);
    match tokio::time::timeout(CONNECTION_DEADLINE, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "an administrator's connection ended early"),
        Err(_) => tracing::debug!("an administrator's connection took too long"),
    }
}

fn is_read(request: &Request<Incoming>) -> bool {
    matches!(*request.method(), Method::GET | Method::HEAD)
}

fn answer_metrics(metrics: &GatewayMetrics, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    match is_read(request) {
        true => text_answer(StatusCode::OK, MEDIA_TYPE, metrics.encode()),
        false => refuse_method("GET, HEAD"),
    }
}

fn refuse_method(allowed: &'static str) -> Response<Full<Bytes>> {
    let mut response = refuse(StatusCode::METHOD_NOT_ALLOWED, allowed);
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
    response
}

fn refuse(status: StatusCode, message: &str) -> Response<Full<Bytes>> {
    json_answer(status, &json!({ "error": { "message": message } }))
}

fn json_answer(status: StatusCode, body: &Value) -> Response<Full<Bytes>> {
    text_answer(status, "application/json", body.to_string())
}

fn text_answer(
    status: StatusCode,
    media_type: &'static str,
    body: String,
) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}
