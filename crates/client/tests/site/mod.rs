//! Attested servers that follow a script, for the tests of the client.
#![allow(dead_code, reason = "each test file uses its part")]

use std::{
    future::Future,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use confide_channel::{Binding, EVIDENCE_PATH, LiveSession, Server, ServerOptions};
use confide_evidence::Attest;
use confide_fake_attester::{FakeAttester, FakeAttesterOptions, Mode, Tee};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// The channel's stream on the serving side.
pub(crate) type Stream = tokio_rustls::server::TlsStream<TcpStream>;

/// Nothing here takes this long unless it hangs.
pub(crate) const GENEROUS: Duration = Duration::from_secs(60);

/// The time of every clock that does not move, in Unix seconds.
pub(crate) const NOW: u64 = 1_770_000_000;

pub(crate) const KEY_VALIDITY: Duration = Duration::from_secs(600);
pub(crate) const CONFIG_DIGEST: [u8; 32] = [7; 32];

pub(crate) const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
pub(crate) const OK_AND_CLOSE: &[u8] =
    b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok";
pub(crate) const CHUNKED: &[u8] = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";

pub(crate) fn now() -> u64 {
    NOW
}

pub(crate) fn options() -> FakeAttesterOptions {
    FakeAttesterOptions {
        seed: [1; 32],
        tee: Tee::Tdx,
        debug: false,
        issued_at: NOW - 60,
        mode: Mode::Raw,
    }
}

pub(crate) fn attester() -> FakeAttester {
    FakeAttester::new(options()).unwrap()
}

pub(crate) fn server(
    binding: Binding,
    attester: Option<FakeAttester>,
    clock: fn() -> u64,
) -> Server {
    server_claiming("operator is outside the TEE", binding, attester, clock)
}

pub(crate) fn server_claiming(
    guarantee: &str,
    binding: Binding,
    attester: Option<FakeAttester>,
    clock: fn() -> u64,
) -> Server {
    let options = ServerOptions {
        binding,
        config_digest: CONFIG_DIGEST,
        guarantee: guarantee.into(),
        key_validity: KEY_VALIDITY,
        deadline: GENEROUS,
        names: vec!["localhost".into(), "127.0.0.1".into()],
        weights: None,
    };
    let attester = attester.map(|attester| Arc::new(attester) as Arc<dyn Attest>);
    Server::new(options, attester, clock).unwrap()
}

/// Runs `script` on each accepted connection; connection number n meets server number n, and the
/// last server takes all further ones.
pub(crate) async fn site<F, R>(servers: Vec<Server>, script: F) -> SocketAddr
where
    F: Fn(Stream) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let servers: Vec<Arc<Server>> = servers.into_iter().map(Arc::new).collect();
    tokio::spawn(async move {
        let mut number = 0;
        while let Ok((stream, _)) = listener.accept().await {
            let server = servers[number.min(servers.len() - 1)].clone();
            number += 1;
            let script = script.clone();
            tokio::spawn(async move {
                if let Ok(accepted) = server.accept(stream).await {
                    script(accepted.stream).await;
                }
            });
        }
    });
    address
}

/// Serves connections with what gives their clients fresh evidence; each is answered by `script` with
/// `ok`, or with the reply that `script` makes of a request for evidence. Returns the address and the
/// number of connections.
pub(crate) async fn site_with_evidence<F, R>(
    server: Server,
    script: F,
) -> (SocketAddr, Arc<AtomicUsize>)
where
    F: Fn(Arc<LiveSession>, Vec<u8>) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Option<Vec<u8>>> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let connections = Arc::new(AtomicUsize::new(0));
    let (server, counted) = (Arc::new(server), connections.clone());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (server, counted, script) = (server.clone(), counted.clone(), script.clone());
            tokio::spawn(async move {
                let Ok(accepted) = server.accept(stream).await else { return };
                counted.fetch_add(1, Ordering::SeqCst);
                let live = accepted.live.map(Arc::new);
                answer_with_evidence(accepted.stream, live, script).await;
            });
        }
    });
    (address, connections)
}

async fn answer_with_evidence<F, R>(mut stream: Stream, live: Option<Arc<LiveSession>>, script: F)
where
    F: Fn(Arc<LiveSession>, Vec<u8>) -> R,
    R: Future<Output = Option<Vec<u8>>>,
{
    while let Some(head) = read_head(&mut stream).await {
        let answer = match head.starts_with(&format!("post {EVIDENCE_PATH} ")) {
            false => OK.to_vec(),
            true => {
                assert!(head.contains("content-length: 36"), "{head}");
                let mut request = vec![0; 36];
                stream.read_exact(&mut request).await.unwrap();
                match script(live.clone().expect("a session"), request).await {
                    None => b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_vec(),
                    Some(reply) => {
                        let head =
                            format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", reply.len());
                        [head.into_bytes(), reply].concat()
                    }
                }
            }
        };
        stream.write_all(&answer).await.unwrap();
        stream.flush().await.unwrap();
    }
}

/// Answers every request with `ok` until the client leaves.
pub(crate) async fn answering(mut stream: Stream) {
    while read_head(&mut stream).await.is_some() {
        if stream.write_all(OK).await.is_err() || stream.flush().await.is_err() {
            return;
        }
    }
}

/// Reads one request head, and the body `{}` if there is one; `None` at the end of the stream.
pub(crate) async fn read_head(stream: &mut Stream) -> Option<String> {
    let mut seen = Vec::new();
    let mut byte = [0];
    while !seen.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte).await {
            Ok(1) => seen.push(byte[0]),
            _ => return None,
        }
    }
    let head = String::from_utf8(seen).unwrap().to_ascii_lowercase();
    if head.contains("content-length: 2") {
        stream.read_exact(&mut [0; 2]).await.ok()?;
    }
    Some(head)
}

pub(crate) async fn finish_in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(GENEROUS, future).await.expect("this hangs")
}
