//! What an upstream does wrong is told apart (issue line 10).

use super::*;

#[tokio::test]
async fn faults_of_an_upstream_have_names_of_their_own() {
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "x: 1\r\n".repeat(500));
    let huge = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "y".repeat(2_000_000));
    for (answer, code) in [
        ("this is no HTTP\r\n\r\n", "upstream_malformed"),
        ("HTTP/1.1 abc OK\r\n\r\n", "upstream_malformed"),
        ("HTTP/1.1 200 OK\r\nno colon\r\n\r\n", "upstream_malformed"),
        (huge.as_str(), "upstream_head_too_large"),
        (many.as_str(), "upstream_too_many_fields"),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nok",
            "upstream_bad_length",
        ),
        ("HTTP/1.1 200 OK\r\ncontent-length: two\r\n\r\nok", "upstream_bad_length"),
        ("HTTP/1.1 200 OK\r\ncontent-le", "upstream_broke_off"),
        ("", "upstream_broke_off"),
        ("HTTP/1.1 200 OK\r\n\r\nuntil the end", "upstream_unframed"),
    ] {
        let shown: String = answer.chars().take(60).collect();
        let answer: Arc<str> = answer.into();
        let upstream = upstream(move |mut stream| {
            let answer = answer.clone();
            async move {
                read_until(&mut stream, "\r\n\r\n").await;
                let _ = stream.write_all(answer.as_bytes()).await;
                // What the gateway sends is over: closing with nothing unread sends no reset.
                let _ = stream.shutdown().await;
                read_to_end(&mut stream).await;
            }
        })
        .await;
        let gateway = gateway(upstream, GatewayLimits::default()).await;
        let got = exchange(gateway.address, GET_CLOSE).await;
        assert!(got.starts_with("HTTP/1.1 502 "), "{shown}: {got}");
        assert!(got.contains(&format!("\"code\":\"{code}\"")), "{shown}: {got}");
    }
}
