//! WebSockets through the loopback proxy.

mod local;
mod site;

use std::{net::SocketAddr, time::Duration};

use confide_channel::Server;
use confide_client::{AllowedOrigins, Binding, ClientLimits, DrainOutcome};
use confide_fake_attester::{FakeAttester, FakeAttesterOptions};
use futures_util::{SinkExt, StreamExt};
use local::{LocalOptions, ask, loopback, loopback_with, read_to_end, read_until};
use site::{GENEROUS, OK, attester, finish_in_time, now, options, read_head, server, site};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::mpsc,
};
use tokio_tungstenite::tungstenite::{
    Error, Message,
    client::IntoClientRequest,
    handshake::{derive_accept_key, server as handshake},
};

const HANDSHAKE: &str = "GET /v1/realtime HTTP/1.1\r\nhost: localhost\r\n\
                         connection: keep-alive, Upgrade\r\nupgrade: WebSocket\r\n\
                         sec-websocket-version: 13\r\n\
                         sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
/// The answer to that key (RFC 6455 section 1.3).
const ACCEPT: &str = "sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n";
const ACCEPTS: &str = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\n\
                       upgrade: websocket\r\n";
const GET: &str = "GET /v1/models HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";

fn trusted_servers() -> Vec<Server> {
    vec![server(Binding::Key, Some(attester()), now)]
}

/// An attested end that reports the head of each request, accepts WebSockets, returns their bytes,
/// and reports their end; other requests get `ok`.
async fn echoing() -> (SocketAddr, mpsc::UnboundedReceiver<String>) {
    let (saw, seen) = mpsc::unbounded_channel();
    let address = site(trusted_servers(), move |mut stream| {
        let saw = saw.clone();
        async move {
            while let Some(head) = read_raw_head(&mut stream).await {
                let key = head.lines().find_map(|line| line.strip_prefix("sec-websocket-key: "));
                let accept = key.map(|key| derive_accept_key(key.as_bytes()));
                let _ = saw.send(head);
                let Some(accept) = accept else {
                    stream.write_all(OK).await.unwrap();
                    stream.flush().await.unwrap();
                    continue;
                };
                let answer = format!(
                    "{ACCEPTS}access-control-allow-origin: *\r\nsec-websocket-accept: {accept}\r\n\r\n"
                );
                stream.write_all(answer.as_bytes()).await.unwrap();
                stream.flush().await.unwrap();
                let (mut from, mut to) = tokio::io::split(stream);
                let _ = tokio::io::copy(&mut from, &mut to).await;
                let _ = to.shutdown().await;
                let _ = saw.send("ended".into());
                return;
            }
        }
    })
    .await;
    (address, seen)
}

/// Reads a head with its values as they are, unlike [`read_head`].
async fn read_raw_head(stream: &mut site::Stream) -> Option<String> {
    let mut seen = Vec::new();
    while !seen.ends_with(b"\r\n\r\n") {
        seen.push(stream.read_u8().await.ok()?);
    }
    Some(String::from_utf8(seen).unwrap())
}

/// An attested end that gives each request this answer.
async fn saying(answer: String) -> SocketAddr {
    site(trusted_servers(), move |mut stream| {
        let answer = answer.clone();
        async move {
            while read_head(&mut stream).await.is_some() {
                stream.write_all(answer.as_bytes()).await.unwrap();
                stream.flush().await.unwrap();
            }
        }
    })
    .await
}

/// Opens a WebSocket with a raw handshake.
async fn open(address: SocketAddr) -> TcpStream {
    let mut client = ask(address, HANDSHAKE).await;
    let got = read_until(&mut client, "\r\n\r\n").await;
    assert!(got.starts_with("HTTP/1.1 101 ") && got.contains(ACCEPT), "{got}");
    client
}

async fn echo(client: &mut TcpStream) {
    client.write_all(b"hello").await.unwrap();
    assert_eq!(read_until(client, "hello").await, "hello");
}

