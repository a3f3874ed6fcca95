//! The WebSocket tunnel: bytes both ways, and what is refused.

mod fakes;

use std::{net::SocketAddr, time::Duration};

use confide_channel::{
    Binding, ChannelError, ChannelPhase, TunnelError,
    tunnel::{
        AllowList, AllowedOrigins, TunnelDeadlines, TunnelStream, TunnelTraffic, dial, serve,
    },
};
use fakes::*;
use futures_util::{SinkExt, StreamExt};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, duplex},
    net::{TcpListener, TcpSocket, TcpStream},
    task::JoinHandle,
};
use tokio_tungstenite::{
    WebSocketStream, accept_async, client_async,
    tungstenite::{Message, protocol::Role},
};

const DEADLINES: TunnelDeadlines = TunnelDeadlines { open: LONG, idle: LONG };

/// Starts a proxy for one connection; returns its address and the result of `serve`.
async fn proxy(
    allow: AllowList,
    deadlines: TunnelDeadlines,
) -> (String, JoinHandle<Result<TunnelTraffic, ChannelError>>) {
    proxy_for_pages(&[], allow, deadlines).await
}

/// Starts a proxy as [`proxy`] does, which pages of these origins may use.
async fn proxy_for_pages(
    origins: &[&str],
    allow: AllowList,
    deadlines: TunnelDeadlines,
) -> (String, JoinHandle<Result<TunnelTraffic, ChannelError>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}", listener.local_addr().unwrap());
    let origins = AllowedOrigins::new(origins).unwrap();
    let served = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        serve(stream, &allow, &origins, deadlines).await
    });
    (url, served)
}

async fn target() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

fn allow_only(address: SocketAddr) -> AllowList {
    AllowList::new([address.to_string()]).unwrap()
}

#[tokio::test]
async fn bytes_and_both_ends_of_stream_pass() {
    let (listener, address) = target().await;
    let (url, served) = proxy(allow_only(address), DEADLINES).await;
    let near = dial(&url, &address.to_string(), LONG).await.unwrap();
    let (far, _) = listener.accept().await.unwrap();
    echo(near, far).await;
    let carried = served.await.unwrap().unwrap();
    let bytes = 200_000;
    assert_eq!(
        carried,
        TunnelTraffic { target: address.to_string(), bytes_up: bytes, bytes_down: bytes }
    );
}

#[tokio::test]
async fn the_target_may_end_first() {
    let (listener, address) = target().await;
    let (url, served) = proxy(allow_only(address), DEADLINES).await;
    let near = dial(&url, &address.to_string(), LONG).await.unwrap();
    let (far, _) = listener.accept().await.unwrap();
    echo(far, near).await;
    served.await.unwrap().unwrap();
}

#[tokio::test]
async fn an_attested_session_runs_through_it() {
    let (listener, address) = target().await;
    let (url, _served) = proxy(allow_only(address), DEADLINES).await;
    let carrier = dial(&url, &address.to_string(), LONG).await.unwrap();
    let (far, _) = listener.accept().await.unwrap();
    let (server, client) = (server(Binding::Session), client(Binding::Session));
    let (attested, accepted) =
        tokio::join!(client.connect("localhost", carrier), server.accept(far));
    let attested = attested.unwrap();
    assert_eq!(
        attested.timings().with_carrier_round_trips(TunnelStream::ROUND_TRIPS).round_trips,
        5
    );
    echo(attested.into_parts().0, accepted.unwrap().stream).await;
}

#[tokio::test]
async fn both_directions_run_at_once_in_two_tasks() {
    const BYTES: usize = 8 << 20;
    let (listener, address) = target().await;
    let (url, served) = proxy(allow_only(address), DEADLINES).await;
    let near = dial(&url, &address.to_string(), LONG).await.unwrap();
    let (mut far_in, mut far_out) = listener.accept().await.unwrap().0.into_split();
    let (mut near_in, mut near_out) = tokio::io::split(near);
    let echoing = tokio::spawn(async move {
        tokio::io::copy(&mut far_in, &mut far_out).await.unwrap();
        far_out.shutdown().await.unwrap();
    });
    let writing = tokio::spawn(async move {
        let part = vec![3; 100_000];
        let mut left = BYTES;
        while left > 0 {
            let len = left.min(part.len());
            near_out.write_all(&part[..len]).await.unwrap();
            left -= len;
        }
        near_out.shutdown().await.unwrap();
        near_out
    });
    let mut got = Vec::new();
    near_in.read_to_end(&mut got).await.unwrap();
    assert_eq!(got.len(), BYTES);
    writing.await.unwrap();
    echoing.await.unwrap();
    assert_eq!(served.await.unwrap().unwrap().bytes_up, BYTES as u64);
}

