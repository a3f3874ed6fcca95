//! The loopback proxy: raw bytes in, raw bytes out, attested servers behind it.

mod site;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use confide_client::{
    Binding, Connector, Drained, Endpoint, HttpClient, Limits, PolicyAppraiser, serve,
};
use confide_fake_attester::{FakeAttester, Options};
use confide_verifier::Policy;
use site::{CHUNKED, OK_AND_CLOSE, attester, now, options, read_head, server, site, within};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{mpsc, oneshot},
    task::JoinHandle,
};

const GET: &str = "GET /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n";
const GET_CLOSE: &str = "GET /v1/models?a=b HTTP/1.1
host: localhost
\
                         connection: close, x-hop
x-hop: 1

";
const LAST_CHUNK: &str = "0\r\n\r\n";

struct Running {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    ended: JoinHandle<Drained>,
}

async fn loopback(attested: SocketAddr, limits: Limits) -> Running {
    let policy = Policy::from_toml(&attester().policy_toml()).unwrap();
    let appraiser = Arc::new(PolicyAppraiser::new(policy, None, now).unwrap());
    let endpoint = Endpoint::parse(&format!("https://{attested}")).unwrap();
    let connector = Connector::attested(endpoint, None, Binding::Key, appraiser, limits).unwrap();
    let client = Arc::new(HttpClient::new(connector, limits, now));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let ended = tokio::spawn(serve(listener, client, limits, async {
        let _ = stopped.await;
    }));
    Running { address, stop, ended }
}

async fn ask(address: SocketAddr, request: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

async fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut seen = Vec::new();
    let mut byte = [0];
    while !seen.ends_with(end.as_bytes()) {
        match within(stream.read(&mut byte)).await {
            Ok(1) => seen.push(byte[0]),
            _ => break,
        }
    }
    String::from_utf8(seen).unwrap()
}

async fn read_to_end(stream: &mut TcpStream) -> String {
    let mut seen = Vec::new();
    let _ = within(stream.read_to_end(&mut seen)).await;
    String::from_utf8(seen).unwrap()
}

#[tokio::test]
async fn a_request_is_forwarded_with_the_name_of_the_attested_end() {
    let (saw, mut seen) = mpsc::unbounded_channel();
    let address = site(vec![server(Binding::Key, Some(attester()), now)], move |mut stream| {
        let saw = saw.clone();
        async move {
            saw.send(read_head(&mut stream).await.unwrap()).unwrap();
            stream.write_all(site::OK).await.unwrap();
            stream.flush().await.unwrap();
        }
    })
    .await;
    let local = loopback(address, Limits::default()).await;
    let got = read_to_end(&mut ask(local.address, GET_CLOSE).await).await;
    assert!(got.starts_with("HTTP/1.1 200 OK\r\n") && got.ends_with("\r\n\r\nok"), "{got}");
    let forwarded = seen.recv().await.unwrap();
    assert!(forwarded.starts_with("get /v1/models?a=b http/1.1\r\n"), "{forwarded}");
    assert!(forwarded.contains(&format!("host: {address}\r\n")), "{forwarded}");
    assert!(!forwarded.contains("x-hop"), "{forwarded}");
    // Nothing is added: request line, host, the two line ends.
    assert_eq!(forwarded.lines().count(), 3, "{forwarded}");
}

/// A server that sends a piece, waits for a word, and goes on as the word says.
async fn streaming() -> (SocketAddr, mpsc::UnboundedSender<bool>) {
    let (word, words) = mpsc::unbounded_channel::<bool>();
    let words = Arc::new(tokio::sync::Mutex::new(words));
    let servers = vec![server(Binding::Key, Some(attester()), now)];
    let address = site(servers, move |mut stream| {
        let words = words.clone();
        async move {
            read_head(&mut stream).await;
            stream.write_all(CHUNKED).await.unwrap();
            for piece in ["9\r\ndata: 1\n\n\r\n", "9\r\ndata: 2\n\n\r\n", LAST_CHUNK] {
                stream.write_all(piece.as_bytes()).await.unwrap();
                stream.flush().await.unwrap();
                if words.lock().await.recv().await != Some(true) {
                    return;
                }
            }
        }
    })
    .await;
    (address, word)
}