#[tokio::test]
#[allow(clippy::result_large_err, reason = "tungstenite's callback has this form")]
async fn messages_pass_both_ways_until_the_closing_handshake() {
    for binding in [Binding::Key, Binding::Session] {
        let (saw, mut seen) = mpsc::unbounded_channel();
        let servers = vec![server(binding, Some(attester()), now)];
        let address = site(servers, move |stream| {
            let saw = saw.clone();
            async move {
                let note = |request: &handshake::Request, mut response: handshake::Response| {
                    saw.send((request.uri().to_string(), request.headers().clone())).unwrap();
                    let protocol = "realtime".parse().unwrap();
                    response.headers_mut().insert("sec-websocket-protocol", protocol);
                    Ok(response)
                };
                let accepted = tokio_tungstenite::accept_hdr_async(stream, note).await;
                let mut socket = accepted.unwrap();
                while let Some(Ok(message)) = socket.next().await {
                    if !message.is_close() {
                        socket.send(message).await.unwrap();
                    }
                }
            }
        })
        .await;
        let origins = AllowedOrigins::new(&["https://chat.example"]).unwrap();
        let options = LocalOptions { binding, origins, ..LocalOptions::default() };
        let local = loopback_with(options, address).await;
        let mut request = "ws://localhost/v1/realtime?model=m".into_client_request().unwrap();
        for (name, value) in [
            ("authorization", "Bearer k"),
            ("sec-websocket-protocol", "realtime, other"),
            ("origin", "https://chat.example"),
        ] {
            request.headers_mut().insert(name, value.parse().unwrap());
        }
        let key = request.headers()["sec-websocket-key"].clone();
        let stream = TcpStream::connect(local.address).await.unwrap();
        let opened = finish_in_time(tokio_tungstenite::client_async(request, stream)).await;
        let (mut socket, answer) = opened.unwrap();
        assert_eq!(answer.headers()["sec-websocket-protocol"], "realtime");
        let (target, fields) = seen.recv().await.unwrap();
        assert_eq!(target, "/v1/realtime?model=m");
        assert_eq!(fields["host"], address.to_string());
        assert_eq!(fields["authorization"], "Bearer k");
        assert_eq!(fields["sec-websocket-protocol"], "realtime, other");
        assert!(!fields.contains_key("origin"), "the origin was checked here");
        assert_ne!(fields["sec-websocket-key"], key, "the key is the proxy's own");
        for message in [Message::text("hello"), Message::binary(vec![7; 100_000])] {
            socket.send(message.clone()).await.unwrap();
            assert_eq!(finish_in_time(socket.next()).await.unwrap().unwrap(), message);
        }
        socket.close(None).await.unwrap();
        assert!(finish_in_time(socket.next()).await.unwrap().unwrap().is_close());
        let end = finish_in_time(socket.next()).await;
        assert!(matches!(end, None | Some(Err(Error::ConnectionClosed))), "{end:?}");
        drop(socket);
        local.stop.send(()).unwrap();
        assert_eq!(finish_in_time(local.ended).await.unwrap(), DrainOutcome::Completely);
    }
}

#[tokio::test]
async fn an_answer_that_does_not_accept_reaches_the_client_or_is_a_502() {
    for (answer, wanted, text) in [
        (format!("{ACCEPTS}{ACCEPT}\r\n"), " 502 ", "attested_end_bad_upgrade"),
        (format!("{ACCEPTS}\r\n"), " 502 ", "attested_end_bad_upgrade"),
        (String::from_utf8(OK.to_vec()).unwrap(), " 502 ", "attested_end_bad_upgrade"),
        ("HTTP/1.1 404 No\r\ncontent-length: 8\r\n\r\nno route".into(), " 404 ", "no route"),
        ("HTTP/1.1 404 No\r\n\r\n".into(), " 502 ", "attested_end_unframed"),
        (
            "HTTP/1.1 307 x\r\nlocation: //other.example\r\ncontent-length: 0\r\n\r\n".into(),
            " 502 ",
            "redirect_elsewhere",
        ),
    ] {
        let local = loopback(saying(answer.clone()).await, ClientLimits::default()).await;
        let mut client = ask(local.address, &HANDSHAKE.replace("keep-alive", "close")).await;
        let got = read_to_end(&mut client).await;
        assert!(got.lines().next().unwrap().contains(wanted), "{answer}: {got}");
        assert!(got.contains(text), "{answer}: {got}");
    }
}

