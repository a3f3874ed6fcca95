//! What is proxied and what is not (issue line 4), and requests that no proxy should take.

use super::*;

/// Starts an upstream that answers everything and reports each request line.
async fn telling_upstream() -> (SocketAddr, mpsc::UnboundedReceiver<String>) {
    let (saw, seen) = mpsc::unbounded_channel();
    let address = upstream(move |mut stream| {
        let saw = saw.clone();
        async move {
            loop {
                let head = read_until(&mut stream, "\r\n\r\n").await;
                let Some(line) = head.lines().next() else { return };
                let _ = saw.send(line.to_owned());
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
                let _ = stream.write_all(answer).await;
            }
        }
    })
    .await;
    (address, seen)
}

/// Starts a gateway with the default routes, and returns what its upstream receives.
async fn inference_gateway(more: &[&str]) -> (RunningGateway, mpsc::UnboundedReceiver<String>) {
    let (address, seen) = telling_upstream().await;
    let upstream = Upstream::parse(&format!("http://{address}")).unwrap();
    let mut configuration = GatewayConfiguration::with_upstream(Binding::Key, upstream);
    for text in more {
        configuration.add_route(Route::parse(text, DEFAULT_GROUP).unwrap());
    }
    configuration.check().unwrap();
    (gateway_with(configuration, GatewayLimits::default()).await, seen)
}

async fn status_of(gateway: &RunningGateway, method: &str, target: &str) -> String {
    let request = format!("{method} {target} HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n");
    let answer = exchange(gateway.address, &request).await;
    answer.get("HTTP/1.1 ".len()..).and_then(|rest| rest.get(..3)).unwrap_or_default().to_owned()
}

#[tokio::test]
async fn a_gateway_proxies_inference_and_nothing_else_of_its_upstream() {
    let (gateway, mut seen) = inference_gateway(&[]).await;
    for (method, target, wanted) in [
        ("POST", "/v1/chat/completions", "200"),
        ("POST", "/v1/completions?a=b", "200"),
        ("POST", "/v1/responses", "200"),
        ("GET", "/v1/responses/resp_1", "200"),
        ("POST", "/v1/messages", "200"),
        ("POST", "/v1/messages/count_tokens", "200"),
        ("POST", "/v1/embeddings", "200"),
        ("GET", "/v1/models", "200"),
        ("GET", "/v1/models/org/name", "200"),
        ("POST", "/v1/audio/transcriptions", "200"),
        ("POST", "/v1/images/generations", "200"),
        ("DELETE", "/v1/files/file-1", "200"),
        ("POST", "/v1/rerank", "200"),
        ("POST", "/rerank", "200"),
    ] {
        assert_eq!(status_of(&gateway, method, target).await, wanted, "{method} {target}");
        let line = seen.recv().await.unwrap();
        assert_eq!(line, format!("{method} {target} HTTP/1.1"));
    }
    for (method, target, wanted) in [
        ("GET", "/metrics", "404"),
        ("GET", "/health", "404"),
        ("POST", "/v1/load_lora_adapter", "404"),
        ("POST", "/v1/unload_lora_adapter", "404"),
        ("POST", "/sleep?level=2", "404"),
        ("POST", "/tokenize", "404"),
        ("GET", "/", "404"),
        ("GET", "//metrics", "404"),
        ("GET", "/v1/../metrics", "404"),
        ("GET", "/v1/models/../../metrics", "404"),
        ("GET", "/v1/%2e%2e/metrics", "404"),
        ("GET", "/v1/models/%2E./%2e%2e/metrics", "404"),
        ("GET", "/v1/models/..%2f..%2fmetrics", "400"),
        ("GET", "/v1/models/%252e%252e/x", "400"),
        ("GET", "/v1/models/..;/..;/metrics", "400"),
        ("GET", "/../metrics", "400"),
        ("DELETE", "/v1/models/tiny", "405"),
        ("PURGE", "/v1/models", "405"),
        ("GET", "/v1/chat/completions", "405"),
        ("GET", "/v1/chat/completions/", "404"),
        ("OPTIONS", "*", "400"),
    ] {
        assert_eq!(status_of(&gateway, method, target).await, wanted, "{method} {target}");
    }
    assert!(seen.try_recv().is_err(), "a refused request reached the upstream");
}

#[tokio::test]
async fn a_refusal_has_a_code_and_names_the_methods_that_are_allowed() {
    let (gateway, _seen) = inference_gateway(&[]).await;
    let get =
        |target: &str| format!("GET {target} HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n");
    let missing = exchange(gateway.address, &get("/metrics")).await;
    assert!(missing.contains("\"code\":\"route_not_allowed\""), "{missing}");
    let other = exchange(gateway.address, &get("/v1/embeddings")).await;
    assert!(other.contains("allow: POST\r\n"), "{other}");
}

