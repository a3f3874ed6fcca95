//! Trailers of requests and answers, in both versions of HTTP.

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;

use super::{
    http2::{connect, http2_gateway},
    *,
};

const ANSWER: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\
                      trailer: x-sum, set-cookie\r\n\r\n\
                      2\r\nok\r\n0\r\nx-sum: 1\r\nset-cookie: a=1\r\n\r\n";

/// An upstream that reports each request to the end given, numbered by its connection, and answers
/// with trailers.
async fn summing(end: &'static str) -> (SocketAddr, mpsc::UnboundedReceiver<(usize, String)>) {
    let (saw, seen) = mpsc::unbounded_channel();
    let opened = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let address = upstream(move |mut stream| {
        let number = opened.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        let saw = saw.clone();
        async move {
            loop {
                let request = read_until(&mut stream, end).await;
                if !request.ends_with(end) {
                    return;
                }
                let _ = saw.send((number, request));
                let _ = stream.write_all(ANSWER.as_bytes()).await;
            }
        }
    })
    .await;
    (address, seen)
}

#[tokio::test]
async fn trailers_of_an_answer_reach_a_client_that_accepts_them() {
    let (address, mut seen) = summing("\r\n\r\n").await;
    let gateway = gateway(address, GatewayLimits::default()).await;
    let request = "GET / HTTP/1.1\r\nhost: h\r\nte: trailers\r\nconnection: te\r\n\r\n";
    let mut client = TcpStream::connect(gateway.address).await.unwrap();
    for _ in 0..3 {
        client.write_all(request.as_bytes()).await.unwrap();
        let head = read_until(&mut client, "\r\n\r\n").await;
        assert!(head.contains("trailer: x-sum\r\n"), "{head}");
        assert_eq!(read_until(&mut client, "\r\n\r\n").await, "2\r\nok\r\n0\r\nx-sum: 1\r\n\r\n");
        let (number, forwarded) = seen.recv().await.unwrap();
        assert_eq!(number, 0, "the connection is kept");
        assert!(forwarded.contains("te: trailers\r\n"), "{forwarded}");
        assert!(forwarded.contains("connection: te\r\n"), "{forwarded}");
    }
    let got = exchange(gateway.address, GET_CLOSE).await;
    assert!(got.ends_with("\r\n\r\n2\r\nok\r\n0\r\n\r\n"), "{got}");
    assert!(!got.contains("x-sum"), "{got}");
}

#[tokio::test]
async fn announced_trailers_of_a_request_reach_the_upstream() {
    let (address, mut seen) = summing("x-sum: 1\r\n\r\n").await;
    let gateway = gateway(address, GatewayLimits::default()).await;
    let request = "POST / HTTP/1.1\r\nhost: h\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\
                   trailer: Authorization, X-Sum\r\n\r\n2\r\nok\r\n0\r\n\
                   authorization: Bearer k\r\nx-other: 1\r\nx-sum: 1\r\n\r\n";
    let got = exchange(gateway.address, request).await;
    assert!(got.starts_with("HTTP/1.1 200 "), "{got}");
    let (_, forwarded) = seen.recv().await.unwrap();
    assert!(forwarded.contains("trailer: X-Sum\r\n"), "{forwarded}");
    assert!(forwarded.ends_with("\r\n2\r\nok\r\n0\r\nx-sum: 1\r\n\r\n"), "{forwarded}");
}

#[tokio::test]
async fn trailers_pass_between_the_versions_of_http() {
    let (address, mut seen) = summing("x-sum: 1\r\n\r\n").await;
    let gateway = http2_gateway(address, GatewayLimits::default()).await;
    let (mut sender, _connection) = connect(gateway.address).await;
    for (te, wanted) in [("trailers", 1), ("", 0)] {
        let trailers: HeaderMap = [("x-sum", "1"), ("x-other", "1")]
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
            .into_iter()
            .collect();
        let frames = [Frame::data(Bytes::from("ok")), Frame::trailers(trailers)];
        let mut request = Request::post("http://gateway/").header("trailer", "x-sum");
        if !te.is_empty() {
            request = request.header("te", te);
        }
        let body = StreamBody::new(futures_util::stream::iter(frames.map(Ok::<_, Infallible>)));
        let response = sender.send_request(request.body(body).unwrap());
        let response = finish_in_time(response).await.unwrap();
        let (_, forwarded) = seen.recv().await.unwrap();
        assert!(forwarded.ends_with("\r\n2\r\nok\r\n0\r\nx-sum: 1\r\n\r\n"), "{forwarded}");
        let body = finish_in_time(response.into_body().collect()).await.unwrap();
        let trailers = body.trailers().cloned().unwrap_or_default();
        assert_eq!(trailers.len(), wanted, "{trailers:?}");
        assert_eq!(trailers.contains_key("x-sum"), wanted == 1);
        assert_eq!(body.to_bytes(), "ok");
    }
}

#[tokio::test]
async fn too_many_trailers_are_a_431() {
    let (address, mut seen) = summing("x-sum: 1\r\n\r\n").await;
    let gateway = http2_gateway(address, GatewayLimits::default()).await;
    let (mut sender, _connection) = connect(gateway.address).await;
    let many: HeaderMap =
        (0..101).map(|n| (format!("x-{n}").parse().unwrap(), "1".parse().unwrap())).collect();
    let frames = [Frame::data(Bytes::from("ok")), Frame::trailers(many)];
    let body = StreamBody::new(futures_util::stream::iter(frames.map(Ok::<_, Infallible>)));
    let request = Request::post("http://gateway/").header("trailer", "x-1").body(body).unwrap();
    let response = finish_in_time(sender.send_request(request)).await.unwrap();
    assert_eq!(response.status(), StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
    assert!(seen.try_recv().is_err());
}
