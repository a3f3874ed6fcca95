//! WebSockets, from clients of HTTP/1.1 and of HTTP/2.

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use http::{Request, Response, StatusCode};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Error, Message,
        client::IntoClientRequest,
        handshake::{derive_accept_key, server},
    },
};

use super::{
    model_servers::{no_health_checks, server_at, wait_until},
    queueing::waiting,
    *,
};
use crate::ModelServer;

const ROUTE: &str = "WEBSOCKET /v1/realtime";
const HANDSHAKE: &str = "GET /v1/realtime HTTP/1.1\r\nhost: h\r\nconnection: keep-alive, Upgrade\r\n\
                         upgrade: WebSocket\r\nsec-websocket-version: 13\r\n\
                         sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
/// The answer to that key (RFC 6455 section 1.3).
const ACCEPT: &str = "sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n";

async fn realtime_gateway(
    version: HttpVersion,
    admission: AdmissionLimits,
    upstream: SocketAddr,
    limits: GatewayLimits,
) -> RunningGateway {
    realtime_gateway_before(version, admission, vec![server_at(upstream)], limits).await
}

async fn realtime_gateway_before(
    version: HttpVersion,
    admission: AdmissionLimits,
    servers: Vec<ModelServer>,
    limits: GatewayLimits,
) -> RunningGateway {
    let routes = Route::inference_routes(DEFAULT_GROUP);
    let mut configuration = GatewayConfiguration {
        binding: Binding::Key,
        servers,
        routes,
        tunnel_allow: Vec::new(),
        answer_shape: None,
    };
    configuration.add_route(Route::parse(ROUTE, DEFAULT_GROUP).unwrap());
    configuration.check().unwrap();
    gateway_speaking(version, admission, configuration, limits).await
}

async fn http1_gateway(upstream: SocketAddr, limits: GatewayLimits) -> RunningGateway {
    realtime_gateway(HttpVersion::Http1, AdmissionLimits::default(), upstream, limits).await
}

/// An upstream that accepts a WebSocket, reports the request's head, echoes bytes, and reports the
/// end.
pub(super) async fn echoing() -> (SocketAddr, mpsc::UnboundedReceiver<String>) {
    let (saw, seen) = mpsc::unbounded_channel();
    let address = upstream(move |mut stream| {
        let saw = saw.clone();
        async move {
            let head = read_until(&mut stream, "\r\n\r\n").await;
            let key = head.lines().find_map(|line| line.strip_prefix("sec-websocket-key: "));
            let accept = derive_accept_key(key.unwrap_or_default().as_bytes());
            let _ = saw.send(head);
            let answer = format!(
                "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
                 sec-websocket-protocol: realtime\r\nsec-websocket-accept: {accept}\r\n\r\n"
            );
            stream.write_all(answer.as_bytes()).await.unwrap();
            let (mut from, mut to) = stream.split();
            let outcome = tokio::io::copy(&mut from, &mut to).await;
            let _ = saw.send(format!("ended: {}", outcome.is_ok()));
        }
    })
    .await;
    (address, seen)
}

