//! Upstreams that speak HTTP/2: many requests on one connection, and what ends some of them.

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt, stream};
use http::{HeaderMap, Request, Response, Version};
use http_body_util::{BodyExt, Full, StreamBody, combinators::BoxBody};
use hyper::{
    body::{Frame, Incoming},
    server::conn::http2::Builder,
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{
    io::AsyncWrite,
    sync::{Barrier, Semaphore},
};
use tokio_rustls::rustls::version::TLS13;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Message, handshake::derive_accept_key, protocol::Role},
};

use super::{
    https_upstreams::Authority,
    model_servers::{no_health_checks, post},
    *,
};
use crate::ModelServer;

type Answer = Response<BoxBody<Bytes, Infallible>>;

/// A model server of HTTP/2 with prior knowledge.
struct Http2Server {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl Http2Server {
    async fn start<F, R>(streams_max: Option<u32>, answer: F) -> Self
    where
        F: Fn(Request<Incoming>) -> R + Clone + Send + 'static,
        R: Future<Output = Answer> + Send + 'static,
    {
        let connections = Arc::<AtomicUsize>::default();
        let counted = connections.clone();
        let address = upstream(move |stream| {
            counted.fetch_add(1, Ordering::SeqCst);
            serve_http2(stream, streams_max, answer.clone())
        })
        .await;
        Self { address, connections }
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

async fn serve_http2<S, F, R>(stream: S, streams_max: Option<u32>, answer: F)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Fn(Request<Incoming>) -> R + Clone + Send + 'static,
    R: Future<Output = Answer> + Send + 'static,
{
    let service = service_fn(move |request| {
        let answer = answer.clone();
        async move { Ok::<_, Infallible>(answer(request).await) }
    });
    let mut builder = Builder::new(TokioExecutor::new());
    builder.max_concurrent_streams(streams_max);
    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
}

fn full(text: impl Into<Bytes>) -> Answer {
    Response::new(Full::new(text.into()).boxed())
}

fn http2_upstream(address: SocketAddr) -> Upstream {
    Upstream::parse(&format!("http://{address}")).unwrap().with_http2()
}

async fn gateway_to(upstream: Upstream, limits: GatewayLimits) -> RunningGateway {
    let mut configuration = GatewayConfiguration::with_upstream(Binding::Key, upstream);
    configuration.routes = vec![Route::dangerous_everything(DEFAULT_GROUP)];
    configuration.add_route(Route::parse("WEBSOCKET /v1/realtime", DEFAULT_GROUP).unwrap());
    gateway_with(configuration, limits).await
}

#[tokio::test]
async fn requests_at_once_share_one_connection() {
    const REQUESTS: usize = 20;
    let together = Arc::new(Barrier::new(REQUESTS));
    let server = Http2Server::start(None, move |request: Request<Incoming>| {
        let together = together.clone();
        async move {
            assert_eq!(request.version(), Version::HTTP_2);
            assert!(!request.headers().contains_key("host"));
            let target = request.uri().to_string();
            let body = request.into_body().collect().await.unwrap().to_bytes();
            together.wait().await;
            full(format!("{target} {}", String::from_utf8(body.into()).unwrap()))
        }
    })
    .await;
    let gateway = gateway_to(http2_upstream(server.address), GatewayLimits::default()).await;
    let posts = (0..REQUESTS).map(|number| {
        let request = post("", &format!("body {number}"));
        async move { exchange(gateway.address, &request).await }
    });
    let answers = futures_util::future::join_all(posts).await;
    for (number, answer) in answers.iter().enumerate() {
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        let wanted = format!("http://{}/v1/chat/completions body {number}", server.address);
        assert!(answer.ends_with(&wanted), "{answer}");
    }
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn a_connection_has_at_most_the_streams_that_the_upstream_accepts() {
    let (arrive, mut arrived) = mpsc::unbounded_channel();
    let (answers, running) = (Arc::new(Semaphore::new(0)), Arc::<AtomicUsize>::default());
    let (permits, counted) = (answers.clone(), running.clone());
    let server = Http2Server::start(Some(2), move |_| {
        let (arrive, permits, running) = (arrive.clone(), permits.clone(), counted.clone());
        async move {
            let _ = arrive.send(running.fetch_add(1, Ordering::SeqCst) + 1);
            permits.acquire().await.unwrap().forget();
            running.fetch_sub(1, Ordering::SeqCst);
            full("ok")
        }
    })
    .await;
    let gateway = gateway_to(http2_upstream(server.address), GatewayLimits::default()).await;
    let address = gateway.address;
    let clients: Vec<_> =
        (0..7).map(|_| tokio::spawn(async move { exchange(address, GET_CLOSE).await })).collect();
    let mut most = 0;
    for _ in 0..7 {
        most = most.max(finish_in_time(arrived.recv()).await.unwrap());
    }
    answers.add_permits(7);
    for client in clients {
        let answer = finish_in_time(client).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    assert_eq!((most, server.connections()), (7, 4));
}

/// A frame (RFC 9113 section 4.1).
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0, 0, payload.len() as u8, kind, flags];
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

const SETTINGS: u8 = 4;
const HEADERS: u8 = 1;
/// An indexed field: `:status: 200`.
const STATUS_200: [u8; 1] = [0x88];

/// Speaks HTTP/2 frame by frame: `answer` returns the frames that answer a stream.
async fn answer_frames(mut stream: TcpStream, answer: impl Fn(u32) -> Vec<u8>) {
    read_until(&mut stream, "SM\r\n\r\n").await;
    stream.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
    let mut head = [0; 9];
    while stream.read_exact(&mut head).await.is_ok() {
        let length = usize::from(head[1]) << 8 | usize::from(head[2]);
        let mut payload = vec![0; length];
        stream.read_exact(&mut payload).await.unwrap();
        let id = u32::from_be_bytes(head[5..9].try_into().unwrap());
        let answer = match (head[3], head[4]) {
            (SETTINGS, 0) => frame(SETTINGS, 1, 0, &[]),
            (HEADERS, _) => answer(id),
            _ => continue,
        };
        if stream.write_all(&answer).await.is_err() {
            return;
        }
    }
}

/// A request that the server has said not to have processed is safe to repeat whatever its method,
/// as long as its body is still there.
#[tokio::test]
async fn refused_streams_and_those_after_a_goaway_are_sent_again_if_their_bodies_are_in_memory() {
    let go_away = |id: u32| {
        let payload = [(id - 2).to_be_bytes(), [0; 4]].concat();
        frame(7, 0, 0, &payload)
    };
    let refused_stream = |id: u32| frame(3, 0, id, &7_u32.to_be_bytes());
    let refusals: [fn(u32) -> Vec<u8>; 2] = [go_away, refused_stream];
    let in_memory = post("", "{\"model\":\"m\"}");
    let streamed = post("", "hello");
    for refusal in refusals {
        for (request, models, wanted) in [
            (GET_CLOSE, &[][..], "HTTP/1.1 200 "),
            (&in_memory, &["m".to_owned()], "HTTP/1.1 200 "),
            (&streamed, &[], "HTTP/1.1 502 "),
        ] {
            let received = Arc::<AtomicUsize>::default();
            let counted = received.clone();
            let address = upstream(move |stream| {
                let received = counted.clone();
                answer_frames(stream, move |id| match received.fetch_add(1, Ordering::SeqCst) {
                    1 => refusal(id),
                    _ => frame(HEADERS, 5, id, &STATUS_200),
                })
            })
            .await;
            let upstream = http2_upstream(address);
            let server = ModelServer { models: models.to_vec(), ..ModelServer::new(upstream) };
            let gateway = super::model_servers::gateway_before(vec![server], no_health_checks());
            let gateway = gateway.await;
            let first = exchange(gateway.address, &in_memory).await;
            assert!(first.starts_with("HTTP/1.1 200 "), "{first}");
            let second = exchange(gateway.address, request).await;
            assert!(second.starts_with(wanted), "{request}: {second}");
            let sent = if wanted.contains("200") { 3 } else { 2 };
            assert_eq!(received.load(Ordering::SeqCst), sent, "{request}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundreds_of_requests_to_an_upstream_that_ends_its_connections_all_succeed() {
    let address = upstream(|stream| async move {
        let (answered, mut answers) = mpsc::unbounded_channel();
        let service = service_fn(move |_: Request<Incoming>| {
            let _ = answered.send(());
            async { Ok::<_, Infallible>(full("ok")) }
        });
        let builder = Builder::new(TokioExecutor::new());
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        let mut connection = std::pin::pin!(connection);
        tokio::select! {
            _ = connection.as_mut() => return,
            _ = answers.recv() => connection.as_mut().graceful_shutdown(),
        }
        let _ = connection.await;
    })
    .await;
    let gateway = gateway_to(http2_upstream(address), GatewayLimits::default()).await;
    let clients = (0..4).map(|_| async {
        for number in 0..100 {
            let answer = exchange(gateway.address, GET_CLOSE).await;
            assert!(answer.starts_with("HTTP/1.1 200 "), "GET {number}: {answer}");
        }
    });
    futures_util::future::join_all(clients).await;
}

/// A body of `first`, which then lasts until it is dropped; its end is reported.
fn endless(first: &'static str, ended: mpsc::UnboundedSender<()>) -> Answer {
    struct ReportedEnd(mpsc::UnboundedSender<()>);
    impl Drop for ReportedEnd {
        fn drop(&mut self) {
            let _ = self.0.send(());
        }
    }
    let report = ReportedEnd(ended);
    let frames = stream::once(async { Ok(Frame::data(Bytes::from_static(first.as_bytes()))) });
    let rest = stream::poll_fn(move |_| {
        let _held = &report;
        std::task::Poll::Pending
    });
    Response::new(BodyExt::boxed(StreamBody::new(frames.chain(rest))))
}

#[tokio::test]
async fn a_client_that_leaves_resets_its_own_stream_only() {
    let (end, mut ended) = mpsc::unbounded_channel();
    let server = Http2Server::start(None, move |request: Request<Incoming>| {
        let end = end.clone();
        async move {
            match request.uri().path() {
                "/endless" => endless("data: 1\n\n", end),
                _ => full("ok"),
            }
        }
    })
    .await;
    let gateway = gateway_to(http2_upstream(server.address), GatewayLimits::default()).await;
    let endless = "GET /endless HTTP/1.1\r\nhost: h\r\n\r\n";
    let mut leaving = ask(gateway.address, endless).await;
    let mut staying = ask(gateway.address, endless).await;
    for client in [&mut leaving, &mut staying] {
        assert!(read_until(client, "data: 1\n\n").await.starts_with("HTTP/1.1 200 "));
    }
    drop(leaving);
    finish_in_time(ended.recv()).await.unwrap();
    assert!(exchange(gateway.address, GET_CLOSE).await.ends_with("ok"));
    assert!(ended.try_recv().is_err(), "the other stream was reset too");
    assert_eq!(server.connections(), 1);
    drop(staying);
    finish_in_time(ended.recv()).await.unwrap();
}

#[tokio::test]
async fn trailers_pass_both_ways() {
    let server = Http2Server::start(None, |request: Request<Incoming>| async move {
        let body = request.into_body().collect().await.unwrap();
        let sum = body.trailers().and_then(|trailers| trailers.get("x-sum")).cloned();
        let mut trailers = HeaderMap::new();
        trailers.extend(sum.map(|sum| (http::HeaderName::from_static("x-sum"), sum)));
        let frames = [Frame::data(Bytes::from("ok")), Frame::trailers(trailers)].map(Ok);
        let body = BodyExt::boxed(StreamBody::new(stream::iter(frames)));
        Response::builder().header("trailer", "x-sum").body(body).unwrap()
    })
    .await;
    let gateway = gateway_to(http2_upstream(server.address), GatewayLimits::default()).await;
    let request = "POST /v1/completions HTTP/1.1\r\nhost: h\r\nconnection: close, te\r\n\
                   te: trailers\r\ntrailer: x-sum\r\ntransfer-encoding: chunked\r\n\r\n\
                   5\r\nhello\r\n0\r\nx-sum: 532\r\n\r\n";
    let answer = exchange(gateway.address, request).await;
    assert!(answer.ends_with("0\r\nx-sum: 532\r\n\r\n"), "{answer}");
}

#[tokio::test]
async fn clients_that_do_not_read_hold_up_no_other_stream() {
    let server = Http2Server::start(None, |request: Request<Incoming>| async move {
        match request.uri().path() {
            "/long" => full(vec![b'x'; 32 * 1024 * 1024]),
            _ => full("ok"),
        }
    })
    .await;
    let gateway = gateway_to(http2_upstream(server.address), GatewayLimits::default()).await;
    let mut stuck = Vec::new();
    for _ in 0..8 {
        let mut client = ask(gateway.address, "GET /long HTTP/1.1\r\nhost: h\r\n\r\n").await;
        assert!(read_until(&mut client, "\r\n\r\n").await.starts_with("HTTP/1.1 200 "));
        stuck.push(client);
    }
    for _ in 0..3 {
        assert!(exchange(gateway.address, GET_CLOSE).await.ends_with("ok"));
    }
    assert_eq!(server.connections(), 1);
    // A client that reads in the end gets all of it.
    let mut bytes = 0;
    let mut client = stuck.pop().unwrap();
    let mut piece = vec![0; 64 * 1024];
    while bytes < 32 * 1024 * 1024 {
        bytes += finish_in_time(client.read(&mut piece)).await.unwrap();
    }
}

#[tokio::test]
async fn a_peer_that_is_gone_without_closing_is_noticed() {
    // It answers no ping.
    let address = upstream(|stream| answer_frames(stream, |_| Vec::new())).await;
    let mut limits = GatewayLimits::default();
    limits.http2.ping_interval = Duration::from_millis(20);
    limits.http2.ping_timeout = Duration::from_millis(20);
    let gateway = gateway_to(http2_upstream(address), limits).await;
    let answer = exchange(gateway.address, &post("", "hello")).await;
    assert!(answer.starts_with("HTTP/1.1 502 ") && answer.contains("broke_off"), "{answer}");
}

#[tokio::test]
async fn an_upstream_that_does_not_speak_http2_is_not_reached_with_prior_knowledge() {
    let address = upstream_saying("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").await;
    let gateway = gateway_to(http2_upstream(address), GatewayLimits::default()).await;
    let answer = exchange(gateway.address, &post("", "hello")).await;
    assert!(answer.contains("upstream_unreachable"), "{answer}");
}

#[tokio::test]
async fn a_body_that_breaks_the_rules_is_answered_for_as_over_http1() {
    let server = Http2Server::start(None, |request: Request<Incoming>| async move {
        let _ = request.into_body().collect().await;
        full("ok")
    })
    .await;
    let limits = GatewayLimits { request_body_bytes: 8, ..GatewayLimits::default() };
    let gateway = gateway_to(http2_upstream(server.address), limits).await;
    let chunks = "POST /v1/completions HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\
                  transfer-encoding: chunked\r\n\r\n9\r\n123456789\r\n0\r\n\r\n";
    let answer = exchange(gateway.address, chunks).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
}

#[tokio::test]
async fn over_tls_the_server_has_to_choose_http2_and_a_websocket_has_http1() {
    let authority = Authority::new("ours");
    for offered in [&["h2", "http/1.1"][..], &["http/1.1"]] {
        let acceptor = authority.server_offering(&["localhost"], &TLS13, offered);
        let address = upstream(move |stream| {
            let acceptor = acceptor.clone();
            async move {
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
                    let answer = |request: Request<Incoming>| async move {
                        full(format!("{:?}", request.version()))
                    };
                    return serve_http2(stream, None, answer).await;
                }
                let head = read_until(&mut stream, "\r\n\r\n").await;
                if let Some(key) =
                    head.lines().find_map(|line| line.strip_prefix("sec-websocket-key: "))
                {
                    let accept = derive_accept_key(key.as_bytes());
                    let answer = format!(
                        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\n\
                         upgrade: websocket\r\nsec-websocket-accept: {accept}\r\n\r\n"
                    );
                    stream.write_all(answer.as_bytes()).await.unwrap();
                    let mut socket =
                        WebSocketStream::from_raw_socket(stream, Role::Server, None).await;
                    let message = socket.next().await.unwrap().unwrap();
                    return socket.send(message).await.unwrap();
                }
                let answer = "HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\nHTTP/1.1";
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        })
        .await;
        let upstream = authority.upstream("localhost", address).with_http2();
        let gateway = gateway_to(upstream, GatewayLimits::default()).await;
        let answer = exchange(gateway.address, GET_CLOSE).await;
        let speaks_http2 = offered.contains(&"h2");
        assert_eq!(answer.ends_with("\r\n\r\nHTTP/2.0"), speaks_http2, "{answer}");
        assert_eq!(answer.contains("upstream_unreachable"), !speaks_http2, "{answer}");
        let stream = TcpStream::connect(gateway.address).await.unwrap();
        let opening = tokio_tungstenite::client_async("ws://gateway/v1/realtime", stream);
        let (mut socket, _) = finish_in_time(opening).await.unwrap();
        socket.send(Message::text("hello")).await.unwrap();
        let echo = finish_in_time(socket.next()).await.unwrap().unwrap();
        assert_eq!(echo, Message::text("hello"));
    }
}