#[tokio::test]
async fn a_handshake_that_is_not_valid_is_a_400_and_nothing_is_sent() {
    let (address, mut seen) = echoing().await;
    let local = loopback(address, ClientLimits::default()).await;
    for (part, other) in [
        ("sec-websocket-version: 13\r\n", ""),
        ("sec-websocket-version: 13", "sec-websocket-version: 8"),
        ("dGhlIHNhbXBsZSBub25jZQ==", "c2hvcnQ="),
        ("upgrade: WebSocket", "upgrade: WebSocket\r\ncontent-length: 2"),
        ("connection: keep-alive, Upgrade", "connection: keep-alive"),
        ("GET", "POST"),
        ("HTTP/1.1", "HTTP/1.0"),
    ] {
        let request = HANDSHAKE.replacen(part, other, 1);
        let got = read_until(&mut ask(local.address, &request).await, "}}").await;
        assert!(got.contains(" 400 ") && got.contains("bad_websocket_handshake"), "{part}: {got}");
        assert!(got.contains("sec-websocket-version: 13\r\n"), "{got}");
    }
    assert!(seen.try_recv().is_err());
}

#[tokio::test]
async fn a_page_opens_a_websocket_only_if_its_origin_is_allowed() {
    let (address, mut seen) = echoing().await;
    let origins = AllowedOrigins::new(&["https://chat.example"]).unwrap();
    let local = loopback_with(LocalOptions { origins, ..LocalOptions::default() }, address).await;
    for (fields, wanted) in [
        ("host: localhost\r\norigin: https://evil.example", "403"),
        ("host: localhost\r\norigin: null", "403"),
        ("host: localhost\r\nsec-fetch-site: same-site", "403"),
        ("host: evil.example\r\norigin: https://chat.example", "421"),
    ] {
        let request = HANDSHAKE.replace("host: localhost", fields);
        let got = read_until(&mut ask(local.address, &request).await, "}}").await;
        assert!(got.starts_with(&format!("HTTP/1.1 {wanted} ")), "{fields}: {got}");
    }
    assert!(seen.try_recv().is_err(), "a refused handshake was sent");
    let fields = "host: localhost\r\norigin: https://chat.example\r\nsec-fetch-site: cross-site";
    let mut client = ask(local.address, &HANDSHAKE.replace("host: localhost", fields)).await;
    let got = read_until(&mut client, "\r\n\r\n").await;
    assert!(got.starts_with("HTTP/1.1 101 "), "{got}");
    assert!(!got.contains("allow-origin: *"), "{got}");
    assert!(!seen.recv().await.unwrap().contains("origin"));
    echo(&mut client).await;
}

#[tokio::test]
async fn every_websocket_is_appraised_and_untrusted_evidence_opens_none() {
    let (saw, mut seen) = mpsc::unbounded_channel();
    let debug = FakeAttester::new(FakeAttesterOptions { debug: true, ..options() }).unwrap();
    let binding = Binding::Session;
    let servers = vec![server(binding, Some(attester()), now), server(binding, Some(debug), now)];
    let address = site(servers, move |mut stream| {
        let saw = saw.clone();
        async move {
            let head = read_head(&mut stream).await;
            let _ = saw.send(head.is_some());
            let _ = stream.write_all(OK).await;
            let _ = stream.flush().await;
            let _ = stream.read_u8().await;
        }
    })
    .await;
    let local = loopback_with(LocalOptions { binding, ..LocalOptions::default() }, address).await;
    let first = read_to_end(&mut ask(local.address, GET).await).await;
    assert!(first.ends_with("\r\n\r\nok"), "{first}");
    assert_eq!(seen.recv().await, Some(true));
    // The kept connection is not used, and the new one is not trusted.
    let got = read_until(&mut ask(local.address, HANDSHAKE).await, "}}").await;
    assert!(got.starts_with("HTTP/1.1 502 "), "{got}");
    assert!(got.contains("evidence_rejected") && got.contains("`debug`"), "{got}");
    let sent = finish_in_time(seen.recv()).await;
    assert_eq!(sent, Some(false), "the handshake was sent");
}

