//! HTTP/2 towards clients, over plain TCP with prior knowledge, and over TLS.

use bytes::Bytes;
use http::{Request, Response, StatusCode, Version};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::{
    body::{Body, Frame, Incoming},
    client::conn::http2::{self, SendRequest},
};
use hyper_util::rt::{TokioExecutor, TokioIo};

use super::*;
use crate::{Gateway, GatewayOptions};

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// The start of a connection: the preface and empty SETTINGS.
const PREFACE: &str = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

pub(super) async fn http2_gateway(upstream: SocketAddr, limits: GatewayLimits) -> RunningGateway {
    http2_gateway_for(AdmissionLimits::default(), upstream, limits).await
}

async fn http2_gateway_for(
    admission: AdmissionLimits,
    upstream: SocketAddr,
    limits: GatewayLimits,
) -> RunningGateway {
    let upstream = Upstream::parse(&format!("http://{upstream}")).unwrap();
    let mut configuration = GatewayConfiguration::with_upstream(Binding::Key, upstream);
    configuration.routes = vec![Route::dangerous_everything(DEFAULT_GROUP)];
    gateway_speaking(HttpVersion::Http2, admission, configuration, limits).await
}

pub(super) async fn connect<B>(
    gateway: SocketAddr,
) -> (SendRequest<B>, JoinHandle<hyper::Result<()>>)
where
    B: Body<Data = Bytes, Error = Infallible> + Unpin + Send + 'static,
{
    let stream = TokioIo::new(TcpStream::connect(gateway).await.unwrap());
    let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    (sender, tokio::spawn(connection))
}

fn get(path: &str) -> Request<Full<Bytes>> {
    Request::get(format!("http://gateway{path}")).body(Full::default()).unwrap()
}

/// A GET without a body and with an authority, as a frame (RFC 9113 section 6.2, RFC 7541).
fn headers_frame(id: u32, path: &[u8]) -> Vec<u8> {
    let mut block = b"\x82\x86\x04".to_vec();
    block.push(path.len() as u8);
    block.extend(path);
    block.extend(b"\x01\x01h");
    let mut frame = vec![0, 0, block.len() as u8, 1, 5];
    frame.extend(id.to_be_bytes());
    frame.extend(block);
    frame
}

async fn text_of(response: Response<Incoming>) -> String {
    let body = finish_in_time(response.into_body().collect()).await.unwrap();
    String::from_utf8(body.to_bytes().into()).unwrap()
}

/// An upstream that answers each path in its way, one request for each connection.
async fn branching() -> SocketAddr {
    upstream(|mut stream| async move {
        let head = read_until(&mut stream, "\r\n\r\n").await;
        match head.split(' ').nth(1) {
            Some("/stall") => {
                let _ = stream.write_all(CHUNKED.as_bytes()).await;
                read_to_end(&mut stream).await;
            }
            Some("/cut") => {
                let _ = stream.write_all((CHUNKED.to_owned() + "3\r\nabc\r\n").as_bytes()).await;
            }
            Some("/short") => {
                let _ = stream.write_all(OK.replace("length: 2", "length: 9").as_bytes()).await;
            }
            Some("/long") => {
                let head = OK.replace("length: 2", "length: 100000").replace("ok", "");
                let _ = stream.write_all((head + &"x".repeat(100_000)).as_bytes()).await;
            }
            Some("/chunked") => {
                let chunk = format!("186a0\r\n{}\r\n", "x".repeat(100_000));
                let _ = stream.write_all([CHUNKED, &chunk, LAST_CHUNK].concat().as_bytes()).await;
            }
            Some("/silent") => {
                read_to_end(&mut stream).await;
            }
            _ => {
                let _ = stream.write_all(OK.as_bytes()).await;
            }
        }
    })
    .await
}

