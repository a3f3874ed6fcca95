//! Clients that ask for what they may not have, too much of it, or go away.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use confide_client::{empty_body, whole_body};
use confide_notary::{FETCH_PATH, FetchRequest, NotaryLimits, Refusal, WELL_KNOWN_PATH};
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpSocket},
    sync::mpsc,
    time::timeout,
};

use crate::site::{Ca, Client, GENEROUS, notary, request_of, says, send_and_read, server, small};

async fn status_of(client: &Client, bytes: Vec<u8>) -> (u16, String) {
    let (status, answer) =
        send_and_read(&client.http, Request::post(FETCH_PATH), whole_body(bytes)).await;
    let refusal: Refusal = serde_json::from_slice(&answer).unwrap();
    (status.as_u16(), refusal.code)
}

fn refusal(status: u16, code: &str) -> (u16, String) {
    (status, code.into())
}

#[tokio::test]
async fn nothing_is_dialled_for_a_request_that_is_refused() {
    let ca = Ca::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let site = notary(&ca, port, small()).await;
    let client = site.client().await;
    let url = format!("https://localhost:{port}/");
    let good = client.get(&url);
    let other_port = client.get("https://localhost:1/");
    assert_eq!(
        status_of(&client, other_port.encode().unwrap()).await,
        refusal(403, "host_refused")
    );
    let other_host = client.get(&format!("https://elsewhere.example:{port}/"));
    assert_eq!(
        status_of(&client, other_host.encode().unwrap()).await,
        refusal(403, "host_refused")
    );
    let other_key = good.clone().with_signing_key([0; 32]);
    assert_eq!(status_of(&client, other_key.encode().unwrap()).await, refusal(409, "key_renewed"));
    let long = client.post(&url, &[b' '; 1025]);
    assert_eq!(status_of(&client, long.encode().unwrap()).await, refusal(413, "request_too_large"));
    let longer = vec![b' '; 100_000];
    assert_eq!(status_of(&client, longer).await, refusal(413, "request_too_large"));
    assert_eq!(status_of(&client, Vec::new()).await, refusal(400, "request_malformed"));
    assert_eq!(status_of(&client, vec![0; 64]).await, refusal(400, "request_malformed"));
    // As long as the value that it takes the place of.
    let mut smuggled = good.encode().unwrap();
    let at = smuggled.windows(3).position(|value| value == b"*/*").unwrap();
    smuggled[at..at + 3].copy_from_slice(b"\\nx");
    assert_eq!(status_of(&client, smuggled).await, refusal(400, "request_malformed"));
    let dialled = timeout(Duration::from_millis(50), listener.accept());
    assert!(dialled.await.is_err(), "a refused request was dialled");
}

#[tokio::test]
async fn other_routes_and_methods_are_refused_and_the_configuration_is_shown() {
    let ca = Ca::new();
    let site = notary(&ca, 9, small()).await;
    let client = site.client().await;
    for (request, status) in [
        (Request::get("/"), 404),
        (Request::get(FETCH_PATH), 405),
        (Request::post(WELL_KNOWN_PATH), 405),
        (Request::delete("/v1/key"), 405),
    ] {
        assert_eq!(send_and_read(&client.http, request, empty_body()).await.0.as_u16(), status);
    }
    let (status, bytes) =
        send_and_read(&client.http, Request::get(WELL_KNOWN_PATH), empty_body()).await;
    assert_eq!(status, StatusCode::OK);
    let shown: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(shown["simulated"], true);
    assert_eq!(shown["configuration"]["hosts"][0], "127.0.0.1:9");
    let claims = confide_evidence::claims::Claims::decode(&client.key.evidence.claims).unwrap();
    assert_eq!(shown["config_digest"], hex::encode(claims.config_digest));
}

#[tokio::test]
async fn a_client_that_goes_away_ends_the_exchange_with_the_server() {
    let ca = Ca::new();
    let (ended, mut end) = mpsc::unbounded_channel();
    let port = server(ca.acceptor(&["localhost"], &[]), move |mut stream| {
        let ended = ended.clone();
        async move {
            request_of(&mut stream).await;
            let head = b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\nbegin";
            stream.write_all(head).await.unwrap();
            let _ = stream.read(&mut [0]).await;
            ended.send(()).unwrap();
        }
    })
    .await;
    let site = notary(&ca, port, NotaryLimits::default()).await;
    let client = site.client().await;
    let request = client.get(&format!("https://localhost:{port}/"));
    let post = Request::post(FETCH_PATH).body(whole_body(request.encode().unwrap())).unwrap();
    let mut body = client.http.request(post).await.unwrap().response.into_body();
    body.frame().await.unwrap().unwrap();
    drop(body);
    timeout(GENEROUS, end.recv()).await.expect("the server was held").unwrap();
}

