//! Upstreams behind TLS: which certificates are accepted, and what else differs from plain TCP.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::{SinkExt, StreamExt};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig, SupportedProtocolVersion,
        crypto::aws_lc_rs,
        pki_types::{PrivateKeyDer, pem::PemObject},
        version::{TLS12, TLS13},
    },
    server::TlsStream,
};
use tokio_tungstenite::tungstenite::Message;

use super::{
    model_servers::{gateway_before, no_health_checks, post},
    *,
};
use crate::{
    ModelServer, connection::Connection, fault::UpstreamFault, fetch_model_manifest,
    upstream_roots::UpstreamRoots,
};

const ANSWER: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
const POST: &str = "POST /v1/completions HTTP/1.1\r\nhost: h\r\ncontent-length: 5\r\n\r\nhello";

/// A time at which the certificates below are valid, unless they have expired.
fn noon() -> u64 {
    1_780_000_000
}

/// A certificate authority.
pub(super) struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(super) fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    /// A server that presents a certificate for these names.
    fn server(&self, names: &[&str], version: &'static SupportedProtocolVersion) -> TlsAcceptor {
        self.server_offering(names, version, &[])
    }

    /// The same server, which chooses among these protocols (ALPN).
    pub(super) fn server_offering(
        &self,
        names: &[&str],
        version: &'static SupportedProtocolVersion,
        protocols: &[&str],
    ) -> TlsAcceptor {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        self.server_of(CertificateParams::new(names).unwrap(), version, protocols)
    }

    fn expired_server(&self) -> TlsAcceptor {
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2019, 1, 1);
        params.not_after = rcgen::date_time_ymd(2020, 1, 1);
        self.server_of(params, &TLS13, &[])
    }

    fn server_of(
        &self,
        params: CertificateParams,
        version: &'static SupportedProtocolVersion,
        protocols: &[&str],
    ) -> TlsAcceptor {
        let key = KeyPair::generate().unwrap();
        let chain = vec![params.signed_by(&key, &self.issuer).unwrap().der().clone()];
        let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap();
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        Arc::new(config).into()
    }

    /// The address of a server, which is verified by this authority.
    pub(super) fn upstream(&self, host: &str, address: SocketAddr) -> Upstream {
        let mut upstream = Upstream::parse(&format!("https://{host}:{}", address.port())).unwrap();
        upstream.set_roots(UpstreamRoots::from_pem(self.pem.as_bytes(), noon).unwrap());
        upstream
    }
}

/// An upstream that runs `script` on each TLS session.
async fn tls_upstream<F, R>(acceptor: TlsAcceptor, script: F) -> SocketAddr
where
    F: Fn(TlsStream<TcpStream>) -> R + Clone + Send + 'static,
    R: Future<Output = ()> + Send + 'static,
{
    upstream(move |stream| {
        let (acceptor, script) = (acceptor.clone(), script.clone());
        async move {
            if let Ok(stream) = acceptor.accept(stream).await {
                script(stream).await;
            }
        }
    })
    .await
}

/// A script that answers requests with a body of `hello`, and counts its sessions.
async fn answer_posts(mut stream: TlsStream<TcpStream>, sessions: Arc<AtomicUsize>) {
    sessions.fetch_add(1, Ordering::SeqCst);
    while read_until(&mut stream, "hello").await.ends_with("hello") {
        stream.write_all(ANSWER.as_bytes()).await.unwrap();
    }
}

async fn counting_upstream(acceptor: TlsAcceptor) -> (SocketAddr, Arc<AtomicUsize>) {
    let sessions = Arc::<AtomicUsize>::default();
    let counted = sessions.clone();
    let address = tls_upstream(acceptor, move |stream| answer_posts(stream, counted.clone())).await;
    (address, sessions)
}

async fn gateway_to(upstream: Upstream) -> RunningGateway {
    gateway_before(vec![ModelServer::new(upstream)], no_health_checks()).await
}

async fn post_on(client: &mut TcpStream) -> String {
    client.write_all(POST.as_bytes()).await.unwrap();
    let head = read_until(client, "\r\n\r\n").await;
    let end = if head.contains("200 OK") { "ok" } else { "}}" };
    head + &read_until(client, end).await
}

