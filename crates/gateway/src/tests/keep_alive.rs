//! Kept connections to an upstream that closes them (issue line 8).

use super::*;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
const POST: &str = "POST /v1/completions HTTP/1.1\r\nhost: h\r\ncontent-length: 5\r\n\r\nhello";

/// Starts an upstream that keeps a connection for `idle` after each answer without announcing it.
/// Reports when it has accepted a connection and when it has closed one.
async fn impatient(
    idle: Duration,
) -> (SocketAddr, mpsc::UnboundedReceiver<()>, mpsc::UnboundedReceiver<()>) {
    let (open, opened) = mpsc::unbounded_channel();
    let (close, closed) = mpsc::unbounded_channel();
    let address = upstream(move |mut stream| {
        let (open, close) = (open.clone(), close.clone());
        async move {
            let _ = open.send(());
            loop {
                let read = tokio::time::timeout(idle, stream.readable()).await;
                if read.is_err() || !read_until(&mut stream, "hello").await.ends_with("hello") {
                    break;
                }
                stream.write_all(ANSWER).await.unwrap();
                if idle.is_zero() {
                    break;
                }
            }
            drop(stream);
            let _ = close.send(());
        }
    })
    .await;
    (address, opened, closed)
}

async fn post(client: &mut TcpStream) -> String {
    client.write_all(POST.as_bytes()).await.unwrap();
    let mut got = read_until(client, "\r\n\r\n").await;
    let length = if got.contains("200 OK") { "ok" } else { "}}" };
    got += &read_until(client, length).await;
    got
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundreds_of_posts_to_an_upstream_that_closes_after_each_answer_all_succeed() {
    // It first reads, then closes: an idle time of zero would not even let it read.
    let (address, mut closed) = {
        let (close, closed) = mpsc::unbounded_channel();
        let address = upstream(move |mut stream| {
            let close = close.clone();
            async move {
                read_until(&mut stream, "hello").await;
                let _ = stream.write_all(ANSWER).await;
                drop(stream);
                let _ = close.send(());
            }
        })
        .await;
        (address, closed)
    };
    let gateway = gateway(address, GatewayLimits::default()).await;
    let mut client = TcpStream::connect(gateway.address).await.unwrap();
    for number in 0..400 {
        let got = post(&mut client).await;
        assert!(got.starts_with("HTTP/1.1 200 "), "POST {number}: {got}");
        // Every other one comes when the close is sure to be in the kernel, and nowhere else yet.
        if number % 2 == 0 {
            finish_in_time(closed.recv()).await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn posts_to_an_upstream_that_keeps_connections_for_50_ms_all_succeed() {
    let (address, _opened, _closed) = impatient(Duration::from_millis(50)).await;
    let gateway = gateway(address, GatewayLimits::default()).await;
    let mut clients = Vec::new();
    for client in 0..8_u64 {
        let address = gateway.address;
        clients.push(tokio::spawn(async move {
            let mut stream = TcpStream::connect(address).await.unwrap();
            for number in 0..25 {
                let got = post(&mut stream).await;
                assert!(got.starts_with("HTTP/1.1 200 "), "POST {number}: {got}");
                // Around the very moment at which the upstream closes.
                tokio::time::sleep(Duration::from_millis(46 + client)).await;
            }
        }));
    }
    for client in clients {
        finish_in_time(client).await.unwrap();
    }
}

#[tokio::test]
async fn kept_connections_carry_posts_too_where_the_upstream_keeps_them() {
    let (address, mut opened, _closed) = impatient(Duration::from_secs(60)).await;
    let gateway = gateway(address, GatewayLimits::default()).await;
    let mut client = TcpStream::connect(gateway.address).await.unwrap();
    for _ in 0..200 {
        assert!(post(&mut client).await.starts_with("HTTP/1.1 200 "));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let mut dialled = 0;
    while opened.try_recv().is_ok() {
        dialled += 1;
    }
    assert!(dialled < 50, "200 requests took {dialled} connections");
}

#[tokio::test]
async fn a_get_that_met_a_closing_connection_is_repeated_once() {
    // The first connection dies on its second request, after it was read.
    let (open, mut opened) = mpsc::unbounded_channel();
    let address = upstream(move |mut stream| {
        let open = open.clone();
        async move {
            let _ = open.send(());
            read_until(&mut stream, "\r\n\r\n").await;
            stream.write_all(ANSWER).await.unwrap();
            read_until(&mut stream, "\r\n\r\n").await;
        }
    })
    .await;
    let gateway = gateway(address, GatewayLimits::default()).await;
    let mut client = TcpStream::connect(gateway.address).await.unwrap();
    for _ in 0..6 {
        client.write_all(GET.as_bytes()).await.unwrap();
        let got = read_until(&mut client, "\r\n\r\nok").await;
        assert!(got.starts_with("HTTP/1.1 200 "), "{got}");
    }
    let mut dialled = 0;
    while opened.try_recv().is_ok() {
        dialled += 1;
    }
    assert_eq!(dialled, 6);
}

#[tokio::test]
async fn a_post_that_may_have_been_read_is_not_repeated() {
    let (saw, mut seen) = mpsc::unbounded_channel();
    let address = upstream(move |mut stream| {
        let saw = saw.clone();
        async move {
            let mut served = 0;
            while read_until(&mut stream, "hello").await.ends_with("hello") {
                served += 1;
                let _ = saw.send(served);
                // It reads every second request of a connection and dies of it.
                if served == 2 {
                    return;
                }
                stream.write_all(ANSWER).await.unwrap();
            }
        }
    })
    .await;
    let gateway = gateway(address, GatewayLimits::default()).await;
    let mut client = TcpStream::connect(gateway.address).await.unwrap();
    let (mut posted, mut lost) = (0, 0);
    while lost == 0 {
        posted += 1;
        assert!(posted < 1000, "no kept connection is ever used");
        let got = post(&mut client).await;
        lost += usize::from(got.starts_with("HTTP/1.1 502 ") && got.contains("broke_off"));
        assert!(lost == 1 || got.starts_with("HTTP/1.1 200 "), "{got}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let mut read = 0;
    while seen.try_recv().is_ok() {
        read += 1;
    }
    assert_eq!(read, posted, "a request was read twice");
}

#[tokio::test]
async fn what_an_upstream_sends_unasked_is_nobodys_answer() {
    let (extra, mut sent) = mpsc::unbounded_channel();
    let address = upstream(move |mut stream| {
        let extra = extra.clone();
        async move {
            read_until(&mut stream, "\r\n\r\n").await;
            stream.write_all(ANSWER).await.unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
            let other = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nother";
            let _ = stream.write_all(other).await;
            let _ = extra.send(());
            read_until(&mut stream, "\r\n\r\n").await;
        }
    })
    .await;
    let gateway = gateway(address, GatewayLimits::default()).await;
    for _ in 0..3 {
        let got = exchange(gateway.address, GET_CLOSE).await;
        assert!(got.ends_with("\r\n\r\nok"), "{got}");
        finish_in_time(sent.recv()).await.unwrap();
    }
}

#[tokio::test]
async fn an_unused_connection_is_closed_before_its_upstream_would() {
    let (address, _opened, mut closed) = impatient(Duration::from_secs(60)).await;
    let limits =
        GatewayLimits { upstream_idle: Duration::from_millis(100), ..GatewayLimits::default() };
    let gateway = gateway(address, limits).await;
    let mut client = TcpStream::connect(gateway.address).await.unwrap();
    assert!(post(&mut client).await.starts_with("HTTP/1.1 200 "));
    finish_in_time(closed.recv()).await.unwrap();
}
