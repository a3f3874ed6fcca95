//! Limits on running requests, the queue before them, and request bodies in memory.

use super::{
    floods::connect_from,
    model_servers::{NamedServer, gateway_before, no_health_checks, post, wait_until},
    *,
};
use crate::ModelServer;

/// A server that runs one request at a time and answers when it is let go.
async fn bounded_server() -> (NamedServer, ModelServer) {
    let server = NamedServer::start_holding("ok").await;
    let configuration = ModelServer { requests_max: 1, ..server.configuration() };
    (server, configuration)
}

/// Sends the beginning of a request from 127.0.0.`last`.
async fn ask_from(last: u8, gateway: SocketAddr, request: &str) -> TcpStream {
    let mut stream = connect_from(last, gateway).await;
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

async fn exchange_from(last: u8, gateway: SocketAddr, request: &str) -> String {
    read_to_end(&mut ask_from(last, gateway, request).await).await
}

pub(super) fn waiting(gateway: &RunningGateway) -> usize {
    gateway.states.queues()[0].waiting
}

#[tokio::test]
async fn a_request_waits_for_a_busy_server_and_a_full_queue_refuses() {
    let (server, configuration) = bounded_server().await;
    let limits = GatewayLimits { queued_requests: 1, queue_wait: GENEROUS, ..no_health_checks() };
    let gateway = gateway_before(vec![configuration], limits).await;
    let mut first = ask(gateway.address, &post("", "1")).await;
    wait_until(|| server.bodies().len() == 1).await;
    let mut second = ask(gateway.address, &post("", "2")).await;
    wait_until(|| waiting(&gateway) == 1).await;
    let refused = exchange(gateway.address, &post("", "3")).await;
    assert!(refused.starts_with("HTTP/1.1 503 ") && refused.contains("queue_full"), "{refused}");
    assert!(refused.contains("retry-after: 1\r\n"), "{refused}");
    assert_eq!(server.bodies(), ["1"]);
    server.let_go(1);
    assert!(read_to_end(&mut first).await.ends_with("ok"));
    wait_until(|| server.bodies().len() == 2).await;
    assert_eq!((waiting(&gateway), gateway.states.servers()[0].running), (0, 1));
    server.let_go(1);
    assert!(read_to_end(&mut second).await.ends_with("ok"));
    assert_eq!(server.bodies(), ["1", "2"]);
    assert_eq!(gateway.states.servers()[0].running, 0);
}

#[tokio::test]
async fn an_address_that_fills_its_share_of_the_queue_locks_no_other_out() {
    let (server, configuration) = bounded_server().await;
    let limits = GatewayLimits {
        queued_requests: 4,
        queued_requests_per_peer: 2,
        queue_wait: GENEROUS,
        ..no_health_checks()
    };
    let gateway = gateway_before(vec![configuration], limits).await;
    let mut clients = Vec::new();
    for (number, last) in [1, 1, 1, 2].into_iter().enumerate() {
        let request = post("", &number.to_string());
        clients.push(ask_from(last, gateway.address, &request).await);
        wait_until(|| server.bodies().len() == 1 && waiting(&gateway) == number).await;
        if number == 2 {
            let refused = exchange_from(1, gateway.address, &post("", "refused")).await;
            assert!(
                refused.starts_with("HTTP/1.1 503 ") && refused.contains("queue_full"),
                "{refused}"
            );
            assert!(refused.contains("retry-after: 1\r\n"), "{refused}");
        }
    }
    server.let_go(1);
    wait_until(|| server.bodies().len() == 2).await;
    clients.push(ask_from(1, gateway.address, &post("", "again")).await);
    wait_until(|| waiting(&gateway) == 3).await;
    server.let_go(4);
    for client in &mut clients {
        assert!(read_to_end(client).await.ends_with("ok"));
    }
    assert_eq!(server.bodies(), ["0", "1", "2", "3", "again"]);
}

#[tokio::test]
async fn requests_are_admitted_in_their_order() {
    let (server, configuration) = bounded_server().await;
    let limits = GatewayLimits { queue_wait: GENEROUS, ..no_health_checks() };
    let gateway = gateway_before(vec![configuration], limits).await;
    let mut clients = Vec::new();
    for number in 0..6 {
        clients.push(ask(gateway.address, &post("", &number.to_string())).await);
        wait_until(|| server.bodies().len() == 1 && waiting(&gateway) == number).await;
    }
    server.let_go(6);
    for client in &mut clients {
        assert!(read_to_end(client).await.ends_with("ok"));
    }
    assert_eq!(server.bodies(), ["0", "1", "2", "3", "4", "5"]);
}

#[tokio::test]
async fn a_request_that_waits_for_too_long_is_refused() {
    let (server, configuration) = bounded_server().await;
    let limits = GatewayLimits { queue_wait: Duration::from_millis(50), ..no_health_checks() };
    let gateway = gateway_before(vec![configuration], limits).await;
    let _first = ask(gateway.address, &post("", "1")).await;
    wait_until(|| server.bodies().len() == 1).await;
    let refused = exchange(gateway.address, &post("", "2")).await;
    assert!(refused.starts_with("HTTP/1.1 503 ") && refused.contains("queue_timeout"), "{refused}");
    assert!(refused.contains("retry-after: 1\r\n"), "{refused}");
    assert_eq!((server.bodies().len(), waiting(&gateway)), (1, 0));
}

#[tokio::test]
async fn a_request_whose_client_leaves_leaves_the_queue() {
    let (server, configuration) = bounded_server().await;
    let limits = GatewayLimits { queued_requests: 2, queue_wait: GENEROUS, ..no_health_checks() };
    let gateway = gateway_before(vec![configuration], limits).await;
    let mut first = ask(gateway.address, &post("", "1")).await;
    wait_until(|| server.bodies().len() == 1).await;
    let leaving = ask(gateway.address, &post("", "2")).await;
    wait_until(|| waiting(&gateway) == 1).await;
    let mut third = ask(gateway.address, &post("", "3")).await;
    wait_until(|| waiting(&gateway) == 2).await;
    drop(leaving);
    wait_until(|| waiting(&gateway) == 1).await;
    server.let_go(2);
    assert!(read_to_end(&mut first).await.ends_with("ok"));
    assert!(read_to_end(&mut third).await.ends_with("ok"));
    assert_eq!(server.bodies(), ["1", "3"]);
}

#[tokio::test]
async fn a_client_that_leaves_in_the_middle_makes_space_for_the_next() {
    let (server, configuration) = bounded_server().await;
    let limits = GatewayLimits { queue_wait: GENEROUS, ..no_health_checks() };
    let gateway = gateway_before(vec![configuration], limits).await;
    let leaving = ask(gateway.address, &post("", "1")).await;
    wait_until(|| server.bodies().len() == 1).await;
    let mut second = ask(gateway.address, &post("", "2")).await;
    wait_until(|| waiting(&gateway) == 1).await;
    drop(leaving);
    wait_until(|| server.bodies().len() == 2).await;
    server.let_go(2);
    assert!(read_to_end(&mut second).await.ends_with("ok"));
}

#[tokio::test]
async fn the_servers_of_other_models_are_not_waited_for() {
    let (busy, configuration) = bounded_server().await;
    let free = NamedServer::start("free").await;
    let for_model = |model: &str, server: ModelServer| ModelServer {
        models: vec![model.into()],
        requests_max: 1,
        ..server
    };
    let servers = vec![for_model("a", configuration), for_model("b", free.configuration())];
    let limits = GatewayLimits { queue_wait: GENEROUS, ..no_health_checks() };
    let gateway = gateway_before(servers, limits).await;
    let mut clients = Vec::new();
    for _ in 0..2 {
        clients.push(ask(gateway.address, &post("", r#"{"model":"a"}"#)).await);
    }
    wait_until(|| busy.bodies().len() == 1 && waiting(&gateway) == 1).await;
    for _ in 0..3 {
        assert!(exchange(gateway.address, &post("", r#"{"model":"b"}"#)).await.ends_with("free"));
    }
    busy.let_go(2);
    for client in &mut clients {
        assert!(read_to_end(client).await.ends_with("ok"));
    }
}

#[tokio::test]
async fn a_slow_sender_occupies_no_server() {
    let (server, configuration) = bounded_server().await;
    let limits = GatewayLimits { buffered_body: Duration::from_millis(100), ..no_health_checks() };
    let gateway = gateway_before(vec![configuration], limits).await;
    let unfinished = "POST /v1/completions HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\
                      content-length: 9\r\n\r\nhalf";
    let mut slow = ask(gateway.address, unfinished).await;
    server.let_go(1);
    assert!(exchange(gateway.address, &post("", "1")).await.ends_with("ok"));
    let refused = read_until(&mut slow, "}}").await;
    assert!(
        refused.starts_with("HTTP/1.1 408 ") && refused.contains("request_timeout"),
        "{refused}"
    );
    assert_eq!(server.bodies(), ["1"]);
}

#[tokio::test]
async fn bodies_in_memory_keep_within_their_bound_and_return_it() {
    let server = NamedServer::start("ok").await;
    let listing = ModelServer { models: vec!["m".into()], ..server.configuration() };
    let limits = GatewayLimits { buffered_bytes: 100_000, ..no_health_checks() };
    let gateway = gateway_before(vec![listing], limits).await;
    let body = format!(r#"{{"model":"m","prompt":"{}"}}"#, "x".repeat(60_000));
    let request = post("", &body);
    // All but the last byte.
    let mut held = ask(gateway.address, &request[..request.len() - 1]).await;
    let refused = finish_in_time(async {
        loop {
            let got = exchange(gateway.address, &request).await;
            if !got.starts_with("HTTP/1.1 200 ") {
                return got;
            }
        }
    })
    .await;
    assert!(refused.starts_with("HTTP/1.1 503 ") && refused.contains("gateway_busy"), "{refused}");
    assert!(refused.contains("retry-after: 1\r\n"), "{refused}");
    held.write_all(b"}").await.unwrap();
    assert!(read_to_end(&mut held).await.ends_with("ok"));
    for _ in 0..8 {
        let got = exchange(gateway.address, &request).await;
        assert!(got.starts_with("HTTP/1.1 200 "), "{got}");
    }
    assert!(server.bodies().iter().all(|read| *read == body));
}

#[tokio::test]
async fn an_address_that_fills_its_share_of_the_memory_locks_no_other_out() {
    let server = NamedServer::start("ok").await;
    let listing = ModelServer { models: vec!["m".into()], ..server.configuration() };
    let limits = GatewayLimits {
        buffered_bytes: 250_000,
        buffered_bytes_per_peer: 100_000,
        ..no_health_checks()
    };
    let gateway = gateway_before(vec![listing], limits).await;
    let prompt = |bytes| format!(r#"{{"model":"m","prompt":"{}"}}"#, "x".repeat(bytes));
    let request = post("", &prompt(60_000));
    let mut held = ask_from(1, gateway.address, &request[..request.len() - 1]).await;
    let refused = finish_in_time(async {
        loop {
            let got = exchange_from(1, gateway.address, &request).await;
            if !got.starts_with("HTTP/1.1 200 ") {
                return got;
            }
        }
    })
    .await;
    assert!(refused.starts_with("HTTP/1.1 503 ") && refused.contains("gateway_busy"), "{refused}");
    for _ in 0..3 {
        let served = exchange_from(2, gateway.address, &request).await;
        assert!(served.starts_with("HTTP/1.1 200 "), "{served}");
    }
    held.write_all(b"}").await.unwrap();
    assert!(read_to_end(&mut held).await.ends_with("ok"));
    let served = exchange_from(1, gateway.address, &request).await;
    assert!(served.starts_with("HTTP/1.1 200 "), "{served}");
    let hopeless = exchange_from(1, gateway.address, &post("", &prompt(100_000))).await;
    assert!(hopeless.starts_with("HTTP/1.1 413 "), "{hopeless}");
}

#[tokio::test]
async fn a_body_that_is_read_whole_has_the_same_limit() {
    let (server, configuration) = bounded_server().await;
    let request_body_linger = Duration::from_millis(50);
    let limits = GatewayLimits { request_body_bytes: 8, request_body_linger, ..no_health_checks() };
    let gateway = gateway_before(vec![configuration], limits).await;
    let chunked = "POST /v1/completions HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\
                   transfer-encoding: chunked\r\n\r\n9\r\n123456789\r\n0\r\n\r\n";
    for request in [chunked, &post("", "123456789")] {
        let got = exchange(gateway.address, request).await;
        assert!(got.starts_with("HTTP/1.1 413 ") && got.contains("request_too_large"), "{got}");
    }
    assert!(server.bodies().is_empty());
}