#[tokio::test]
#[allow(clippy::result_large_err, reason = "tungstenite's callback has this form")]
async fn messages_pass_both_ways_until_the_closing_handshake() {
    let (saw, mut seen) = mpsc::unbounded_channel();
    let upstream = upstream(move |stream| {
        let saw = saw.clone();
        async move {
            let note = |request: &server::Request, mut response: server::Response| {
                let fields = ["origin", "host", "authorization", "sec-websocket-protocol"];
                let fields = fields.map(|name| request.headers().get(name).cloned());
                saw.send((request.uri().to_string(), fields)).unwrap();
                let protocol = "realtime".parse().unwrap();
                response.headers_mut().insert("sec-websocket-protocol", protocol);
                Ok(response)
            };
            let accepted = tokio_tungstenite::accept_hdr_async(stream, note).await;
            let mut socket: WebSocketStream<TcpStream> = accepted.unwrap();
            while let Some(Ok(message)) = socket.next().await {
                if !message.is_close() {
                    socket.send(message).await.unwrap();
                }
            }
        }
    })
    .await;
    let gateway = http1_gateway(upstream, GatewayLimits::default()).await;
    let mut request = "ws://gateway/v1/realtime?model=m".into_client_request().unwrap();
    for (name, value) in [
        ("origin", "https://chat.example"),
        ("authorization", "Bearer k"),
        ("sec-websocket-protocol", "realtime, other"),
    ] {
        request.headers_mut().insert(name, value.parse().unwrap());
    }
    let stream = TcpStream::connect(gateway.address).await.unwrap();
    let opened = finish_in_time(tokio_tungstenite::client_async(request, stream)).await;
    let (mut socket, answer) = opened.unwrap();
    assert_eq!(answer.headers()["sec-websocket-protocol"], "realtime");
    let (target, fields) = seen.recv().await.unwrap();
    assert_eq!(target, "/v1/realtime?model=m");
    let host = upstream.to_string();
    let wanted = ["https://chat.example", &host, "Bearer k", "realtime, other"];
    assert_eq!(fields.map(|value| value.unwrap()), wanted);
    for message in [Message::text("hello"), Message::binary(vec![7; 100_000])] {
        socket.send(message.clone()).await.unwrap();
        assert_eq!(finish_in_time(socket.next()).await.unwrap().unwrap(), message);
    }
    socket.close(None).await.unwrap();
    assert!(finish_in_time(socket.next()).await.unwrap().unwrap().is_close());
    let end = finish_in_time(socket.next()).await;
    assert!(matches!(end, None | Some(Err(Error::ConnectionClosed))), "{end:?}");
    drop(socket);
    gateway.stop.send(()).unwrap();
    assert_eq!(finish_in_time(gateway.ended).await.unwrap(), DrainOutcome::Completely);
}

#[tokio::test]
async fn only_routes_that_list_websockets_carry_them() {
    let (address, mut seen) = echoing().await;
    let gateway = http1_gateway(address, GatewayLimits::default()).await;
    let handshake = |path: &str| {
        let close = "upgrade, close\r\n";
        HANDSHAKE.replace("/v1/realtime", path).replace("keep-alive, Upgrade\r\n", close)
    };
    let plain = |method: &str| {
        format!("{method} /v1/realtime HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n")
    };
    for (request, wanted) in [
        (handshake("/v1/other"), " 404 "),
        (handshake("/v1/models"), " 405 "),
        (plain("GET"), " 405 "),
        (plain("WEBSOCKET"), " 405 "),
        (plain("GET").replace("close\r\n", "close\r\nupgrade: h2c\r\n"), " 405 "),
    ] {
        let got = exchange(gateway.address, &request).await;
        assert!(got.lines().next().unwrap().contains(wanted), "{request}: {got}");
        assert!(!got.contains("WEBSOCKET"), "{got}");
    }
    assert!(seen.try_recv().is_err(), "a refused request reached the upstream");
    let mut client = ask(gateway.address, &handshake("/v1/realtime")).await;
    let got = read_until(&mut client, "\r\n\r\n").await;
    assert!(got.starts_with("HTTP/1.1 101 ") && got.contains(ACCEPT), "{got}");
    let head = seen.recv().await.unwrap();
    assert!(!head.contains("dGhlIHNhbXBsZSBub25jZQ=="), "the key is the gateway's own: {head}");
    // The fields of the client's hop end here.
    let announcing = handshake("/v1/realtime").replace("upgrade, close", "upgrade, te, close");
    let announcing = announcing.replacen("upgrade: ", "te: trailers\r\nupgrade: ", 1);
    let mut client = ask(gateway.address, &announcing).await;
    assert!(read_until(&mut client, "\r\n\r\n").await.starts_with("HTTP/1.1 101 "));
    let head = seen.recv().await.unwrap();
    assert!(head.contains("connection: upgrade\r\n") && !head.contains("\r\nte:"), "{head}");
}

