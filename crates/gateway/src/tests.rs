//! The proxy over plain TCP: raw bytes in, raw bytes out, an upstream that follows a script.

mod floods;

use std::{convert::Infallible, future::Future, net::SocketAddr, sync::Arc, time::Duration};

use confide_channel::Binding;
use confide_http::{Admission, AdmissionLimits, PeerStream};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpSocket, TcpStream},
    sync::{mpsc, oneshot},
    task::JoinHandle,
};

use crate::{
    DEFAULT_GROUP, DrainOutcome, GatewayConfiguration, GatewayLimits, Route, ServerStates,
    Upstream,
    acceptor::{Acceptor, OpenedStream},
    configuration_slot::ConfigurationSlot,
    configuration_version::ConfigurationVersion,
    http_version::HttpVersion,
    proxy::Proxy,
};

mod admin;
mod answer_shape;
mod api_keys;
mod authorization_hook;
mod cache_salt;
mod checked_upstream;
mod encrypted_bodies;
mod faults;
mod foreign_forms;
mod framing;
mod fresh_evidence;
mod http1_server;
mod http2;
mod http2_upstreams;
mod https_upstreams;
mod keep_alive;
mod model_servers;
mod queueing;
mod receipts;
mod reload;
mod routes;
mod telemetry;
mod trailers;
mod websocket;

/// Nothing here takes this long unless it hangs.
const GENEROUS: Duration = Duration::from_secs(60);

const GET: &str = "GET /v1/models HTTP/1.1\r\nhost: gateway\r\n\r\n";
const GET_CLOSE: &str = "GET /v1/models HTTP/1.1\r\nhost: gateway\r\nconnection: close\r\n\r\n";
const CHUNKED: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\
                       content-type: text/event-stream\r\n\r\n";
const LAST_CHUNK: &str = "0\r\n\r\n";

/// Opens no TLS: both ends know the version of HTTP.
struct Plain(HttpVersion);

impl Acceptor for Plain {
    type Stream = PeerStream;
    type Refusal = Infallible;

    async fn open_stream(
        &self,
        stream: PeerStream,
    ) -> Result<OpenedStream<PeerStream>, Infallible> {
        Ok(OpenedStream { stream, version: self.0, evidence: None })
    }
}

struct RunningGateway {
    address: SocketAddr,
    states: ServerStates,
    stop: oneshot::Sender<()>,
    ended: JoinHandle<DrainOutcome>,
    slot: Arc<ConfigurationSlot<Plain>>,
}

/// A gateway that proxies every path: what is allowed has tests of its own.
async fn gateway(upstream: SocketAddr, limits: GatewayLimits) -> RunningGateway {
    gateway_for(AdmissionLimits::default(), upstream, limits).await
}

async fn gateway_for(
    admission: AdmissionLimits,
    upstream: SocketAddr,
    limits: GatewayLimits,
) -> RunningGateway {
    let upstream = Upstream::parse(&format!("http://{upstream}")).unwrap();
    let mut configuration = GatewayConfiguration::with_upstream(Binding::Key, upstream);
    configuration.routes = vec![Route::dangerous_everything(DEFAULT_GROUP)];
    gateway_of(admission, configuration, limits).await
}

async fn gateway_with(
    configuration: GatewayConfiguration,
    limits: GatewayLimits,
) -> RunningGateway {
    gateway_of(AdmissionLimits::default(), configuration, limits).await
}

async fn gateway_of(
    admission: AdmissionLimits,
    configuration: GatewayConfiguration,
    limits: GatewayLimits,
) -> RunningGateway {
    serve_proxy(Proxy::new(&configuration, true, limits).unwrap(), limits, admission).await
}

async fn serve_proxy(
    proxy: Proxy,
    limits: GatewayLimits,
    admission: AdmissionLimits,
) -> RunningGateway {
    serve_version(configuration_version(proxy, limits), admission).await
}

async fn gateway_speaking(
    version: HttpVersion,
    admission: AdmissionLimits,
    configuration: GatewayConfiguration,
    limits: GatewayLimits,
) -> RunningGateway {
    let proxy = Arc::new(Proxy::new(&configuration, true, limits).unwrap());
    serve_version(ConfigurationVersion::new(Arc::new(Plain(version)), proxy, limits), admission)
        .await
}