#[tokio::test]
async fn the_local_end_closes_when_the_attested_end_is_gone() {
    let (word, words) = mpsc::unbounded_channel::<()>();
    let words = std::sync::Arc::new(tokio::sync::Mutex::new(words));
    let address = site(trusted_servers(), move |mut stream| {
        let words = words.clone();
        async move {
            let head = read_raw_head(&mut stream).await.unwrap();
            let key = head.lines().find_map(|line| line.strip_prefix("sec-websocket-key: "));
            let accept = derive_accept_key(key.unwrap().as_bytes());
            let answer = format!("{ACCEPTS}sec-websocket-accept: {accept}\r\n\r\n");
            stream.write_all(answer.as_bytes()).await.unwrap();
            stream.flush().await.unwrap();
            words.lock().await.recv().await;
        }
    })
    .await;
    let local = loopback(address, ClientLimits::default()).await;
    let mut client = open(local.address).await;
    word.send(()).unwrap();
    assert_eq!(read_to_end(&mut client).await, "");
}

#[tokio::test]
async fn both_sides_end_when_nothing_moves_or_the_client_is_gone() {
    let (address, mut seen) = echoing().await;
    let websocket_idle = Duration::from_millis(100);
    let idle = ClientLimits { websocket_idle, ..ClientLimits::default() };
    let local = loopback(address, idle).await;
    let mut client = open(local.address).await;
    echo(&mut client).await;
    assert_eq!(read_to_end(&mut client).await, "");
    seen.recv().await.unwrap();
    assert_eq!(finish_in_time(seen.recv()).await.unwrap(), "ended");

    let local = loopback(address, ClientLimits::default()).await;
    let client = open(local.address).await;
    drop(client);
    seen.recv().await.unwrap();
    assert_eq!(finish_in_time(seen.recv()).await.unwrap(), "ended");
}

#[tokio::test]
async fn a_websocket_ends_when_its_evidence_is_too_old_or_its_claims_expire() {
    let age_max = Duration::from_millis(100);
    for (clock, limits) in [
        (now as fn() -> u64, ClientLimits { age_max, ..ClientLimits::default() }),
        (|| u64::MAX, ClientLimits::default()),
    ] {
        let (address, mut seen) = echoing().await;
        let options = LocalOptions { clock, limits, ..LocalOptions::default() };
        let local = loopback_with(options, address).await;
        let mut client = open(local.address).await;
        finish_in_time(async {
            while client.write_all(b"x").await.is_ok() && client.read_u8().await.is_ok() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
        seen.recv().await.unwrap();
        assert_eq!(finish_in_time(seen.recv()).await.unwrap(), "ended");
    }
}

#[tokio::test]
async fn a_websocket_counts_as_a_running_request_until_its_end() {
    let (address, mut seen) = echoing().await;
    let limits = ClientLimits { connections: 1, requests_waiting: 0, ..ClientLimits::default() };
    let local = loopback(address, limits).await;
    let mut client = open(local.address).await;
    echo(&mut client).await;
    for request in [GET, &HANDSHAKE.replace("keep-alive", "close")] {
        let got = read_to_end(&mut ask(local.address, request).await).await;
        assert!(got.starts_with("HTTP/1.1 503 ") && got.contains("connect_busy"), "{got}");
    }
    seen.recv().await.unwrap();
    assert!(seen.try_recv().is_err(), "a refused request was sent");
    drop(client);
    assert_eq!(finish_in_time(seen.recv()).await.unwrap(), "ended");
    finish_in_time(async {
        while !read_to_end(&mut ask(local.address, GET).await).await.ends_with("\r\n\r\nok") {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_websocket_may_end_during_the_drain_and_is_cut_after_it() {
    for (drain, wanted) in
        [(GENEROUS, DrainOutcome::Completely), (Duration::from_millis(100), DrainOutcome::Cut(1))]
    {
        let (address, mut seen) = echoing().await;
        let local = loopback(address, ClientLimits { drain, ..ClientLimits::default() }).await;
        let mut client = open(local.address).await;
        local.stop.send(()).unwrap();
        if wanted == DrainOutcome::Completely {
            echo(&mut client).await;
            client.shutdown().await.unwrap();
        }
        assert_eq!(read_to_end(&mut client).await, "");
        assert_eq!(finish_in_time(local.ended).await.unwrap(), wanted);
        seen.recv().await.unwrap();
        assert_eq!(finish_in_time(seen.recv()).await.unwrap(), "ended");
    }
}
