//! Clients that would hold the gateway for themselves: those of other addresses are served at once.
//!
//! The holder is 127.0.0.1, the honest client 127.0.0.2.

use super::*;

/// Eight places, four for one address, two for newcomers.
const FEW: AdmissionLimits =
    AdmissionLimits { connections: 8, connections_per_peer: 4, newcomer_reserve: 2 };
const DRIPS: &str = "POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 1000000\r\n\r\nx";

/// An upstream that answers each request, body or not, when its head is there.
async fn answering() -> SocketAddr {
    upstream(|mut stream| async move {
        while read_until(&mut stream, "\r\n\r\n").await.ends_with("\r\n\r\n") {
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
            if stream.write_all(answer).await.is_err() {
                return;
            }
        }
    })
    .await
}

/// An upstream that reads and never answers.
async fn silent() -> SocketAddr {
    upstream(|mut stream| async move {
        let _ = stream.read_to_end(&mut Vec::new()).await;
    })
    .await
}

pub(super) async fn connect_from(last: u8, gateway: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, last], 0).into()).unwrap();
    finish_in_time(socket.connect(gateway)).await.unwrap()
}

/// Whether one request of an honest client is served, on a connection of its own.
async fn is_served(gateway: SocketAddr) -> bool {
    let mut client = connect_from(2, gateway).await;
    client.write_all(GET_CLOSE.as_bytes()).await.unwrap();
    read_to_end(&mut client).await.ends_with("\r\n\r\nok")
}

async fn is_open(stream: &mut TcpStream) -> bool {
    tokio::time::timeout(Duration::from_millis(50), stream.read_u8()).await.is_err()
}

#[tokio::test]
async fn idle_connections_of_one_address_do_not_lock_another_out() {
    let gateway = gateway_for(FEW, answering().await, GatewayLimits::default()).await;
    let mut streams = Vec::new();
    for _ in 0..FEW.connections {
        let mut stream = ask(gateway.address, GET).await;
        assert!(read_until(&mut stream, "\r\n\r\nok").await.ends_with("ok"));
        streams.push(stream);
    }
    assert!(is_served(gateway.address).await);
    let mut open = 0;
    for stream in &mut streams {
        open += usize::from(is_open(stream).await);
    }
    assert_eq!(open, FEW.connections_per_peer, "the others made room");
    assert!(
        is_open(streams.last_mut().unwrap()).await,
        "the one that was used last is not idle long"
    );
}

#[tokio::test]
async fn one_address_that_keeps_opening_does_not_lock_another_out() {
    let gateway = gateway_for(FEW, answering().await, GatewayLimits::default()).await;
    let address = gateway.address;
    let flood = tokio::spawn(async move {
        let mut streams = Vec::new();
        for start in ["", "GET / HT", GET, DRIPS].iter().cycle() {
            // A connection that is closed at once may break while it is written to.
            if let Ok(mut stream) = TcpStream::connect(address).await {
                let _ = stream.write_all(start.as_bytes()).await;
                streams.push(stream);
            }
            if streams.len() > 40 {
                drop(streams.remove(0));
            }
        }
    });
    for _ in 0..20 {
        assert!(is_served(gateway.address).await);
    }
    flood.abort();
}

#[tokio::test]
async fn slow_heads_do_not_lock_another_address_out() {
    let gateway = gateway_for(FEW, answering().await, GatewayLimits::default()).await;
    let mut streams = Vec::new();
    for _ in 0..FEW.connections {
        streams.push(ask(gateway.address, "GET / HT").await);
    }
    assert!(is_served(gateway.address).await);
}

#[tokio::test]
async fn slow_bodies_hold_the_places_of_their_own_address_only() {
    let (saw, mut seen) = mpsc::unbounded_channel();
    let upstream = upstream(move |mut stream| {
        let saw = saw.clone();
        async move {
            if read_until(&mut stream, "\r\n\r\n").await.starts_with("POST") {
                saw.send(()).unwrap();
                let _ = stream.read_to_end(&mut Vec::new()).await;
            } else {
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
                let _ = stream.write_all(answer).await;
            }
        }
    })
    .await;
    let gateway = gateway_for(FEW, upstream, GatewayLimits::default()).await;
    let mut streams = Vec::new();
    for _ in 0..FEW.connections_per_peer {
        streams.push(ask(gateway.address, DRIPS).await);
        finish_in_time(seen.recv()).await.unwrap();
    }
    let mut fifth = TcpStream::connect(gateway.address).await.unwrap();
    assert_eq!(
        finish_in_time(fifth.read(&mut [0])).await.unwrap_or(0),
        0,
        "none of its own is idle"
    );
    assert!(is_served(gateway.address).await);
    for stream in &mut streams {
        assert!(is_open(stream).await, "a request that runs is not evicted");
    }
}

#[tokio::test]
async fn a_body_that_drips_for_ever_is_a_408() {
    let limits = GatewayLimits {
        request_body_pace: confide_http::BodyPace {
            pause: GENEROUS,
            grace: Duration::from_millis(200),
            bytes_per_s: 1000,
        },
        ..GatewayLimits::default()
    };
    let gateway = gateway(silent().await, limits).await;
    for framed in ["content-length: 1000000\r\n\r\n", "transfer-encoding: chunked\r\n\r\n"] {
        let request = format!("POST / HTTP/1.1\r\nhost: h\r\nconnection: close\r\n{framed}");
        let (mut answer, mut body) = ask(gateway.address, &request).await.into_split();
        let piece: &[u8] = if framed.starts_with('c') { b"x" } else { b"1\r\nx\r\n" };
        let dripping = tokio::spawn(async move {
            while body.write_all(piece).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        let mut seen = vec![0; 4096];
        let length = finish_in_time(answer.read(&mut seen)).await.unwrap();
        let got = String::from_utf8_lossy(&seen[..length]);
        assert!(got.starts_with("HTTP/1.1 408 ") && got.contains("too slowly"), "{got}");
        dripping.abort();
    }
}

#[tokio::test]
async fn a_running_answer_is_not_evicted_for_a_new_connection() {
    let (go_on, wait) = mpsc::unbounded_channel::<()>();
    let wait = Arc::new(tokio::sync::Mutex::new(wait));
    let upstream = upstream(move |mut stream| {
        let wait = wait.clone();
        async move {
            let head = read_until(&mut stream, "\r\n\r\n").await;
            stream.write_all(CHUNKED.as_bytes()).await.unwrap();
            if head.starts_with("GET /v1/stream") {
                wait.lock().await.recv().await;
            }
            stream.write_all(LAST_CHUNK.as_bytes()).await.unwrap();
        }
    })
    .await;
    let one = AdmissionLimits::for_one_peer(2);
    let gateway = gateway_for(one, upstream, GatewayLimits::default()).await;
    let request = "GET /v1/stream HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n";
    let mut stream = ask(gateway.address, request).await;
    read_until(&mut stream, "\r\n\r\n").await;
    for _ in 0..5 {
        let mut short = ask(gateway.address, GET).await;
        assert!(read_until(&mut short, LAST_CHUNK).await.ends_with(LAST_CHUNK));
    }
    go_on.send(()).unwrap();
    assert_eq!(read_to_end(&mut stream).await, LAST_CHUNK);
}
