//! Loopback proxies before attested servers, and their local clients.
#![allow(dead_code, reason = "each test file uses its part")]

use std::{net::SocketAddr, sync::Arc};

use confide_client::{
    AllowedOrigins, Binding, ClientLimits, Connector, DrainOutcome, Endpoint, HttpClient,
    PolicyAppraiser, ReplicaSet, serve,
};
use confide_verifier::Policy;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::oneshot,
    task::JoinHandle,
};

use crate::site::{CONFIG_DIGEST, attester, finish_in_time, now};

/// A loopback proxy.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) stop: oneshot::Sender<()>,
    pub(crate) ended: JoinHandle<DrainOutcome>,
}

/// Configuration of a loopback proxy.
pub(crate) struct LocalOptions {
    pub(crate) binding: Binding,
    pub(crate) origins: AllowedOrigins,
    pub(crate) limits: ClientLimits,
    /// The clock by which claims of open connections expire.
    pub(crate) clock: fn() -> u64,
}

impl Default for LocalOptions {
    fn default() -> Self {
        let (origins, limits) = (AllowedOrigins::default(), ClientLimits::default());
        Self { binding: Binding::Key, origins, limits, clock: now }
    }
}

pub(crate) async fn loopback(attested: SocketAddr, limits: ClientLimits) -> Running {
    loopback_with(LocalOptions { limits, ..LocalOptions::default() }, attested).await
}

/// Opens a loopback address for an attested end.
pub(crate) async fn loopback_with(options: LocalOptions, attested: SocketAddr) -> Running {
    let LocalOptions { binding, origins, limits, clock } = options;
    let policy = Policy::from_toml(&attester().policy_toml_pinning(CONFIG_DIGEST)).unwrap();
    let appraiser = Arc::new(PolicyAppraiser::new(policy, None, now).unwrap());
    let endpoint = Endpoint::parse(&format!("https://{attested}")).unwrap();
    let connector = Connector::with_appraiser(endpoint, None, binding, appraiser, limits).unwrap();
    let client = Arc::new(HttpClient::new(connector, limits, clock));
    let replicas = Arc::new(ReplicaSet::of_one(client));
    serve_replicas(replicas, origins, limits).await
}

/// Opens a loopback address for replicas.
pub(crate) async fn serve_replicas(
    replicas: Arc<ReplicaSet>,
    origins: AllowedOrigins,
    limits: ClientLimits,
) -> Running {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let verification = Arc::new(|| serde_json::Value::Null);
    let ended =
        tokio::spawn(serve(listener, replicas, origins, limits, verification, now, async {
            let _ = stopped.await;
        }));
    Running { address, stop, ended }
}

pub(crate) async fn ask(address: SocketAddr, request: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

pub(crate) async fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut seen = Vec::new();
    let mut byte = [0];
    while !seen.ends_with(end.as_bytes()) {
        match finish_in_time(stream.read(&mut byte)).await {
            Ok(1) => seen.push(byte[0]),
            _ => break,
        }
    }
    String::from_utf8(seen).unwrap()
}

pub(crate) async fn read_to_end(stream: &mut TcpStream) -> String {
    let mut seen = Vec::new();
    let _ = finish_in_time(stream.read_to_end(&mut seen)).await;
    String::from_utf8(seen).unwrap()
}
