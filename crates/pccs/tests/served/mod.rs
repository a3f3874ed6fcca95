//! A service on loopback, and a client for it.
#![allow(dead_code, reason = "each test file uses its part")]

use std::{net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use confide_fake_attester::{FakeAttester, FakeAttesterOptions, Fault, Mode, Tee};
use confide_pccs::{Document, DocumentSource, PccsLimits, Service, split_endorsements};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use tokio::{net::TcpListener, sync::oneshot, task::JoinHandle};

/// The issue time of the simulated endorsements, and the clock of the services, in Unix seconds.
pub(crate) const ISSUED_AT: u64 = 1_780_272_000;

pub(crate) fn clock() -> u64 {
    ISSUED_AT + 60
}

pub(crate) fn options() -> FakeAttesterOptions {
    let (seed, tee, mode) = ([7; 32], Tee::Tdx, Mode::Raw);
    FakeAttesterOptions { seed, tee, debug: false, issued_at: ISSUED_AT, mode }
}

/// The collateral of an attester, with or without a fault.
pub(crate) fn collateral(fault: Option<Fault>) -> Vec<u8> {
    let attester = match fault {
        Some(fault) => FakeAttester::with_fault(options(), fault),
        None => FakeAttester::new(options()),
    };
    attester.unwrap().collateral_json().into_bytes()
}

pub(crate) fn documents(fault: Option<Fault>) -> Vec<Document> {
    split_endorsements(&collateral(fault), clock()).unwrap()
}

/// The simulated platform family.
pub(crate) fn fmspc(documents: &[Document]) -> String {
    let key = documents.iter().find_map(|document| document.key.strip_suffix("/standard"));
    key.unwrap().to_owned()
}

pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    serving: JoinHandle<Result<(), confide_pccs::ServeError>>,
}

pub(crate) struct Got {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Got {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

/// Serves with short waits, so that tests of limits do not wait long.
pub(crate) async fn serve(source: DocumentSource, adjust: impl FnOnce(&mut PccsLimits)) -> Served {
    let mut limits = PccsLimits { drain: Duration::from_secs(60), ..PccsLimits::default() };
    adjust(&mut limits);
    let service = Service::new(confide_pccs::PccsOptions { source, limits, clock });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel();
    let serving = tokio::spawn(confide_pccs::serve(listener, Arc::new(service), async move {
        let _ = stopped.await;
    }));
    Served { address, stop: Some(stop), serving }
}

impl Served {
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) async fn get(&self, path: &str) -> Got {
        self.ask(Method::GET, path, &[], "").await.unwrap()
    }

    pub(crate) async fn post(&self, path: &str, body: &str) -> Got {
        self.ask(Method::POST, path, &[], body).await.unwrap()
    }

    /// Sends a request. An error is a connection that broke, or a body that did not end.
    pub(crate) async fn ask(
        &self,
        method: Method,
        path: &str,
        fields: &[(&str, &str)],
        body: &str,
    ) -> Result<Got, String> {
        let client = Client::builder(TokioExecutor::new()).build_http();
        self.ask_with(&client, method, path, fields, body).await
    }

    /// As `get`, over HTTP/2 with prior knowledge.
    pub(crate) async fn get_over_http2(&self, path: &str) -> Got {
        let client = Client::builder(TokioExecutor::new()).http2_only(true).build_http();
        self.ask_with(&client, Method::GET, path, &[], "").await.unwrap()
    }

    async fn ask_with(
        &self,
        client: &Client<hyper_util::client::legacy::connect::HttpConnector, Full<Bytes>>,
        method: Method,
        path: &str,
        fields: &[(&str, &str)],
        body: &str,
    ) -> Result<Got, String> {
        let mut request = Request::builder().method(method).uri(self.url() + path);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::from(body.to_owned())).unwrap();
        let response = client.request(request).await.map_err(|error| error.to_string())?;
        let (head, body) = response.into_parts();
        let body = body.collect().await.map_err(|error| error.to_string())?.to_bytes();
        Ok(Got { status: head.status, headers: head.headers, body })
    }

    /// Asks the service to stop, and waits until it has.
    pub(crate) async fn stop(mut self) -> Result<(), confide_pccs::ServeError> {
        let _ = self.stop.take().unwrap().send(());
        self.serving.await.unwrap()
    }
}

/// A folder of its own under the system's temporary one, removed at the end.
pub(crate) struct Folder(pub(crate) std::path::PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let unique = format!("confide-pccs-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(unique);
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
