//! The server of HTTP/1.1 where a client or an upstream is slow, silent or strange.

use super::*;

/// More than the buffers of all sockets on the way hold.
const LONG: usize = 40 * 1024 * 1024;

#[tokio::test]
async fn a_request_waits_for_an_upstream_that_does_not_read() {
    let address = upstream(|stream| async move {
        let _unread = stream;
        std::future::pending::<()>().await;
    })
    .await;
    let gateway = gateway(address, GatewayLimits::default()).await;
    let mut client = TcpStream::connect(gateway.address).await.unwrap();
    let head = "POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n";
    client.write_all(head.as_bytes()).await.unwrap();
    let chunk = format!("4000\r\n{}\r\n", "x".repeat(0x4000));
    let sending = async {
        for _ in 0..LONG / chunk.len() {
            client.write_all(chunk.as_bytes()).await.unwrap();
        }
    };
    // It would end if the gateway took the bytes into its memory.
    let sent = tokio::time::timeout(Duration::from_secs(5), sending).await;
    assert!(sent.is_err(), "{LONG} bytes were taken");
}

#[tokio::test]
async fn an_answer_without_the_body_that_waits_for_100_ends_the_connection() {
    let (_socket, address) = closed_address();
    let upstream = Upstream::parse(&format!("http://{address}")).unwrap();
    let configuration = GatewayConfiguration::with_upstream(Binding::Key, upstream);
    let gateway = gateway_with(configuration, GatewayLimits::default()).await;
    let head =
        "POST /metrics HTTP/1.1\r\nhost: h\r\nexpect: 100-continue\r\ncontent-length: 5\r\n\r\n";
    for (body, closes) in [("", true), ("hello", false)] {
        let mut client = TcpStream::connect(gateway.address).await.unwrap();
        client.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
        let answer = read_until(&mut client, "\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
        assert_eq!(answer.contains("connection: close\r\n"), closes, "{answer}");
    }
}

#[tokio::test]
async fn a_rest_that_cannot_be_read_does_not_cut_the_answer() {
    let (address, go_on) = stepping_upstream(&[
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n",
        "3\r\nend\r\n0\r\n\r\n",
    ])
    .await;
    let gateway = gateway(address, GatewayLimits::default()).await;
    let mut client = TcpStream::connect(gateway.address).await.unwrap();
    let head = "POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n";
    client.write_all(head.as_bytes()).await.unwrap();
    read_until(&mut client, "2\r\nok\r\n").await;
    go_on.send(()).unwrap();
    assert_eq!(read_until(&mut client, "0\r\n\r\n").await, "3\r\nend\r\n0\r\n\r\n");
    client.write_all(b"no chunk").await.unwrap();
    assert_eq!(read_to_end(&mut client).await, "");
}

#[tokio::test]
async fn heads_that_cannot_be_read_are_answered_with_a_code() {
    let (_socket, address) = closed_address();
    let limits = GatewayLimits { head_bytes: 8192, ..GatewayLimits::default() };
    let gateway = gateway(address, limits).await;
    let long = format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(9000));
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "x: y\r\n".repeat(101));
    for (request, status, code) in [
        ("no HTTP\r\n\r\n", 400, "malformed_request"),
        ("GET / HTTP/1.1\r\ncontent-length: x\r\n\r\n", 400, "malformed_request"),
        (&long, 431, "head_too_large"),
        (&many, 431, "too_many_fields"),
    ] {
        let answer = exchange(gateway.address, request).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        assert!(answer.contains(&format!("\"code\":\"{code}\"")), "{answer}");
        assert!(answer.contains("connection: close\r\n"), "{answer}");
    }
}