#[tokio::test]
async fn the_path_that_is_matched_is_the_path_that_is_sent() {
    let (gateway, mut seen) = inference_gateway(&[]).await;
    for (target, wanted) in [
        ("/v1//models", "/v1/models"),
        ("/x/../v1/./models?q=%2e%2e/a", "/v1/models?q=%2e%2e/a"),
        ("/%76%31/models", "/v1/models"),
        ("http://elsewhere/v1/models", "/v1/models"),
        ("/v1/models/a%20b%c3%a9", "/v1/models/a%20b%C3%A9"),
    ] {
        assert_eq!(status_of(&gateway, "GET", target).await, "200", "{target}");
        assert_eq!(seen.recv().await.unwrap(), format!("GET {wanted} HTTP/1.1"));
    }
}

#[tokio::test]
async fn more_routes_are_proxied_by_name_only() {
    let (gateway, mut seen) = inference_gateway(&["/health", "DELETE /v1/x/*"]).await;
    for (method, target, wanted) in [
        ("GET", "/health", "200"),
        ("DELETE", "/v1/x/1", "200"),
        ("DELETE", "/health", "405"),
        ("DELETE", "/v1/x", "404"),
        ("GET", "/health/live", "404"),
    ] {
        assert_eq!(status_of(&gateway, method, target).await, wanted, "{method} {target}");
    }
    assert_eq!(seen.recv().await.unwrap(), "GET /health HTTP/1.1");
    assert_eq!(seen.recv().await.unwrap(), "DELETE /v1/x/1 HTTP/1.1");
    assert!(seen.try_recv().is_err());
}

#[tokio::test]
async fn a_request_has_one_host_and_a_target_with_a_path() {
    let (gateway, mut seen) = inference_gateway(&[]).await;
    for (start, hosts, wanted) in [
        ("GET /v1/models", "", " 400 "),
        ("GET /v1/models", "host: a\r\nhost: b\r\n", " 400 "),
        ("GET /v1/models", "host: a\r\nhost: a\r\n", " 400 "),
        ("GET /v1/models", "host: a@b\r\n", " 400 "),
        ("GET /v1/models", "host: a/b\r\n", " 400 "),
        ("GET 127.0.0.1:22", "host: h\r\n", " 400 "),
        ("GET ftp://h/v1/models", "host: h\r\n", " 400 "),
        ("CONNECT h:443", "host: h\r\n", " 405 "),
        ("TRACE /v1/models", "host: h\r\n", " 405 "),
        ("GET /v1/models", "host: [::1]:80\r\n", " 200 "),
    ] {
        let request = format!("{start} HTTP/1.1\r\n{hosts}connection: close\r\n\r\n");
        let got = exchange(gateway.address, &request).await;
        assert!(got.lines().next().is_some_and(|line| line.contains(wanted)), "{start}: {got}");
    }
    assert!(seen.recv().await.is_some());
    assert!(seen.try_recv().is_err(), "a refused request reached the upstream");
}

#[tokio::test]
async fn a_body_that_a_server_might_take_for_the_next_request_is_refused() {
    let hidden = "POST /v1/load_lora_adapter HTTP/1.1\r\nhost: h\r\ncontent-length: 0\r\n\r\n";
    let sized = format!("content-length: {}\r\n\r\n{hidden}", hidden.len());
    let chunked =
        format!("transfer-encoding: chunked\r\n\r\n{:x}\r\n{hidden}\r\n0\r\n\r\n", hidden.len());
    let (gateway, mut seen) = inference_gateway(&[]).await;
    for (method, target) in
        [("GET", "/v1/models"), ("HEAD", "/v1/models"), ("DELETE", "/v1/files/file-1")]
    {
        for body in [&sized, &chunked] {
            let head = format!("{method} {target} HTTP/1.1\r\nhost: h\r\nconnection: close\r\n");
            let answer = exchange(gateway.address, &(head + body)).await;
            assert!(answer.starts_with("HTTP/1.1 400 "), "{method} {body}: {answer}");
        }
        let empty = format!(
            "{method} {target} HTTP/1.1\r\nhost: h\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
        );
        assert!(exchange(gateway.address, &empty).await.starts_with("HTTP/1.1 200 "), "{method}");
        assert!(seen.recv().await.unwrap().starts_with(method));
    }
    assert!(seen.try_recv().is_err(), "nothing else has reached the upstream");
}