#[tokio::test]
async fn a_target_that_is_not_on_the_list_is_refused_before_the_upgrade() {
    let (listener, address) = target().await;
    let (url, served) = proxy(AllowList::new(["other.example:1"]).unwrap(), DEADLINES).await;
    let error = dial(&url, &address.to_string(), LONG).await.unwrap_err();
    let ChannelError::Tunnel(TunnelError::ProxyRefused { status: 403, body }) = &error else {
        panic!("{error:?}");
    };
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!(body["error"]["type"], "target_refused");
    let served = served.await.unwrap();
    let refused = matches!(
        served,
        Err(ChannelError::Tunnel(TunnelError::TargetRefused { target }))
            if target == address.to_string()
    );
    assert!(refused);
    let nobody = tokio::time::timeout(Duration::from_millis(50), listener.accept()).await;
    assert!(nobody.is_err(), "the target was dialled");
}

#[tokio::test]
async fn a_target_that_cannot_be_reached_is_a_502() {
    // Bound and not listening: nobody else can take the port meanwhile.
    let closed = TcpSocket::new_v4().unwrap();
    closed.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = closed.local_addr().unwrap();
    let (url, served) = proxy(allow_only(address), DEADLINES).await;
    let error = dial(&url, &address.to_string(), LONG).await.unwrap_err();
    let refused =
        matches!(error, ChannelError::Tunnel(TunnelError::ProxyRefused { status: 502, .. }));
    assert!(refused, "{error:?}");
    let served = served.await.unwrap();
    assert!(matches!(served, Err(ChannelError::Tunnel(TunnelError::TargetUnreachable { .. }))));
}

#[tokio::test]
async fn a_break_is_not_an_end_of_stream() {
    let (listener, address) = target().await;
    let (url, served) = proxy(allow_only(address), DEADLINES).await;
    let mut near = dial(&url, &address.to_string(), LONG).await.unwrap();
    let (mut far, _) = listener.accept().await.unwrap();
    far.write_all(b"half").await.unwrap();
    let mut half = [0; 4];
    near.read_exact(&mut half).await.unwrap();
    served.abort();
    let error = near.read_u8().await.unwrap_err();
    let kinds = [std::io::ErrorKind::UnexpectedEof, std::io::ErrorKind::ConnectionReset];
    let tunnel_broke = kinds.contains(&error.kind()) || error.get_ref().is_some();
    assert!(tunnel_broke, "{error:?}");
}

#[tokio::test]
async fn a_websocket_that_closes_without_the_mark_is_a_break() {
    let (listener, address) = target().await;
    let proxy = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut websocket = accept_async(stream).await.unwrap();
        websocket.send(Message::Binary(b"half"[..].into())).await.unwrap();
        websocket.close(None).await.unwrap();
        while websocket.next().await.is_some() {}
    });
    let mut near = dial(&format!("ws://{address}"), "h.example:1", LONG).await.unwrap();
    let mut got = Vec::new();
    // `read_to_end` would be content with an end.
    let error = near.read_to_end(&mut got).await.unwrap_err();
    assert_eq!((error.kind(), &got[..]), (std::io::ErrorKind::UnexpectedEof, &b"half"[..]));
    drop(near);
    proxy.await.unwrap();
}

#[tokio::test]
async fn a_client_that_vanishes_is_named() {
    let (listener, address) = target().await;
    let (url, served) = proxy(allow_only(address), DEADLINES).await;
    let near = dial(&url, &address.to_string(), LONG).await.unwrap();
    let _far = listener.accept().await.unwrap();
    drop(near);
    assert!(served.await.unwrap().is_err());
}

#[tokio::test]
async fn an_oversized_message_ends_the_tunnel() {
    let (listener, address) = target().await;
    let (url, served) = proxy(allow_only(address), DEADLINES).await;
    let socket = TcpStream::connect(url.trim_start_matches("ws://")).await.unwrap();
    let request = format!("{url}/tunnel?target={address}");
    let (mut websocket, _) = client_async(request, socket).await.unwrap();
    let _far = listener.accept().await.unwrap();
    let _ = websocket.send(Message::Binary(vec![0; 1 << 20].into())).await;
    let served = served.await.unwrap();
    assert!(matches!(served, Err(ChannelError::Tunnel(TunnelError::WebSocket { .. }))));
    assert!(!matches!(websocket.next().await, Some(Ok(Message::Binary(_)))));
}

/// The upgrade as Chromium 156 sends it, except for the target and the fields in `more`.
fn browser_request(address: SocketAddr, more: &str) -> String {
    format!(
        "GET /tunnel?target={address} HTTP/1.1\r\nHost: 127.0.0.1:9101\r\nConnection: Upgrade\r\n\
         Pragma: no-cache\r\nCache-Control: no-cache\r\n\
         User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) \
         Chrome/156.0.0.0 Safari/537.36\r\nUpgrade: websocket\r\n{more}\
         Sec-WebSocket-Version: 13\r\nAccept-Encoding: gzip, deflate, br, zstd\r\n\
         Accept-Language: en-US,en;q=0.9\r\nSec-WebSocket-Key: RDHETBfvJ9VA5SifBTAd4w==\r\n\
         Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n\r\n"
    )
}