async fn serve_version(
    first: ConfigurationVersion<Plain>,
    admission: AdmissionLimits,
) -> RunningGateway {
    let states = ServerStates::new(first.proxy.groups());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let slot = Arc::new(ConfigurationSlot::new(first));
    let served = slot.clone();
    let ended = tokio::spawn(async move {
        let stop = async { drop(stopped.await) };
        served.serve(listener.into(), Admission::new(admission), stop).await
    });
    RunningGateway { address, states, stop, ended, slot }
}

fn configuration_version(proxy: Proxy, limits: GatewayLimits) -> ConfigurationVersion<Plain> {
    ConfigurationVersion::new(Arc::new(Plain(HttpVersion::Http1)), Arc::new(proxy), limits)
}

/// An upstream that runs `script` on each connection.
async fn upstream<F, R>(script: F) -> SocketAddr
where
    F: Fn(TcpStream) -> R + Send + 'static,
    R: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(script(stream));
        }
    });
    address
}

/// An upstream that reads one request head, writes `answer` and closes.
async fn upstream_saying(answer: &'static str) -> SocketAddr {
    upstream(move |mut stream| async move {
        read_until(&mut stream, "\r\n\r\n").await;
        stream.write_all(answer.as_bytes()).await.unwrap();
    })
    .await
}

/// An upstream that writes the pieces of its answer, each but the first one when it is told to go
/// on.
async fn stepping_upstream(pieces: &[&str]) -> (SocketAddr, mpsc::UnboundedSender<()>) {
    let (go_on, wait) = mpsc::unbounded_channel::<()>();
    let wait = Arc::new(tokio::sync::Mutex::new(wait));
    let pieces: Arc<[String]> = pieces.iter().map(|&piece| piece.to_owned()).collect();
    let address = upstream(move |mut stream| {
        let (pieces, wait) = (pieces.clone(), wait.clone());
        async move {
            read_until(&mut stream, "\r\n\r\n").await;
            for (index, piece) in pieces.iter().enumerate() {
                if index > 0 {
                    wait.lock().await.recv().await;
                }
                stream.write_all(piece.as_bytes()).await.unwrap();
            }
        }
    })
    .await;
    (address, go_on)
}

/// An address that nobody listens on and nobody else can take while the socket lives.
fn closed_address() -> (TcpSocket, SocketAddr) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