#[tokio::test]
async fn a_stream_passes_over_every_version_of_tls_piece_by_piece() {
    for (version, host) in [(&TLS13, "localhost"), (&TLS12, "127.0.0.1")] {
        let authority = Authority::new("ours");
        let (saw, mut seen) = mpsc::unbounded_channel();
        let (go_on, wait) = mpsc::unbounded_channel::<()>();
        let wait = Arc::new(tokio::sync::Mutex::new(wait));
        let acceptor = authority.server(&[host], version);
        let address = tls_upstream(acceptor, move |mut stream| {
            let (saw, wait) = (saw.clone(), wait.clone());
            async move {
                saw.send(read_until(&mut stream, "\r\n\r\n").await).unwrap();
                stream.write_all(CHUNKED.as_bytes()).await.unwrap();
                for piece in ["9\r\ndata: 1\n\n\r\n", "9\r\ndata: 2\n\n\r\n", LAST_CHUNK] {
                    stream.write_all(piece.as_bytes()).await.unwrap();
                    wait.lock().await.recv().await;
                }
            }
        })
        .await;
        let gateway = gateway_to(authority.upstream(host, address)).await;
        let mut client = ask(gateway.address, GET_CLOSE).await;
        let first = read_until(&mut client, "data: 1\n\n\r\n").await;
        assert!(first.starts_with("HTTP/1.1 200 ") && !first.contains("data: 2"), "{first}");
        go_on.send(()).unwrap();
        assert!(read_until(&mut client, "data: 2\n\n\r\n").await.ends_with("data: 2\n\n\r\n"));
        go_on.send(()).unwrap();
        assert_eq!(read_to_end(&mut client).await, LAST_CHUNK);
        let head = seen.recv().await.unwrap();
        assert!(head.contains(&format!("host: {host}:{}\r\n", address.port())), "{head}");
    }
}

#[tokio::test]
async fn a_server_whose_certificate_is_not_valid_gets_nothing_and_the_next_one_does() {
    let [authority, namesake, other] = ["ours", "ours", "theirs"].map(Authority::new);
    let (good, _) = counting_upstream(authority.server(&["localhost"], &TLS13)).await;
    for (acceptor, reason) in [
        (authority.expired_server(), "expired"),
        (authority.server(&["elsewhere.example"], &TLS13), "not valid for name"),
        (authority.server(&["elsewhere.example"], &TLS12), "not valid for name"),
        (other.server(&["localhost"], &TLS13), "UnknownIssuer"),
        (namesake.server(&["localhost"], &TLS13), "BadSignature"),
    ] {
        let (bad, sessions) = counting_upstream(acceptor).await;
        let bad = authority.upstream("localhost", bad);
        let Err(failure) = Connection::open(&bad, &GatewayLimits::default()).await else {
            panic!("accepted: {reason}");
        };
        assert_eq!(failure.fault, UpstreamFault::Unreachable);
        assert!(failure.reason.contains(reason), "{}", failure.reason);
        let servers = [bad.clone(), authority.upstream("localhost", good)].map(ModelServer::new);
        let gateway = gateway_before(servers.into(), no_health_checks()).await;
        for _ in 0..3 {
            let got = exchange(gateway.address, &post("", "hello")).await;
            assert!(got.starts_with("HTTP/1.1 200 "), "{got}");
        }
        assert_eq!(gateway.states.servers()[0].connect_failures, 1);
        let alone = gateway_to(bad).await;
        let got = exchange(alone.address, &post("", "hello")).await;
        assert!(got.starts_with("HTTP/1.1 502 ") && got.contains("upstream_unreachable"), "{got}");
        for detail in ["certificate", "localhost", "elsewhere", reason] {
            assert!(!got.contains(detail), "{got}");
        }
        assert_eq!(sessions.load(Ordering::SeqCst), 0, "{reason}: a session was opened");
    }
}