#[tokio::test]
async fn pieces_pass_as_they_come() {
    let (address, word) = streaming().await;
    let local = loopback(address, Limits::default()).await;
    let mut client = ask(local.address, GET_CLOSE).await;
    let first = read_until(&mut client, "data: 1\n\n\r\n").await;
    assert!(!first.contains("data: 2"), "{first}");
    word.send(true).unwrap();
    assert!(read_until(&mut client, "data: 2\n\n\r\n").await.ends_with("data: 2\n\n\r\n"));
    word.send(true).unwrap();
    assert_eq!(read_to_end(&mut client).await, LAST_CHUNK);
}

#[tokio::test]
async fn a_stream_that_breaks_behind_the_proxy_is_broken_before_it() {
    let (address, word) = streaming().await;
    let local = loopback(address, Limits::default()).await;
    let mut client = ask(local.address, GET).await;
    read_until(&mut client, "data: 1\n\n\r\n").await;
    word.send(false).unwrap();
    let rest = read_to_end(&mut client).await;
    assert!(!rest.ends_with(LAST_CHUNK), "the broken stream looks complete: {rest}");
}

#[tokio::test]
async fn a_client_that_could_not_see_a_break_gets_no_stream() {
    let (address, _word) = streaming().await;
    let local = loopback(address, Limits::default()).await;
    let request = "GET / HTTP/1.0\r\nhost: localhost\r\n\r\n";
    let got = read_to_end(&mut ask(local.address, request).await).await;
    assert!(got.contains(" 505 ") && got.contains("http_1_1_needed"), "{got}");
}

#[tokio::test]
async fn evidence_that_is_refused_later_is_a_502_that_names_the_check() {
    let debug = FakeAttester::new(Options { debug: true, ..options() }).unwrap();
    let servers =
        vec![server(Binding::Key, Some(attester()), now), server(Binding::Key, Some(debug), now)];
    let address = site(servers, |mut stream| async move {
        read_head(&mut stream).await;
        stream.write_all(OK_AND_CLOSE).await.unwrap();
        stream.shutdown().await.unwrap();
    })
    .await;
    let local = loopback(address, Limits::default()).await;
    let first = read_to_end(&mut ask(local.address, GET_CLOSE).await).await;
    assert!(first.ends_with("\r\n\r\nok"), "{first}");
    let second = read_to_end(&mut ask(local.address, GET_CLOSE).await).await;
    let (head, body) = second.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 502 "), "{head}");
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!(body["error"]["code"], "evidence_rejected");
    assert!(body["error"]["message"].as_str().unwrap().contains("`debug`"), "{body}");
}

#[tokio::test]
async fn a_request_for_another_host_is_refused() {
    let address = site(vec![server(Binding::Key, Some(attester()), now)], site::answering).await;
    let local = loopback(address, Limits::default()).await;
    let request = "GET / HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n";
    let got = read_to_end(&mut ask(local.address, request).await).await;
    assert!(got.starts_with("HTTP/1.1 421 "), "{got}");
}

#[tokio::test]
async fn a_running_answer_is_finished_before_the_end_or_cut_at_the_deadline() {
    for finish in [true, false] {
        let (address, word) = streaming().await;
        let limits = match finish {
            true => Limits::default(),
            false => Limits { drain: Duration::from_millis(50), ..Limits::default() },
        };
        let local = loopback(address, limits).await;
        let mut client = ask(local.address, GET).await;
        read_until(&mut client, "data: 1\n\n\r\n").await;
        local.stop.send(()).unwrap();
        if finish {
            word.send(true).unwrap();
            word.send(true).unwrap();
            assert!(read_to_end(&mut client).await.ends_with(LAST_CHUNK));
            assert_eq!(within(local.ended).await.unwrap(), Drained::Completely);
        } else {
            assert_eq!(within(local.ended).await.unwrap(), Drained::Cut(1));
            assert!(!read_to_end(&mut client).await.ends_with(LAST_CHUNK));
        }
    }
}