async fn read_until<S: AsyncRead + Unpin>(stream: &mut S, end: &str) -> String {
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

async fn read_to_end(stream: &mut TcpStream) -> String {
    let mut seen = Vec::new();
    let _ = finish_in_time(stream.read_to_end(&mut seen)).await;
    String::from_utf8(seen).unwrap()
}

async fn ask(gateway: SocketAddr, request: &str) -> TcpStream {
    let mut stream = TcpStream::connect(gateway).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

async fn exchange(gateway: SocketAddr, request: &str) -> String {
    read_to_end(&mut ask(gateway, request).await).await
}

async fn finish_in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(GENEROUS, future).await.expect("this hangs")
}

#[tokio::test]
async fn a_request_passes_without_the_fields_of_its_connection_or_of_another_route() {
    let (saw, mut seen) = mpsc::unbounded_channel();
    let upstream = upstream(move |mut stream| {
        let saw = saw.clone();
        async move {
            saw.send(read_until(&mut stream, "hello").await).unwrap();
            let answer = "HTTP/1.1 201 Created\r\ncontent-length: 2\r\nkeep-alive: timeout=9\r\n\
                          x-kept: yes\r\n\r\nok";
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    })
    .await;
    let gateway = gateway(upstream, GatewayLimits::default()).await;
    let request = "POST /v1/completions?x=1 HTTP/1.1\r\nhost: outside\r\nauthorization: Bearer k\r\n\
                   connection: close, x-hop\r\nx-hop: 1\r\nX-HTTP-Method-Override: DELETE\r\n\
                   X-Original-URL: /metrics\r\ncontent-length: 5\r\n\r\nhello";
    let answer = exchange(gateway.address, request).await;
    assert!(answer.starts_with("HTTP/1.1 201 Created\r\n"), "{answer}");
    assert!(answer.contains("x-kept: yes") && answer.ends_with("\r\n\r\nok"), "{answer}");
    assert!(!answer.contains("timeout=9"), "{answer}");
    let forwarded = seen.recv().await.unwrap();
    assert!(forwarded.starts_with("POST /v1/completions?x=1 HTTP/1.1\r\n"), "{forwarded}");
    assert!(forwarded.contains(&format!("host: {upstream}\r\n")), "{forwarded}");
    assert!(forwarded.contains("authorization: Bearer k\r\n"), "{forwarded}");
    for field in ["x-hop", "x-http-method-override", "x-original-url"] {
        assert!(!forwarded.to_ascii_lowercase().contains(field), "{forwarded}");
    }
}

#[tokio::test]
async fn each_piece_of_a_stream_passes_before_the_next_is_made() {
    let first = format!("{CHUNKED}9\r\ndata: 1\n\n\r\n");
    let (upstream, go_on) = stepping_upstream(&[&first, "9\r\ndata: 2\n\n\r\n", LAST_CHUNK]).await;
    let gateway = gateway(upstream, GatewayLimits::default()).await;
    let mut client = ask(gateway.address, GET_CLOSE).await;
    let first = read_until(&mut client, "data: 1\n\n\r\n").await;
    assert!(first.contains("text/event-stream") && !first.contains("data: 2"), "{first}");
    go_on.send(()).unwrap();
    assert!(read_until(&mut client, "data: 2\n\n\r\n").await.ends_with("data: 2\n\n\r\n"));
    go_on.send(()).unwrap();
    assert_eq!(read_to_end(&mut client).await, LAST_CHUNK);
}

#[tokio::test]
async fn an_upstream_that_dies_in_mid_stream_leaves_a_broken_stream() {
    let answer = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n";
    let gateway = gateway(upstream_saying(answer).await, GatewayLimits::default()).await;
    let got = exchange(gateway.address, GET).await;
    assert!(got.contains("data: 1"), "{got}");
    assert!(!got.ends_with(LAST_CHUNK), "the broken stream looks complete: {got}");
}

#[tokio::test]
async fn a_client_that_could_not_see_a_break_gets_no_stream() {
    let whole = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    let streamed = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
    for (answer, wanted) in [(whole, " 200 "), (streamed, " 505 ")] {
        let gateway = gateway(upstream_saying(answer).await, GatewayLimits::default()).await;
        let got = exchange(gateway.address, "GET / HTTP/1.0\r\n\r\n").await;
        assert!(got.lines().next().unwrap().contains(wanted), "{got}");
    }
}

#[tokio::test]
async fn an_answer_shorter_than_its_length_stays_short() {
    let answer = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf";
    let gateway = gateway(upstream_saying(answer).await, GatewayLimits::default()).await;
    let got = exchange(gateway.address, GET).await;
    assert!(got.contains("content-length: 100\r\n") && got.ends_with("\r\n\r\nhalf"), "{got}");
}

#[tokio::test]
async fn an_answer_without_any_length_is_not_passed_on() {
    for answer in [
        "HTTP/1.1 200 OK\r\n\r\nuntil the end",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\nuntil the end",
        "HTTP/1.0 200 OK\r\n\r\nuntil the end",
    ] {
        let gateway = gateway(upstream_saying(answer).await, GatewayLimits::default()).await;
        let got = exchange(gateway.address, GET_CLOSE).await;
        assert!(got.starts_with("HTTP/1.1 502 ") && got.contains("upstream_unframed"), "{got}");
    }
}

#[tokio::test]
async fn answers_that_have_no_body_need_no_length() {
    for (request, answer) in [
        (
            "GET / HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n",
            "HTTP/1.1 204 No Content\r\n\r\n",
        ),
        ("HEAD / HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n"),
    ] {
        let gateway = gateway(upstream_saying(answer).await, GatewayLimits::default()).await;
        let got = exchange(gateway.address, request).await;
        assert!(got.starts_with("HTTP/1.1 20"), "{got}");
    }
}

#[tokio::test]
async fn an_upstream_that_pauses_too_long_leaves_a_broken_stream() {
    let upstream = upstream(|mut stream| async move {
        read_until(&mut stream, "\r\n\r\n").await;
        stream.write_all(CHUNKED.as_bytes()).await.unwrap();
        read_to_end(&mut stream).await;
    })
    .await;
    let limits = GatewayLimits {
        response_body_pause: Duration::from_millis(50),
        ..GatewayLimits::default()
    };
    let got = exchange(gateway(upstream, limits).await.address, GET).await;
    assert!(got.starts_with("HTTP/1.1 200 ") && !got.ends_with(LAST_CHUNK), "{got}");
}

#[tokio::test]
async fn an_unreachable_upstream_is_a_502_in_openai_shape() {
    let (_closed, address) = closed_address();
    let gateway = gateway(address, GatewayLimits::default()).await;
    let got = exchange(gateway.address, GET_CLOSE).await;
    let (head, body) = got.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 502 ") && head.contains("application/json"), "{head}");
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!(body["error"]["code"], "upstream_unreachable");
    assert_eq!(body["error"]["type"], "server_error");
}

#[tokio::test]
async fn an_upstream_that_hangs_up_before_it_answers_is_a_502() {
    let gateway = gateway(upstream_saying("").await, GatewayLimits::default()).await;
    let got = exchange(gateway.address, GET_CLOSE).await;
    assert!(got.starts_with("HTTP/1.1 502 ") && got.contains("upstream_broke_off"), "{got}");
}

#[tokio::test]
async fn an_upstream_that_never_answers_is_a_504() {
    let upstream = upstream(|mut stream| async move {
        read_to_end(&mut stream).await;
    })
    .await;
    let limits =
        GatewayLimits { upstream_start: Duration::from_millis(50), ..GatewayLimits::default() };
    let got = exchange(gateway(upstream, limits).await.address, GET_CLOSE).await;
    assert!(got.starts_with("HTTP/1.1 504 ") && got.contains("upstream_timeout"), "{got}");
}

#[tokio::test]
async fn a_request_body_beyond_the_limit_is_a_413() {
    let upstream = upstream(|mut stream| async move {
        read_to_end(&mut stream).await;
    })
    .await;
    let request_body_linger = Duration::from_millis(50);
    let limits =
        GatewayLimits { request_body_bytes: 8, request_body_linger, ..GatewayLimits::default() };
    let gateway = gateway(upstream, limits).await;
    for framed in [
        "content-length: 9\r\n\r\n",
        "transfer-encoding: chunked\r\n\r\n9\r\n123456789\r\n0\r\n\r\n",
    ] {
        let request = format!("POST / HTTP/1.1\r\nhost: h\r\nconnection: close\r\n{framed}");
        let got = exchange(gateway.address, &request).await;
        assert!(got.starts_with("HTTP/1.1 413 ") && got.contains("request_too_large"), "{got}");
    }
}

#[tokio::test]
async fn a_request_with_a_length_and_chunks_reaches_the_upstream_with_its_chunks_only() {
    let (saw, mut seen) = mpsc::unbounded_channel();
    let upstream = upstream(move |mut stream| {
        let saw = saw.clone();
        async move {
            let _ = saw.send(read_until(&mut stream, LAST_CHUNK).await);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
        }
    })
    .await;
    let gateway = gateway(upstream, GatewayLimits::default()).await;
    let request = "POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 3\r\n\
                   transfer-encoding: chunked\r\nconnection: close\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    let got = exchange(gateway.address, request).await;
    assert!(got.starts_with("HTTP/1.1 200 "), "{got}");
    let forwarded = seen.recv().await.unwrap();
    let (head, body) = forwarded.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("transfer-encoding: chunked"), "{forwarded}");
    assert!(!head.contains("content-length"), "{forwarded}");
    assert_eq!(body, "5\r\nhello\r\n0\r\n\r\n");
}

#[tokio::test]
async fn a_request_with_two_different_lengths_is_a_400() {
    let gateway = gateway(upstream_saying("").await, GatewayLimits::default()).await;
    let request = "POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 3\r\ncontent-length: 4\r\n\
                   connection: close\r\n\r\nfour";
    let got = exchange(gateway.address, request).await;
    assert!(got.starts_with("HTTP/1.1 400 "), "{got}");
}

#[tokio::test]
async fn a_head_beyond_the_limit_is_a_431() {
    let gateway = gateway(upstream_saying("").await, GatewayLimits::default()).await;
    let many = "x: 1\r\n".repeat(200);
    let long = format!("x: {}\r\n", "y".repeat(70_000));
    for fields in [many, long] {
        let request = format!("GET / HTTP/1.1\r\nhost: h\r\n{fields}\r\n");
        let got = exchange(gateway.address, &request).await;
        assert!(got.starts_with("HTTP/1.1 431 "), "{got}");
    }
}

#[tokio::test]
async fn a_peer_that_sends_no_request_is_let_go() {
    let limits =
        GatewayLimits { first_head: Duration::from_millis(50), ..GatewayLimits::default() };
    let gateway = gateway(upstream_saying("").await, limits).await;
    assert_eq!(exchange(gateway.address, "GET / HT").await, "");
}

#[tokio::test]
async fn an_idle_connection_is_let_go() {
    let upstream = upstream_saying("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
    let limits = GatewayLimits { idle: Duration::from_millis(100), ..GatewayLimits::default() };
    let gateway = gateway(upstream, limits).await;
    // If the machine stands still for that long, it is let go before its request is read.
    let mut got = String::new();
    while got.is_empty() {
        got = exchange(gateway.address, GET).await;
    }
    assert!(got.contains("\r\n\r\nok"), "{got}");
}

#[tokio::test]
async fn kept_connections_serve_many_requests_on_both_sides() {
    let (saw, mut seen) = mpsc::unbounded_channel();
    let upstream = upstream(move |mut stream| {
        let saw = saw.clone();
        async move {
            let _ = saw.send(());
            while read_until(&mut stream, "\r\n\r\n").await.ends_with("\r\n\r\n") {
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
                stream.write_all(answer).await.unwrap();
            }
        }
    })
    .await;
    let gateway = gateway(upstream, GatewayLimits::default()).await;
    let mut client = TcpStream::connect(gateway.address).await.unwrap();
    for _ in 0..5 {
        client.write_all(GET.as_bytes()).await.unwrap();
        assert!(read_until(&mut client, "\r\n\r\nok").await.ends_with("ok"));
    }
    assert!(seen.recv().await.is_some());
    assert!(seen.try_recv().is_err(), "the upstream was dialled more than once");
}

#[tokio::test]
async fn a_client_that_does_not_read_holds_the_upstream_back() {
    const FLOOD_BYTES: usize = 256 * 1024 * 1024;
    let (count, mut counted) = tokio::sync::watch::channel(0_usize);
    let count = Arc::new(count);
    let upstream = upstream(move |mut stream| {
        let count = count.clone();
        async move {
            read_until(&mut stream, "\r\n\r\n").await;
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {FLOOD_BYTES}\r\n\r\n");
            stream.write_all(head.as_bytes()).await.unwrap();
            let piece = vec![b'x'; 64 * 1024];
            while stream.write_all(&piece).await.is_ok() {
                count.send_modify(|sent| *sent += piece.len());
            }
        }
    })
    .await;
    let gateway = gateway(upstream, GatewayLimits::default()).await;
    let _client = ask(gateway.address, GET).await;
    counted.changed().await.unwrap();
    // Until nothing moves any more: the buffers of three sockets and one proxy are full.
    while tokio::time::timeout(Duration::from_millis(300), counted.changed()).await.is_ok() {}
    assert!(*counted.borrow() < FLOOD_BYTES / 4, "{} bytes were taken", *counted.borrow());
}

#[tokio::test]
async fn a_client_that_leaves_ends_the_upstreams_work() {
    let (gone, left) = oneshot::channel::<()>();
    let gone = Arc::new(std::sync::Mutex::new(Some(gone)));
    let upstream = upstream(move |mut stream| {
        let gone = gone.clone();
        async move {
            read_until(&mut stream, "\r\n\r\n").await;
            stream.write_all(CHUNKED.as_bytes()).await.unwrap();
            read_to_end(&mut stream).await;
            if let Some(gone) = gone.lock().unwrap().take() {
                let _ = gone.send(());
            }
        }
    })
    .await;
    let gateway = gateway(upstream, GatewayLimits::default()).await;
    let mut client = ask(gateway.address, GET).await;
    read_until(&mut client, "\r\n\r\n").await;
    drop(client);
    finish_in_time(left).await.unwrap();
}

#[tokio::test]
async fn the_gateway_shows_its_configuration_and_refuses_connect() {
    let gateway = gateway(upstream_saying("").await, GatewayLimits::default()).await;
    let request = "GET /.well-known/confide HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n";
    let got = exchange(gateway.address, request).await;
    assert!(got.contains(r#""simulated":true,"config_digest":""#), "{got}");
    let request = "CONNECT elsewhere:443 HTTP/1.1\r\nhost: elsewhere:443\r\n\r\n";
    let mut refused = ask(gateway.address, request).await;
    assert!(read_until(&mut refused, "\r\n").await.starts_with("HTTP/1.1 405 "));
}

/// A client in the middle of a stream, and the means to let the upstream finish it.
async fn in_mid_stream(
    limits: GatewayLimits,
) -> (RunningGateway, TcpStream, mpsc::UnboundedSender<()>) {
    let (upstream, go_on) = stepping_upstream(&[CHUNKED, LAST_CHUNK]).await;
    let gateway = gateway(upstream, limits).await;
    let mut client = ask(gateway.address, GET).await;
    read_until(&mut client, "\r\n\r\n").await;
    (gateway, client, go_on)
}

#[tokio::test]
async fn a_running_answer_is_finished_before_the_end() {
    let (gateway, mut client, go_on) = in_mid_stream(GatewayLimits::default()).await;
    let mut idle = TcpStream::connect(gateway.address).await.unwrap();
    gateway.stop.send(()).unwrap();
    assert_eq!(read_to_end(&mut idle).await, "");
    go_on.send(()).unwrap();
    assert_eq!(read_to_end(&mut client).await, LAST_CHUNK);
    assert_eq!(finish_in_time(gateway.ended).await.unwrap(), DrainOutcome::Completely);
}

#[tokio::test]
async fn an_answer_that_outlasts_the_drain_deadline_is_cut_and_looks_cut() {
    let limits = GatewayLimits { drain: Duration::from_millis(50), ..GatewayLimits::default() };
    let (gateway, mut client, _go_on) = in_mid_stream(limits).await;
    gateway.stop.send(()).unwrap();
    assert_eq!(finish_in_time(gateway.ended).await.unwrap(), DrainOutcome::Cut(1));
    assert_eq!(read_to_end(&mut client).await, "");
}

#[tokio::test]
async fn codings_that_are_not_undone_are_not_passed_off_as_plain() {
    for coding in ["xchunked", "gzip, chunked", "gzip\r\ntransfer-encoding: chunked"] {
        let answer =
            format!("HTTP/1.1 200 OK\r\ntransfer-encoding: {coding}\r\n\r\n2\r\nok\r\n0\r\n\r\n");
        let upstream = upstream_saying(Box::leak(answer.into_boxed_str())).await;
        let gateway = gateway(upstream, GatewayLimits::default()).await;
        let got = exchange(gateway.address, GET_CLOSE).await;
        assert!(got.starts_with("HTTP/1.1 502 ") && got.contains("upstream_unframed"), "{got}");
        let request = format!(
            "POST / HTTP/1.1\r\nhost: h\r\nconnection: close\r\ntransfer-encoding: {coding}\r\n\r\n\
             2\r\nok\r\n0\r\n\r\n"
        );
        let got = exchange(gateway.address, &request).await;
        let status = got.get(..13).unwrap_or_default();
        assert!(["HTTP/1.1 501 ", "HTTP/1.1 400 "].contains(&status), "{coding}: {got}");
    }
}

#[tokio::test]
async fn an_upstream_that_changes_protocols_unasked_is_a_502() {
    let answer = "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n";
    let gateway = gateway(upstream_saying(answer).await, GatewayLimits::default()).await;
    let got = exchange(gateway.address, GET_CLOSE).await;
    assert!(got.starts_with("HTTP/1.1 502 ") && got.contains("upstream_unframed"), "{got}");
}

#[tokio::test]
async fn interim_answers_are_not_taken_for_the_answer() {
    let answer = "HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n\
                  HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    let gateway = gateway(upstream_saying(answer).await, GatewayLimits::default()).await;
    let got = exchange(gateway.address, GET_CLOSE).await;
    assert!(got.starts_with("HTTP/1.1 200 ") && got.ends_with("\r\n\r\nok"), "{got}");
}

#[tokio::test]
async fn what_would_echo_keys_or_has_no_body_to_take_is_refused() {
    let gateway = gateway(upstream_saying("").await, GatewayLimits::default()).await;
    for (start, fields) in [
        ("TRACE /v1/models", "authorization: Bearer k\r\n"),
        ("POST /.well-known/confide", "content-length: 0\r\n"),
    ] {
        let request = format!("{start} HTTP/1.1\r\nhost: h\r\nconnection: close\r\n{fields}\r\n");
        let got = exchange(gateway.address, &request).await;
        assert!(got.starts_with("HTTP/1.1 405 ") && !got.contains("Bearer"), "{got}");
    }
}

#[tokio::test]
async fn a_length_that_is_written_twice_is_passed_on_once() {
    let (saw, mut seen) = mpsc::unbounded_channel();
    let upstream = upstream(move |mut stream| {
        let saw = saw.clone();
        async move {
            let _ = saw.send(read_until(&mut stream, "hello").await);
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 2\r\n\r\nok";
            let _ = stream.write_all(answer).await;
        }
    })
    .await;
    let gateway = gateway(upstream, GatewayLimits::default()).await;
    let request = "POST / HTTP/1.1\r\nhost: h\r\nconnection: close\r\ncontent-length: 5\r\n\
                   content-length: 5\r\n\r\nhello";
    let got = exchange(gateway.address, request).await;
    if got.starts_with("HTTP/1.1 200 ") {
        let forwarded = seen.recv().await.unwrap();
        assert_eq!(forwarded.matches("content-length").count(), 1, "{forwarded}");
        assert_eq!(got.matches("content-length").count(), 1, "{got}");
    } else {
        assert!(got.starts_with("HTTP/1.1 400 "), "{got}");
    }
    let request = request.replacen(": 5", ": 6", 1);
    let got = exchange(gateway.address, &request).await;
    assert!(got.starts_with("HTTP/1.1 400 "), "{got}");
}

#[tokio::test]
async fn an_answer_that_comes_before_the_end_of_the_request_is_passed_on() {
    let early = "HTTP/1.1 429 Too Many Requests\r\ncontent-length: 4\r\n\r\nbusy";
    let upstream = upstream(move |mut stream| async move {
        read_until(&mut stream, "\r\n\r\n").await;
        let _ = stream.write_all(early.as_bytes()).await;
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest).await;
    })
    .await;
    let gateway = gateway(upstream, GatewayLimits::default()).await;
    let head = "POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 10000000\r\n\r\nthe beginning";
    let mut client = ask(gateway.address, head).await;
    let got = read_until(&mut client, "busy").await;
    assert!(got.starts_with("HTTP/1.1 429 ") && got.ends_with("busy"), "{got}");
}

#[tokio::test]
async fn only_what_was_asked_for_leaves_the_gateway_whatever_the_target_says() {
    let (saw, mut seen) = mpsc::unbounded_channel();
    let upstream = upstream(move |mut stream| {
        let saw = saw.clone();
        async move {
            saw.send(read_until(&mut stream, "\r\n\r\n").await).unwrap();
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
            let _ = stream.write_all(answer).await;
        }
    })
    .await;
    let gateway = gateway(upstream, GatewayLimits::default()).await;
    let request = "GET http://elsewhere.example:81/v1/models?x HTTP/1.1\r\n\
                   host: elsewhere.example:81\r\nupgrade: h2c\r\n\
                   connection: close, upgrade\r\nexpect: 100-continue\r\n\r\n";
    let got = exchange(gateway.address, request).await;
    assert!(got.starts_with("HTTP/1.1 200 "), "{got}");
    let forwarded = seen.recv().await.unwrap();
    assert!(forwarded.starts_with("GET /v1/models?x HTTP/1.1\r\n"), "{forwarded}");
    assert_eq!(forwarded.matches("host:").count(), 1, "{forwarded}");
    for gone in ["elsewhere", "h2c", "upgrade", "expect"] {
        assert!(!forwarded.contains(gone), "{forwarded}");
    }
    let long = format!("GET /{} HTTP/1.1\r\nhost: h\r\n\r\n", "x".repeat(70_000));
    let got = exchange(gateway.address, &long).await;
    assert!(got.starts_with("HTTP/1.1 4"), "{got}");
}

#[tokio::test]
async fn a_redirect_to_the_upstream_itself_stays_at_the_gateway() {
    let upstream = upstream(move |mut stream| async move {
        read_until(&mut stream, "\r\n\r\n").await;
        let own = stream.local_addr().unwrap();
        let answer = format!(
            "HTTP/1.1 307 Temporary Redirect\r\nlocation: http://{own}/v1/models?a=b\r\n\
             content-length: 0\r\n\r\n"
        );
        let _ = stream.write_all(answer.as_bytes()).await;
    })
    .await;
    let gateway = gateway(upstream, GatewayLimits::default()).await;
    let got = exchange(gateway.address, GET_CLOSE).await;
    assert!(got.starts_with("HTTP/1.1 307 "), "{got}");
    assert!(got.contains("location: /v1/models?a=b\r\n"), "{got}");
}

#[tokio::test]
async fn a_refused_body_is_read_on_so_that_its_sender_sees_the_answer() {
    let limits = GatewayLimits { request_body_bytes: 8, ..GatewayLimits::default() };
    let gateway = gateway(upstream_saying("").await, limits).await;
    let body = vec![b'x'; 16 * 1024 * 1024];
    let head = format!("POST / HTTP/1.1\r\nhost: h\r\ncontent-length: {}\r\n\r\n", body.len());
    let mut client = ask(gateway.address, &head).await;
    finish_in_time(client.write_all(&body))
        .await
        .expect("the gateway closed before it had read the body");
    let got = read_until(&mut client, "\r\n\r\n").await;
    assert!(got.starts_with("HTTP/1.1 413 "), "{got}");
}

#[derive(Clone, Default)]
struct LogBuffer(Arc<std::sync::Mutex<Vec<u8>>>);

impl std::io::Write for LogBuffer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn the_access_log_has_one_line_per_request_and_nothing_that_a_client_said() {
    let upstream = upstream_saying("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
    let upstream = Upstream::parse(&format!("http://{upstream}")).unwrap();
    let configuration = GatewayConfiguration::with_upstream(Binding::Key, upstream);
    let kept = LogBuffer::default();
    let (log, end) = crate::AccessLog::start(kept.clone(), || 7);
    let limits = GatewayLimits::default();
    let proxy = Proxy::new(&configuration, true, limits).unwrap().with_access_log(Some(log));
    let RunningGateway { address, stop, ended, slot, .. } =
        serve_proxy(proxy, limits, AdmissionLimits::default()).await;
    drop(slot);
    let secret = "POST /v1/responses/secret-word/cancel?key=s3cret HTTP/1.1\r\nhost: gateway\r\n\
                  authorization: Bearer s3cret\r\nconnection: close\r\n\
                  content-length: 6\r\n\r\ns3cret";
    assert!(exchange(address, secret).await.starts_with("HTTP/1.1 200 OK"));
    let refused = "TRACE /v1/models HTTP/1.1\r\nhost: gateway\r\nconnection: close\r\n\r\n";
    assert!(exchange(address, refused).await.starts_with("HTTP/1.1 405"));
    let unknown = "GET /secret-word HTTP/1.1\r\nhost: gateway\r\nconnection: close\r\n\r\n";
    assert!(exchange(address, unknown).await.starts_with("HTTP/1.1 404"));
    stop.send(()).unwrap();
    finish_in_time(ended).await.unwrap();
    end.finish();
    let text = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
    assert!(!text.contains("s3cret") && !text.contains("secret-word"), "{text}");
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 3, "{text}");
    assert_eq!(
        (&lines[0]["path"], &lines[0]["status"]),
        (&"/v1/responses/*/cancel".into(), &200.into())
    );
    assert_eq!((&lines[2]["path"], &lines[2]["status"]), (&"/*".into(), &404.into()));
    assert_eq!((&lines[1]["method"], &lines[1]["status"]), (&"*".into(), &405.into()));
}