#[tokio::test]
async fn an_https_upstream_whose_roots_were_not_read_is_never_connected_to() {
    let (address, sessions) =
        counting_upstream(Authority::new("ours").server(&["localhost"], &TLS13)).await;
    let upstream = Upstream::parse(&format!("https://localhost:{}", address.port())).unwrap();
    let got = exchange(gateway_to(upstream).await.address, &post("", "hello")).await;
    assert!(got.contains("upstream_unreachable"), "{got}");
    assert_eq!(sessions.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn the_deadline_of_a_connection_covers_the_handshake() {
    let silent = upstream(|mut stream| async move { drop(read_to_end(&mut stream).await) }).await;
    let limits =
        GatewayLimits { upstream_connect: Duration::from_millis(50), ..no_health_checks() };
    let upstream = Authority::new("ours").upstream("localhost", silent);
    let gateway = gateway_before(vec![ModelServer::new(upstream)], limits).await;
    let got = exchange(gateway.address, &post("", "hello")).await;
    assert!(got.starts_with("HTTP/1.1 502 ") && got.contains("upstream_unreachable"), "{got}");
}

/// Records that hold no HTTP arrive while a connection is idle: rustls sends two session tickets
/// after the handshake, and the key update here stands for later ones.
#[tokio::test]
async fn a_kept_session_carries_posts_past_tickets_and_key_updates() {
    let authority = Authority::new("ours");
    let sessions = Arc::<AtomicUsize>::default();
    let (update, mut updated) = mpsc::unbounded_channel();
    let counted = sessions.clone();
    let acceptor = authority.server(&["localhost"], &TLS13);
    let address = tls_upstream(acceptor, move |mut stream| {
        let update = update.clone();
        counted.fetch_add(1, Ordering::SeqCst);
        async move {
            while read_until(&mut stream, "hello").await.ends_with("hello") {
                stream.write_all(ANSWER.as_bytes()).await.unwrap();
                // Long enough for the gateway to have read the answer and to wait.
                tokio::time::sleep(Duration::from_millis(5)).await;
                stream.get_mut().1.refresh_traffic_keys().unwrap();
                stream.flush().await.unwrap();
                let _ = update.send(());
            }
        }
    })
    .await;
    let gateway = gateway_to(authority.upstream("localhost", address)).await;
    let mut client = TcpStream::connect(gateway.address).await.unwrap();
    for number in 0..100 {
        let got = post_on(&mut client).await;
        assert!(got.starts_with("HTTP/1.1 200 "), "POST {number}: {got}");
        finish_in_time(updated.recv()).await.unwrap();
    }
    let sessions = sessions.load(Ordering::SeqCst);
    assert!(sessions < 50, "100 requests took {sessions} sessions");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundreds_of_posts_to_an_upstream_that_ends_each_session_after_an_answer_all_succeed() {
    for says_so in [true, false] {
        let authority = Authority::new("ours");
        let (close, mut closed) = mpsc::unbounded_channel();
        let acceptor = authority.server(&["localhost"], &TLS13);
        let address = tls_upstream(acceptor, move |mut stream| {
            let close = close.clone();
            async move {
                read_until(&mut stream, "hello").await;
                let _ = stream.write_all(ANSWER.as_bytes()).await;
                if says_so {
                    // The TCP connection stays open behind the close_notify.
                    stream.get_mut().1.send_close_notify();
                    let _ = stream.flush().await;
                    let _ = close.send(());
                    let _ = stream.get_mut().0.read_to_end(&mut Vec::new()).await;
                } else {
                    drop(stream);
                    let _ = close.send(());
                }
            }
        })
        .await;
        let gateway = gateway_to(authority.upstream("localhost", address)).await;
        let mut client = TcpStream::connect(gateway.address).await.unwrap();
        for number in 0..200 {
            let got = post_on(&mut client).await;
            assert!(got.starts_with("HTTP/1.1 200 "), "POST {number}: {got}");
            // Every other one comes when the end is sure to be in the kernel.
            if number % 2 == 0 {
                finish_in_time(closed.recv()).await.unwrap();
            }
        }
    }
}

#[tokio::test]
async fn what_an_upstream_sends_unasked_over_tls_is_nobodys_answer() {
    let authority = Authority::new("ours");
    let (extra, mut sent) = mpsc::unbounded_channel();
    let acceptor = authority.server(&["localhost"], &TLS13);
    let address = tls_upstream(acceptor, move |mut stream| {
        let extra = extra.clone();
        async move {
            read_until(&mut stream, "\r\n\r\n").await;
            stream.write_all(ANSWER.as_bytes()).await.unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
            let other = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nother";
            let _ = stream.write_all(other).await;
            let _ = stream.flush().await;
            let _ = extra.send(());
            read_until(&mut stream, "\r\n\r\n").await;
        }
    })
    .await;
    let gateway = gateway_to(authority.upstream("localhost", address)).await;
    for _ in 0..3 {
        let got = exchange(gateway.address, GET_CLOSE).await;
        assert!(got.ends_with("\r\n\r\nok"), "{got}");
        finish_in_time(sent.recv()).await.unwrap();
    }
}

#[tokio::test]
async fn a_session_that_is_cut_in_mid_stream_leaves_a_broken_stream() {
    let authority = Authority::new("ours");
    let acceptor = authority.server(&["localhost"], &TLS13);
    let address = tls_upstream(acceptor, |mut stream| async move {
        read_until(&mut stream, "\r\n\r\n").await;
        stream.write_all(CHUNKED.as_bytes()).await.unwrap();
        stream.write_all(b"9\r\ndata: 1\n\n\r\n").await.unwrap();
        stream.flush().await.unwrap();
    })
    .await;
    let gateway = gateway_to(authority.upstream("localhost", address)).await;
    let got = exchange(gateway.address, GET_CLOSE).await;
    assert!(got.contains("data: 1") && !got.ends_with(LAST_CHUNK), "{got}");
}

#[tokio::test]
async fn a_websocket_passes_to_an_https_upstream() {
    let authority = Authority::new("ours");
    let acceptor = authority.server(&["localhost"], &TLS13);
    let address = tls_upstream(acceptor, |stream| async move {
        let mut socket = tokio_tungstenite::accept_async(stream).await.unwrap();
        while let Some(Ok(message)) = socket.next().await {
            if !message.is_close() {
                socket.send(message).await.unwrap();
            }
        }
    })
    .await;
    let upstream = authority.upstream("localhost", address);
    let mut configuration = GatewayConfiguration::with_upstream(Binding::Key, upstream);
    configuration.add_route(Route::parse("WEBSOCKET /v1/realtime", DEFAULT_GROUP).unwrap());
    let gateway = gateway_with(configuration, GatewayLimits::default()).await;
    let stream = TcpStream::connect(gateway.address).await.unwrap();
    let opening = tokio_tungstenite::client_async("ws://gateway/v1/realtime", stream);
    let (mut socket, _) = finish_in_time(opening).await.unwrap();
    for message in [Message::text("hello"), Message::binary(vec![7; 100_000])] {
        socket.send(message.clone()).await.unwrap();
        assert_eq!(finish_in_time(socket.next()).await.unwrap().unwrap(), message);
    }
    socket.close(None).await.unwrap();
    assert!(finish_in_time(socket.next()).await.unwrap().unwrap().is_close());
    drop(socket);
    gateway.stop.send(()).unwrap();
    assert_eq!(finish_in_time(gateway.ended).await.unwrap(), DrainOutcome::Completely);
}

#[tokio::test]
async fn an_https_upstream_is_asked_for_its_health_and_its_model() {
    let authority = Authority::new("ours");
    let acceptor = authority.server(&["localhost"], &TLS13);
    let address = tls_upstream(acceptor, |mut stream| async move {
        loop {
            let head = read_until(&mut stream, "\r\n\r\n").await;
            let body = match head.split(' ').nth(1) {
                None => return,
                Some("/v1/models") => {
                    let manifest = "ab".repeat(32);
                    format!(r#"{{"data":[{{"confide_manifest_sha256":"{manifest}"}}]}}"#)
                }
                Some(_) => "{}".into(),
            };
            let length = body.len();
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}");
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    })
    .await;
    let upstream = authority.upstream("localhost", address);
    let manifest = fetch_model_manifest(&upstream, GENEROUS).await.unwrap();
    assert_eq!(manifest, Some([0xab; 32]));
    let server = |manifest| ModelServer {
        model_manifest_sha256: Some(manifest),
        ..ModelServer::new(upstream.clone())
    };
    let limits =
        GatewayLimits { health_check: Duration::from_millis(20), ..GatewayLimits::default() };
    let acceptor = authority.server(&["elsewhere.example"], &TLS13);
    let (other, _) = counting_upstream(acceptor).await;
    let other = ModelServer::new(authority.upstream("localhost", other));
    let servers = vec![server([0xab; 32]), other];
    let gateway = gateway_before(servers, limits).await;
    let got = exchange(gateway.address, &post("", "{}")).await;
    assert!(got.starts_with("HTTP/1.1 200 "), "{got}");
    let until = tokio::time::Instant::now() + GENEROUS;
    while gateway.states.servers()[1].is_healthy {
        assert!(tokio::time::Instant::now() < until, "no health check fails");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(gateway.states.servers()[0].is_healthy);
    let changed = gateway_before(vec![server([0xcd; 32])], no_health_checks()).await;
    let got = exchange(changed.address, &post("", "{}")).await;
    assert!(got.contains("upstream_changed"), "{got}");
}