#[tokio::test]
async fn exchanges_beyond_the_limit_wait_and_are_refused() {
    let ca = Ca::new();
    let (requested, mut first) = mpsc::unbounded_channel();
    let port = server(ca.acceptor(&["localhost"], &[]), move |mut stream| {
        let requested = requested.clone();
        async move {
            request_of(&mut stream).await;
            requested.send(()).unwrap();
            std::future::pending::<()>().await;
        }
    })
    .await;
    let limits = NotaryLimits { exchanges: 1, queue: Duration::from_millis(50), ..small() };
    let site = notary(&ca, port, limits).await;
    let client = Arc::new(site.client().await);
    let request = client.get(&format!("https://localhost:{port}/"));
    let holding = {
        let (client, request) = (client.clone(), request.clone());
        tokio::spawn(async move { client.fetch(&request).await.map(drop) })
    };
    timeout(GENEROUS, first.recv()).await.unwrap().unwrap();
    assert_eq!(client.fetch_refusal(&request).await, "busy");
    holding.abort();
    // The place is free again as soon as the notary sees that the client has gone.
    let free = async {
        while client.fetch(&request.clone()).await.is_err_and(
            |error| matches!(error, crate::site::Failure::Refused(code) if code == "busy"),
        ) {}
    };
    tokio::select! {
        () = free => {}
        arrived = first.recv() => arrived.unwrap(),
        () = tokio::time::sleep(GENEROUS) => panic!("the place was not given back"),
    }
}

/// Passes bytes on to `address`, and nothing that comes back beyond the first 64 KiB: a client
/// that does not read. Its window is small, so that little of an answer is on its way.
async fn deaf_way_to(address: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let here = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (near, _) = listener.accept().await.unwrap();
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(16 * 1024).unwrap();
        let far = socket.connect(address).await.unwrap();
        let ((mut from_near, mut to_near), (from_far, mut to_far)) =
            (near.into_split(), far.into_split());
        let back = tokio::spawn(async move {
            let mut begin = from_far.take(64 * 1024);
            tokio::io::copy(&mut begin, &mut to_near).await.unwrap();
            std::future::pending::<()>().await;
        });
        let _ = tokio::io::copy(&mut from_near, &mut to_far).await;
        back.abort();
    });
    here
}

#[tokio::test]
async fn a_client_that_does_not_read_gives_its_place_back_when_the_exchange_is_over() {
    let ca = Ca::new();
    let port = server(ca.acceptor(&["localhost"], &["http/1.1"]), |mut stream| async move {
        let request = request_of(&mut stream).await;
        let length = if request.starts_with(b"GET /long") { 8 << 20 } else { 2 };
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n");
        let _ = stream.write_all(head.as_bytes()).await;
        let _ = stream.write_all(&vec![b'x'; length]).await;
    })
    .await;
    let limits = NotaryLimits {
        exchanges: 1,
        exchange: Duration::from_secs(2),
        queue: Duration::from_secs(20),
        response_bytes: 8 << 20,
        ..NotaryLimits::default()
    };
    let mut site = notary(&ca, port, limits).await;
    let reads = site.client().await;
    site.address = deaf_way_to(site.address).await;
    let deaf = site.client().await;
    let long = deaf.get(&format!("https://localhost:{port}/long"));
    let post = Request::post(FETCH_PATH).body(whole_body(long.encode().unwrap())).unwrap();
    let answer = timeout(GENEROUS, deaf.http.request(post)).await.unwrap().unwrap();
    let notarised = reads.fetch(&reads.get(&format!("https://localhost:{port}/"))).await.unwrap();
    assert!(notarised.received.ends_with(b"\r\n\r\nxx"));
    drop(answer);
}

#[tokio::test]
async fn a_head_has_no_body_whatever_its_length_says() {
    let ca = Ca::new();
    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\ncontent-encoding: gzip\r\n\r\n";
    let answer = Arc::new(answer.to_vec());
    let acceptor = ca.acceptor(&["localhost"], &[]);
    let port = server(acceptor, move |stream| says(stream, answer.clone())).await;
    let site = notary(&ca, port, small()).await;
    let client = site.client().await;
    let url = format!("https://localhost:{port}/");
    let key = client.key.spki_hash();
    let head = FetchRequest::new("HEAD", &url, Vec::new(), Vec::new(), key).unwrap();
    let notarised = client.fetch(&head).await.unwrap();
    assert!(notarised.received.ends_with(b"content-encoding: gzip\r\n\r\n"));
}