#[tokio::test]
async fn a_request_passes_as_one_of_http_1_1() {
    let (saw, mut seen) = mpsc::unbounded_channel();
    let upstream = upstream(move |mut stream| {
        let saw = saw.clone();
        async move {
            saw.send(read_until(&mut stream, LAST_CHUNK).await).unwrap();
            let answer = "HTTP/1.1 201 Created\r\ncontent-length: 2\r\nconnection: x-hop\r\n\
                          x-hop: 1\r\nkeep-alive: timeout=9\r\nx-kept: yes\r\n\r\nok";
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    })
    .await;
    let gateway = http2_gateway(upstream, GatewayLimits::default()).await;
    let (mut sender, _connection) = connect(gateway.address).await;
    let pieces = ["hel", "lo"].map(|text| Ok::<_, Infallible>(Frame::data(Bytes::from(text))));
    let request = Request::post("https://outside/v1/completions?x=1")
        .header("cookie", "a=1")
        .header("cookie", "b=2")
        .header("te", "trailers")
        .header("authorization", "Bearer k")
        .body(StreamBody::new(futures_util::stream::iter(pieces)))
        .unwrap();
    let response = finish_in_time(sender.send_request(request)).await.unwrap();
    assert_eq!((response.status(), response.version()), (StatusCode::CREATED, Version::HTTP_2));
    assert_eq!(response.headers()["x-kept"], "yes");
    for name in ["x-hop", "keep-alive", "connection"] {
        assert!(!response.headers().contains_key(name), "{name}");
    }
    assert_eq!(text_of(response).await, "ok");
    let forwarded = seen.recv().await.unwrap();
    assert!(forwarded.starts_with("POST /v1/completions?x=1 HTTP/1.1\r\n"), "{forwarded}");
    assert!(forwarded.contains(&format!("host: {upstream}\r\n")), "{forwarded}");
    assert!(forwarded.contains("cookie: a=1; b=2\r\n"), "{forwarded}");
    assert!(forwarded.contains("transfer-encoding: chunked\r\n"), "{forwarded}");
    assert!(forwarded.contains("\r\n3\r\nhel\r\n2\r\nlo\r\n"), "{forwarded}");
    assert_eq!(forwarded.matches("host:").count(), 1, "{forwarded}");
    assert!(!forwarded.contains("outside"), "{forwarded}");
}

#[tokio::test]
async fn one_stalled_stream_does_not_stop_another() {
    let gateway = http2_gateway(branching().await, GatewayLimits::default()).await;
    let (mut sender, _connection) = connect(gateway.address).await;
    let stalled = finish_in_time(sender.send_request(get("/stall"))).await.unwrap();
    for _ in 0..3 {
        let response = finish_in_time(sender.send_request(get("/"))).await.unwrap();
        assert_eq!(text_of(response).await, "ok");
    }
    drop(stalled);
}

#[tokio::test]
async fn a_cut_answer_is_a_reset_and_no_end() {
    let gateway = http2_gateway(branching().await, GatewayLimits::default()).await;
    let (mut sender, _connection) = connect(gateway.address).await;
    for path in ["/cut", "/short"] {
        let response = finish_in_time(sender.send_request(get(path))).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let error = finish_in_time(response.into_body().collect()).await.unwrap_err();
        let reset = std::error::Error::source(&error).unwrap().downcast_ref::<h2::Error>();
        assert!(reset.is_some_and(|error| error.is_reset() && error.is_remote()), "{error:?}");
    }
    let response = finish_in_time(sender.send_request(get("/"))).await.unwrap();
    assert_eq!(text_of(response).await, "ok", "the connection goes on");
}

#[tokio::test]
async fn heads_are_checked_as_in_http_1_1() {
    let gateway = http2_gateway(branching().await, GatewayLimits::default()).await;
    let (mut sender, _connection) = connect(gateway.address).await;
    let mut many = get("/");
    for number in 0..100 {
        let name: http::HeaderName = format!("x-{number}").parse().unwrap();
        many.headers_mut().insert(name, "1".parse().unwrap());
    }
    let mut long = get("/");
    long.headers_mut().insert("x", "y".repeat(70_000).parse().unwrap());
    let mut elsewhere = get("/");
    elsewhere.headers_mut().insert("host", "elsewhere".parse().unwrap());
    let mut connect_request = get("/");
    *connect_request.method_mut() = http::Method::CONNECT;
    *connect_request.uri_mut() = "h:443".parse().unwrap();
    for (request, wanted) in [
        (many, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE),
        (long, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE),
        (elsewhere, StatusCode::BAD_REQUEST),
        (connect_request, StatusCode::METHOD_NOT_ALLOWED),
        (get("/v1/..%2fmetrics"), StatusCode::BAD_REQUEST),
        (get("/"), StatusCode::OK),
    ] {
        let response = finish_in_time(sender.send_request(request)).await.unwrap();
        assert_eq!(response.status(), wanted);
    }
}

#[tokio::test]
async fn a_body_that_is_not_as_long_as_announced_is_a_reset() {
    let gateway = http2_gateway(branching().await, GatewayLimits::default()).await;
    let stream = TcpStream::connect(gateway.address).await.unwrap();
    let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    for length in ["3", "9"] {
        client = finish_in_time(client.ready()).await.unwrap();
        let request =
            Request::post("http://gateway/silent").header("content-length", length).body(());
        let (response, mut body) = client.send_request(request.unwrap(), false).unwrap();
        body.send_data(Bytes::from_static(b"hello"), true).unwrap();
        let error = finish_in_time(response).await.expect_err(length);
        assert!(error.is_remote(), "{length}: {error}");
        assert_eq!(error.reason(), Some(h2::Reason::PROTOCOL_ERROR), "{length}: {error}");
    }
}

#[tokio::test]
async fn a_get_may_end_with_an_empty_frame_and_has_no_content() {
    let gateway = http2_gateway(branching().await, GatewayLimits::default()).await;
    let stream = TcpStream::connect(gateway.address).await.unwrap();
    let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    for (content, wanted) in [("", StatusCode::OK), ("hidden", StatusCode::BAD_REQUEST)] {
        client = finish_in_time(client.ready()).await.unwrap();
        let (response, mut body) = client.send_request(get("/").map(|_| ()), false).unwrap();
        body.send_data(Bytes::from_static(content.as_bytes()), true).unwrap();
        assert_eq!(finish_in_time(response).await.unwrap().status(), wanted, "{content}");
    }
}

#[tokio::test]
async fn a_connection_without_requests_is_closed_and_a_running_one_is_not() {
    let idle = Duration::from_millis(100);
    let limits = GatewayLimits { idle, ..GatewayLimits::default() };
    let gateway = http2_gateway(branching().await, limits).await;
    let (mut sender, connection) = connect(gateway.address).await;
    let stalled = finish_in_time(sender.send_request(get("/stall"))).await.unwrap();
    tokio::time::sleep(4 * idle).await;
    let response = finish_in_time(sender.send_request(get("/"))).await.unwrap();
    assert_eq!(text_of(response).await, "ok");
    drop(stalled);
    finish_in_time(connection).await.unwrap().expect("it ends gracefully");
}

#[tokio::test]
async fn an_idle_client_that_does_not_heed_goaway_is_cut() {
    let brief = Duration::from_millis(100);
    let mut limits = GatewayLimits { idle: brief, ..GatewayLimits::default() };
    limits.http2.goaway = brief;
    let gateway = http2_gateway(branching().await, limits).await;
    let mut stream = ask(gateway.address, PREFACE).await;
    stream.write_all(&headers_frame(1, b"/")).await.unwrap();
    let mut received = Vec::new();
    let _ = finish_in_time(stream.read_to_end(&mut received)).await;
    assert!(received.windows(2).any(|piece| piece == b"ok"), "it was answered");
    assert!(received.windows(9).any(|frame| frame[..4] == [0, 0, 8, 7]), "GOAWAY came first");
}

#[tokio::test]
async fn a_peer_that_sends_no_request_over_http2_is_let_go() {
    let limits =
        GatewayLimits { first_head: Duration::from_millis(50), ..GatewayLimits::default() };
    let gateway = http2_gateway(branching().await, limits).await;
    for start in ["", PREFACE] {
        let mut stream = ask(gateway.address, start).await;
        let _ = finish_in_time(stream.read_to_end(&mut Vec::new())).await;
    }
}

#[tokio::test]
async fn a_stream_whose_client_grants_no_window_is_reset() {
    let stall = Duration::from_millis(100);
    let limits = GatewayLimits { write_stall: stall, ..GatewayLimits::default() };
    let gateway = http2_gateway(branching().await, limits).await;
    let stream = TcpStream::connect(gateway.address).await.unwrap();
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(0);
    let (mut client, connection) = builder.handshake::<_, Bytes>(stream).await.unwrap();
    tokio::spawn(connection);
    client = finish_in_time(client.ready()).await.unwrap();
    let (response, _) = client.send_request(get("/").map(|_| ()), true).unwrap();
    let mut body = finish_in_time(response).await.unwrap().into_body();
    let error = finish_in_time(body.data()).await.unwrap().unwrap_err();
    assert!(error.is_reset() && error.is_remote(), "{error}");
    let head = Request::head("http://gateway/").body(()).unwrap();
    let (response, _) = client.send_request(head, true).unwrap();
    assert_eq!(finish_in_time(response).await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn a_stream_whose_client_grants_a_part_of_the_window_is_reset() {
    let stall = Duration::from_millis(100);
    let limits = GatewayLimits { write_stall: stall, ..GatewayLimits::default() };
    let gateway = http2_gateway(branching().await, limits).await;
    for (path, window) in [("/long", 1), ("/long", 65_000), ("/chunked", 1), ("/chunked", 65_000)] {
        let stream = TcpStream::connect(gateway.address).await.unwrap();
        let mut builder = h2::client::Builder::new();
        builder.initial_window_size(window);
        let (mut client, connection) = builder.handshake::<_, Bytes>(stream).await.unwrap();
        tokio::spawn(connection);
        client = finish_in_time(client.ready()).await.unwrap();
        let (response, _) = client.send_request(get(path).map(|_| ()), true).unwrap();
        let mut body = finish_in_time(response).await.unwrap().into_body();
        let error = finish_in_time(async {
            loop {
                if let Err(error) = body.data().await.expect("the answer is not complete") {
                    return error;
                }
            }
        })
        .await;
        assert!(error.is_reset() && error.is_remote(), "{path} {window}: {error}");
    }
}

#[tokio::test]
async fn answers_of_the_gateway_itself_to_head_have_no_content() {
    let gateway = http2_gateway(branching().await, GatewayLimits::default()).await;
    let stream = TcpStream::connect(gateway.address).await.unwrap();
    let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    for (path, wanted) in
        [("/.well-known/confide", StatusCode::OK), ("/%2f", StatusCode::BAD_REQUEST)]
    {
        client = finish_in_time(client.ready()).await.unwrap();
        let head = Request::head(format!("http://gateway{path}")).body(()).unwrap();
        let (response, _) = client.send_request(head, true).unwrap();
        let response = finish_in_time(response).await.unwrap();
        assert_eq!(response.status(), wanted);
        assert!(response.body().is_end_stream(), "{path} has content");
    }
}

#[tokio::test]
async fn requests_at_once_take_places_as_connections_do() {
    let two = AdmissionLimits { connections: 4, connections_per_peer: 2, newcomer_reserve: 0 };
    let gateway = http2_gateway_for(two, branching().await, GatewayLimits::default()).await;
    let (mut sender, _connection) = connect(gateway.address).await;
    let first = finish_in_time(sender.send_request(get("/stall"))).await.unwrap();
    let second = finish_in_time(sender.send_request(get("/stall"))).await.unwrap();
    let third = finish_in_time(sender.send_request(get("/"))).await.unwrap();
    assert_eq!(third.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(third.headers()["retry-after"], "1");
    assert!(text_of(third).await.contains("gateway_busy"));
    drop((first, second));
    finish_in_time(async {
        while sender.send_request(get("/")).await.unwrap().status() != StatusCode::OK {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn streams_that_are_opened_and_reset_at_once_end_the_connection() {
    let gateway = http2_gateway(branching().await, GatewayLimits::default()).await;
    let mut stream = ask(gateway.address, PREFACE).await;
    let mut flood = Vec::new();
    for id in (1..10_000_u32).step_by(2) {
        flood.extend(headers_frame(id, b"/silent"));
        flood.extend([0, 0, 4, 3, 0]);
        flood.extend(id.to_be_bytes());
        flood.extend(8_u32.to_be_bytes());
    }
    let (mut answers, mut requests) = stream.split();
    let mut received = Vec::new();
    // The gateway closes with bytes unread, so both may fail.
    let _ = finish_in_time(async {
        tokio::join!(requests.write_all(&flood), answers.read_to_end(&mut received))
    })
    .await;
    // GOAWAY with ENHANCE_YOUR_CALM.
    let calm = received.windows(17).any(|frame| frame[3] == 7 && frame[13..17] == [0, 0, 0, 11]);
    assert!(calm, "{} bytes", received.len());
    let (mut sender, _connection) = connect(gateway.address).await;
    let response = finish_in_time(sender.send_request(get("/"))).await.unwrap();
    assert_eq!(text_of(response).await, "ok");
}

#[tokio::test]
async fn a_head_in_endless_continuations_ends_the_connection() {
    let gateway = http2_gateway(branching().await, GatewayLimits::default()).await;
    let mut stream = ask(gateway.address, PREFACE).await;
    let mut flood = vec![0, 0, 1, 1, 1, 0, 0, 0, 1, 0x82];
    for _ in 0..50_000 {
        flood.extend([0, 0, 0, 9, 0, 0, 0, 0, 1]);
    }
    let (mut answers, mut requests) = stream.split();
    let mut received = Vec::new();
    let _ = finish_in_time(async {
        tokio::join!(requests.write_all(&flood), answers.read_to_end(&mut received))
    })
    .await;
    assert!(received.windows(9).any(|frame| frame[3] == 7), "{} bytes", received.len());
}

#[tokio::test]
async fn a_stream_beyond_the_limit_is_refused_so_that_it_can_be_repeated() {
    let mut limits = GatewayLimits::default();
    limits.http2.streams = 2;
    let gateway = http2_gateway(branching().await, limits).await;
    let mut stream = ask(gateway.address, PREFACE).await;
    for id in [1, 3, 5] {
        stream.write_all(&headers_frame(id, b"/silent")).await.unwrap();
    }
    // RST_STREAM of stream 5 with REFUSED_STREAM.
    let refusal = [0, 0, 4, 3, 0, 0, 0, 0, 5, 0, 0, 0, 7];
    let mut received = Vec::new();
    while !received.ends_with(&refusal) {
        received.push(finish_in_time(stream.read_u8()).await.unwrap());
    }
}

#[tokio::test]
async fn a_flood_of_pings_whose_answers_are_not_read_is_cut() {
    let limits =
        GatewayLimits { write_stall: Duration::from_millis(200), ..GatewayLimits::default() };
    let gateway = http2_gateway(branching().await, limits).await;
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut stream = finish_in_time(socket.connect(gateway.address)).await.unwrap();
    stream.write_all(PREFACE.as_bytes()).await.unwrap();
    let pings = [0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8].repeat(1000);
    finish_in_time(async { while stream.write_all(&pings).await.is_ok() {} }).await;
}

#[tokio::test]
async fn a_running_stream_ends_before_the_gateway_stops() {
    let (upstream, go_on) = stepping_upstream(&[CHUNKED, "2\r\nok\r\n0\r\n\r\n"]).await;
    let gateway = http2_gateway(upstream, GatewayLimits::default()).await;
    let (mut sender, connection) = connect(gateway.address).await;
    let (mut other, other_connection) = connect::<Full<Bytes>>(gateway.address).await;
    let running = finish_in_time(sender.send_request(get("/"))).await.unwrap();
    finish_in_time(other.ready()).await.unwrap();
    gateway.stop.send(()).unwrap();
    let _ = finish_in_time(other_connection).await.unwrap();
    go_on.send(()).unwrap();
    assert_eq!(text_of(running).await, "ok");
    finish_in_time(connection).await.unwrap().expect("it ends gracefully");
    assert_eq!(finish_in_time(gateway.ended).await.unwrap(), DrainOutcome::Completely);
}

#[tokio::test]
async fn a_connection_with_several_streams_is_cut_as_one() {
    let limits = GatewayLimits { drain: Duration::from_millis(50), ..GatewayLimits::default() };
    let gateway = http2_gateway(branching().await, limits).await;
    let (mut sender, _connection) = connect(gateway.address).await;
    let mut stalled = Vec::new();
    for _ in 0..3 {
        stalled.push(finish_in_time(sender.send_request(get("/stall"))).await.unwrap());
    }
    gateway.stop.send(()).unwrap();
    assert_eq!(finish_in_time(gateway.ended).await.unwrap(), DrainOutcome::Cut(1));
}

pub(super) fn curl(arguments: &[&str]) -> tokio::process::Command {
    let mut command = tokio::process::Command::new("curl");
    command.args(arguments);
    command
}

pub(super) async fn has_curl_with_http2() -> bool {
    let version = curl(&["--version"]).output().await;
    version.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("HTTP2"))
}

#[tokio::test]
async fn curl_and_a_gateway_agree_on_http2_over_tls() {
    if !has_curl_with_http2().await {
        return eprintln!("skipped: no curl with HTTP/2");
    }
    let upstream = Upstream::parse(&format!("http://{}", branching().await)).unwrap();
    let options = GatewayOptions {
        configuration: GatewayConfiguration::with_upstream(Binding::None, upstream),
        key_validity: Duration::from_secs(3600),
        limits: GatewayLimits::default(),
        names: vec!["localhost".into()],
        session_tickets: false,
    };
    // The certificate's dates do not matter to `--insecure`.
    let gateway = Gateway::new(options, None, || 1_800_000_000).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/v1/models", listener.local_addr().unwrap());
    tokio::spawn(gateway.serve(listener, std::future::pending()));
    for (version, wanted) in [("--http2", "ok 2 200"), ("--http1.1", "ok 1.1 200")] {
        let format = " %{http_version} %{http_code}";
        let mut command = curl(&["--silent", "--insecure", version, "--write-out", format, &url]);
        let output = finish_in_time(command.output()).await.unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), wanted);
    }
}