#[tokio::test]
async fn a_handshake_that_is_not_valid_is_a_400() {
    let (address, mut seen) = echoing().await;
    let gateway = http1_gateway(address, GatewayLimits::default()).await;
    for (part, other) in [
        ("sec-websocket-version: 13\r\n", ""),
        ("sec-websocket-version: 13", "sec-websocket-version: 8"),
        ("dGhlIHNhbXBsZSBub25jZQ==", "c2hvcnQ="),
        ("host: h", "host: h\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ=="),
        ("connection: keep-alive, Upgrade", "connection: keep-alive"),
        ("GET", "POST"),
        ("HTTP/1.1", "HTTP/1.0"),
    ] {
        let request = HANDSHAKE.replacen(part, other, 1);
        let mut client = ask(gateway.address, &request).await;
        let got = read_until(&mut client, "}}").await;
        assert!(got.contains(" 400 ") && got.contains("bad_websocket_handshake"), "{part}: {got}");
        assert!(got.contains("sec-websocket-version: 13\r\n"), "{got}");
    }
    assert!(seen.try_recv().is_err());
}

#[tokio::test]
async fn an_upstream_that_does_not_accept_is_answered_for() {
    let accepts = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\n\
                   upgrade: websocket\r\n";
    let other = format!("{accepts}{ACCEPT}\r\n");
    let none = format!("{accepts}\r\n");
    for (answer, wanted, text) in [
        (other.as_str(), " 502 ", "upstream_bad_upgrade"),
        (&none, " 502 ", "upstream_bad_upgrade"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", " 502 ", "upstream_bad_upgrade"),
        ("HTTP/1.1 401 No\r\ncontent-length: 2\r\n\r\n{}", " 401 ", "{}"),
    ] {
        let gateway = http1_gateway(
            upstream_saying(answer.to_owned().leak()).await,
            GatewayLimits::default(),
        )
        .await;
        let mut client = ask(gateway.address, HANDSHAKE).await;
        let got = read_until(&mut client, "}").await;
        assert!(got.lines().next().unwrap().contains(wanted), "{answer}: {got}");
        assert!(got.contains(text), "{answer}: {got}");
    }
}

#[tokio::test]
async fn both_sides_end_when_nothing_moves_or_one_is_gone() {
    let upgraded_idle = Duration::from_millis(100);
    let idle = GatewayLimits { upgraded_idle, ..GatewayLimits::default() };
    let (address, mut seen) = echoing().await;
    let gateway = http1_gateway(address, idle).await;
    let mut client = ask(gateway.address, HANDSHAKE).await;
    read_until(&mut client, "\r\n\r\n").await;
    client.write_all(b"hello").await.unwrap();
    assert_eq!(read_until(&mut client, "hello").await, "hello");
    assert_eq!(read_to_end(&mut client).await, "");
    seen.recv().await.unwrap();
    assert!(finish_in_time(seen.recv()).await.unwrap().starts_with("ended"));

    let gateway = http1_gateway(address, GatewayLimits::default()).await;
    let mut client = ask(gateway.address, HANDSHAKE).await;
    read_until(&mut client, "\r\n\r\n").await;
    socket2::SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
    drop(client);
    seen.recv().await.unwrap();
    assert!(finish_in_time(seen.recv()).await.unwrap().starts_with("ended"));
}

#[tokio::test]
async fn a_websocket_on_which_bytes_move_ends_after_its_lifetime() {
    let limits =
        GatewayLimits { websocket: Duration::from_millis(100), ..GatewayLimits::default() };
    let (address, mut seen) = echoing().await;
    let gateway = http1_gateway(address, limits).await;
    let mut client = ask(gateway.address, HANDSHAKE).await;
    assert!(read_until(&mut client, "\r\n\r\n").await.starts_with("HTTP/1.1 101 "));
    finish_in_time(async {
        while client.write_all(b"x").await.is_ok() && client.read_u8().await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    seen.recv().await.unwrap();
    assert!(finish_in_time(seen.recv()).await.unwrap().starts_with("ended"));
}

#[tokio::test]
async fn a_websocket_goes_to_the_next_server_if_one_cannot_be_connected_to() {
    let (_closed, dead) = closed_address();
    let (live, mut seen) = echoing().await;
    let gateway = realtime_gateway_before(
        HttpVersion::Http1,
        AdmissionLimits::default(),
        vec![server_at(dead), server_at(live)],
        no_health_checks(),
    )
    .await;
    for _ in 0..3 {
        let mut client = ask(gateway.address, HANDSHAKE).await;
        assert!(read_until(&mut client, "\r\n\r\n").await.starts_with("HTTP/1.1 101 "));
        client.write_all(b"hello").await.unwrap();
        assert_eq!(read_until(&mut client, "hello").await, "hello");
        assert!(seen.recv().await.unwrap().contains(&format!("host: {live}\r\n")));
        drop(client);
        assert!(finish_in_time(seen.recv()).await.unwrap().starts_with("ended"));
    }
    let failures: Vec<u64> =
        gateway.states.servers().iter().map(|state| state.connect_failures).collect();
    assert_eq!(failures, [1, 0]);
}

#[tokio::test]
async fn a_websocket_waits_for_a_busy_server_as_a_request_does() {
    let (address, mut seen) = echoing().await;
    let gateway = realtime_gateway_before(
        HttpVersion::Http1,
        AdmissionLimits::default(),
        vec![ModelServer { requests_max: 1, ..server_at(address) }],
        GatewayLimits { queued_requests: 1, queue_wait: GENEROUS, ..no_health_checks() },
    )
    .await;
    let mut first = ask(gateway.address, HANDSHAKE).await;
    assert!(read_until(&mut first, "\r\n\r\n").await.starts_with("HTTP/1.1 101 "));
    let mut second = ask(gateway.address, HANDSHAKE).await;
    wait_until(|| waiting(&gateway) == 1).await;
    let mut third = ask(gateway.address, HANDSHAKE).await;
    let refused = read_until(&mut third, "}}").await;
    assert!(refused.starts_with("HTTP/1.1 503 ") && refused.contains("queue_full"), "{refused}");
    assert!(seen.recv().await.unwrap().starts_with("GET "));
    assert!(seen.try_recv().is_err(), "the busy server got another WebSocket");
    drop(first);
    assert!(read_until(&mut second, "\r\n\r\n").await.starts_with("HTTP/1.1 101 "));
    assert_eq!((waiting(&gateway), gateway.states.servers()[0].running), (0, 1));
}

#[tokio::test]
async fn a_websocket_may_end_during_the_drain_and_is_cut_after_it() {
    for (drain, wanted) in
        [(GENEROUS, DrainOutcome::Completely), (Duration::from_millis(100), DrainOutcome::Cut(1))]
    {
        let (address, mut seen) = echoing().await;
        let limits = GatewayLimits { drain, ..GatewayLimits::default() };
        let gateway = http1_gateway(address, limits).await;
        let mut client = ask(gateway.address, HANDSHAKE).await;
        read_until(&mut client, "\r\n\r\n").await;
        gateway.stop.send(()).unwrap();
        if wanted == DrainOutcome::Completely {
            client.write_all(b"hello").await.unwrap();
            assert_eq!(read_until(&mut client, "hello").await, "hello");
            client.shutdown().await.unwrap();
        }
        assert_eq!(read_to_end(&mut client).await, "");
        assert_eq!(finish_in_time(gateway.ended).await.unwrap(), wanted);
        seen.recv().await.unwrap();
        assert!(finish_in_time(seen.recv()).await.unwrap().starts_with("ended"));
    }
}

/// A client of HTTP/2 that has seen that extended CONNECT is allowed.
async fn connect_http2(gateway: SocketAddr) -> h2::client::SendRequest<Bytes> {
    let stream = TcpStream::connect(gateway).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    finish_in_time(async {
        let mut client = client.ready().await.unwrap();
        while !client.is_extended_connect_protocol_enabled() {
            tokio::task::yield_now().await;
            client = client.ready().await.unwrap();
        }
        client
    })
    .await
}

async fn open_over_http2(
    client: &mut h2::client::SendRequest<Bytes>,
    path: &str,
    protocol: &str,
) -> (Response<h2::RecvStream>, h2::SendStream<Bytes>) {
    let request = Request::connect(format!("https://gateway{path}"))
        .extension(h2::ext::Protocol::from(protocol))
        .header("sec-websocket-version", "13")
        .header("origin", "https://chat.example")
        .body(())
        .unwrap();
    let (answer, stream) = client.send_request(request, false).unwrap();
    (finish_in_time(answer).await.unwrap(), stream)
}

async fn read_piece(stream: &mut h2::RecvStream) -> Option<Bytes> {
    let piece = finish_in_time(stream.data()).await?.unwrap();
    stream.flow_control().release_capacity(piece.len()).unwrap();
    Some(piece)
}

#[tokio::test]
async fn a_stream_of_http2_carries_a_websocket_next_to_others() {
    let (address, mut seen) = echoing().await;
    let gateway = realtime_gateway(
        HttpVersion::Http2,
        AdmissionLimits::default(),
        address,
        GatewayLimits::default(),
    )
    .await;
    let mut client = connect_http2(gateway.address).await;
    let mut open = Vec::new();
    for _ in 0..2 {
        let (answer, stream) =
            open_over_http2(&mut client, "/v1/realtime?model=m", "websocket").await;
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(answer.headers()["sec-websocket-protocol"], "realtime");
        for name in ["sec-websocket-accept", "upgrade", "connection"] {
            assert!(!answer.headers().contains_key(name), "{name}");
        }
        let head = seen.recv().await.unwrap();
        assert!(head.starts_with("GET /v1/realtime?model=m HTTP/1.1\r\n"), "{head}");
        for field in ["upgrade: websocket", "connection: upgrade", "origin: https://chat.example"] {
            assert!(head.contains(field), "{head}");
        }
        assert!(!head.contains("protocol"), "{head}");
        open.push((answer.into_body(), stream));
    }
    for (body, stream) in &mut open {
        stream.send_data(Bytes::from_static(b"hello"), false).unwrap();
        assert_eq!(read_piece(body).await.unwrap(), "hello");
    }
    // One ends in order, the other is reset.
    let (mut body, mut stream) = open.pop().unwrap();
    stream.send_data(Bytes::from_static(b"bye"), true).unwrap();
    assert_eq!(read_piece(&mut body).await.unwrap(), "bye");
    assert!(read_piece(&mut body).await.is_none_or(|rest| rest.is_empty()) && body.is_end_stream());
    assert_eq!(finish_in_time(seen.recv()).await.unwrap(), "ended: true");
    let (_, mut stream) = open.pop().unwrap();
    stream.send_reset(h2::Reason::CANCEL);
    assert!(finish_in_time(seen.recv()).await.unwrap().starts_with("ended"));
}

#[tokio::test]
async fn what_is_no_websocket_on_its_route_is_refused_over_http2_too() {
    let (address, mut seen) = echoing().await;
    let few = AdmissionLimits { connections: 2, connections_per_peer: 2, newcomer_reserve: 0 };
    let gateway =
        realtime_gateway(HttpVersion::Http2, few, address, GatewayLimits::default()).await;
    let mut client = connect_http2(gateway.address).await;
    for (path, protocol, wanted) in [
        ("/v1/other", "websocket", StatusCode::NOT_FOUND),
        ("/v1/models", "websocket", StatusCode::METHOD_NOT_ALLOWED),
        ("/v1/realtime", "connect-udp", StatusCode::METHOD_NOT_ALLOWED),
    ] {
        let (answer, _) = open_over_http2(&mut client, path, protocol).await;
        assert_eq!(answer.status(), wanted, "{path} {protocol}");
    }
    assert!(seen.try_recv().is_err());
    // The connection and its one WebSocket have both places.
    let (open, _stream) = open_over_http2(&mut client, "/v1/realtime", "websocket").await;
    assert_eq!(open.status(), StatusCode::OK);
    let (second, _) = open_over_http2(&mut client, "/v1/realtime", "websocket").await;
    assert_eq!(second.status(), StatusCode::SERVICE_UNAVAILABLE);
}