#[tokio::test]
async fn a_web_page_is_refused_and_told_why_unless_its_origin_is_allowed() {
    for (allowed, fields) in [
        (&[][..], "Origin: http://127.0.0.1:9100\r\n"),
        (&[], "Origin: null\r\n"),
        (&["https://chat.example"], "Origin: http://chat.example\r\n"),
        (&["https://chat.example"], "Origin: https://chat.example:8443\r\n"),
        (&["https://chat.example"], "Origin: https://CHAT.example\r\n"),
        (&["https://chat.example"], "Origin: https://chat.example.evil\r\n"),
        (&["https://chat.example"], "Origin: https://chat.example\r\nOrigin: null\r\n"),
        (&["https://chat.example"], "Sec-Fetch-Site: cross-site\r\n"),
    ] {
        let (listener, address) = target().await;
        let (url, served) = proxy_for_pages(allowed, allow_only(address), DEADLINES).await;
        let mut socket = TcpStream::connect(url.trim_start_matches("ws://")).await.unwrap();
        socket.write_all(browser_request(address, fields).as_bytes()).await.unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 403 Forbidden\r\n"), "{fields}: {answer}");
        assert!(answer.contains("origin_refused"), "{answer}");
        assert!(served.await.unwrap().is_err());
        drop(listener);
    }
}

#[tokio::test]
async fn bytes_pass_for_a_page_of_an_allowed_origin() {
    let (listener, address) = target().await;
    let origins = &["https://chat.example", "http://127.0.0.1:9100"];
    let (url, served) = proxy_for_pages(origins, allow_only(address), DEADLINES).await;
    let mut socket = TcpStream::connect(url.trim_start_matches("ws://")).await.unwrap();
    let request = browser_request(address, "Origin: http://127.0.0.1:9100\r\n");
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(socket.read_u8().await.unwrap());
    }
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 101 "), "{answer}");
    let mut page = WebSocketStream::from_raw_socket(socket, Role::Client, None).await;
    let (mut far, _) = listener.accept().await.unwrap();
    page.send(Message::Binary(b"ping"[..].into())).await.unwrap();
    let mut got = [0; 4];
    far.read_exact(&mut got).await.unwrap();
    far.write_all(b"pong").await.unwrap();
    assert_eq!(&got, b"ping");
    assert_eq!(page.next().await.unwrap().unwrap(), Message::Binary(b"pong"[..].into()));
    page.send(Message::text("eof")).await.unwrap();
    drop(far);
    assert_eq!(served.await.unwrap().unwrap().bytes_up, 4);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_drips_its_request_ends_in_the_same_timeout() {
    let (mut near, far) = duplex(1024);
    let dripping = async {
        while near.write_all(b"G").await.is_ok() {
            tokio::time::sleep(SHORT / 10).await;
        }
    };
    let deadlines = TunnelDeadlines { open: SHORT, idle: SHORT };
    let allow = AllowList::default();
    let origins = AllowedOrigins::default();
    let serving = async { serve(far, &allow, &origins, deadlines).await };
    let (served, ()) = tokio::join!(serving, dripping);
    let error = served.unwrap_err();
    assert!(
        matches!(error, ChannelError::Timeout { phase: ChannelPhase::Request, .. }),
        "{error:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_silent_client_ends_in_a_timeout_that_names_the_request() {
    let (_silent, far) = duplex(1024);
    let deadlines = TunnelDeadlines { open: SHORT, idle: SHORT };
    let (allow, origins) = (AllowList::default(), AllowedOrigins::default());
    let error = serve(far, &allow, &origins, deadlines).await.unwrap_err();
    assert!(
        matches!(error, ChannelError::Timeout { phase: ChannelPhase::Request, .. }),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_tunnel_in_which_nothing_moves_ends() {
    let (listener, address) = target().await;
    let deadlines = TunnelDeadlines { open: LONG, idle: Duration::from_millis(50) };
    let (url, served) = proxy(allow_only(address), deadlines).await;
    let mut near = dial(&url, &address.to_string(), LONG).await.unwrap();
    let _far = listener.accept().await.unwrap();
    let error = served.await.unwrap().unwrap_err();
    assert!(matches!(error, ChannelError::Timeout { phase: ChannelPhase::Relay, .. }), "{error:?}");
    assert!(near.read_u8().await.is_err());
}

#[tokio::test]
async fn a_silent_proxy_ends_in_a_timeout_that_names_the_upgrade() {
    let (_listener, address) = target().await;
    let error = dial(&format!("ws://{address}"), "h.example:1", SHORT).await.unwrap_err();
    assert!(
        matches!(error, ChannelError::Timeout { phase: ChannelPhase::Upgrade, .. }),
        "{error:?}"
    );
}

#[tokio::test]
async fn addresses_that_cannot_be_used_are_refused() {
    for url in ["http://h:1", "wss://h:1", "ws://h", "ws://h:1/?x=1", "", "ws://u@h:1"] {
        let error = dial(url, "h:1", LONG).await.unwrap_err();
        assert!(matches!(error, ChannelError::Tunnel(TunnelError::Url { .. })), "{url}: {error:?}");
    }
    let error = dial("ws://h:1", "no port", LONG).await.unwrap_err();
    assert!(matches!(error, ChannelError::Tunnel(TunnelError::Target { .. })), "{error:?}");
}
