//! The routes of report 003, over real sockets.

#[path = "../../serve/tests/double/mod.rs"]
mod double;
mod plain_head;

use std::sync::Arc;

use confide_engine::AdapterLossPolicy;
use confide_report_003::{
    routes::{RouteOptions, SocketLimits, routes},
    split_mode::{LazyClientHead, frame},
};
use confide_serve::DrainOutcome;
use double::{Server, word};
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{Error as WsError, Message, client::IntoClientRequest},
};

type Client = WebSocketStream<TcpStream>;

const ADAPTERS: [(&str, &str); 2] = [("banking", "3/5"), ("plain", "2")];

async fn start() -> Server {
    start_with(&ADAPTERS, AdapterLossPolicy::Fail, SocketLimits::default()).await
}

async fn start_with(
    adapters: &[(&str, &str)],
    on_loss: AdapterLossPolicy,
    sockets: SocketLimits,
) -> Server {
    let head = Some(Arc::new(LazyClientHead::new(|| Ok(Arc::new(plain_head::PlainHead)))));
    let extra_routes = Some(routes(RouteOptions { head, sockets }));
    let change = |options: &mut confide_serve::ServeOptions| options.extra_routes = extra_routes;
    Server::start_with(adapters, on_loss, false, change).await
}

async fn connect(server: &Server, path: &str, origin: Option<&str>) -> Result<Client, WsError> {
    let stream = TcpStream::connect(server.address).await.expect("a connection");
    let mut request = format!("ws://x{path}").into_client_request().expect("a request");
    if let Some(origin) = origin {
        request.headers_mut().insert("origin", origin.parse().expect("an origin"));
    }
    client_async(request, stream).await.map(|(client, _)| client)
}

async fn open(server: &Server, path: &str) -> Client {
    connect(server, path, None).await.expect("a socket")
}

async fn ask(client: &mut Client, value: Value) {
    client.send(Message::text(value.to_string())).await.expect("it is taken");
}

async fn receive_json(client: &mut Client) -> Value {
    match client.next().await {
        Some(Ok(Message::Text(text))) => serde_json::from_str(&text).expect("JSON"),
        other => panic!("wanted text, got {other:?}"),
    }
}

#[tokio::test]
async fn base_and_adapted_stand_side_by_side() {
    let server = start().await;
    let ask = json!({ "query": "What is a savings account?", "max_tokens": 3 });
    let (status, answer) = server.post("/api/v1/chat/compare", &ask).await;
    assert_eq!(status, 200, "{answer}");
    let (base, adapted) = (&answer["base"], &answer["adapted"]);
    assert_eq!(
        (&base["response"], &base["encrypted"]),
        (&json!(word(0.0).repeat(3)), &json!(false))
    );
    assert_eq!(adapted["response"], word(3.0).repeat(3));
    assert_eq!((&adapted["tokens"], &adapted["he_operations"]), (&json!(3), &json!(15)));
    assert_eq!((&adapted["encrypted"], &adapted["rotations"]), (&json!(true), &json!(0)));
    assert_eq!(adapted["guarantee"], "adapter host is blind; adapter is not protected");
    assert!(adapted["time_ms"].is_number() && adapted["tok_s"].is_number());
    // An answer computed in the clear is not called encrypted.
    let ask = json!({ "query": "x", "expert_name": "plain" });
    let (_, answer) = server.post("/api/v1/chat/compare", &ask).await;
    assert_eq!(answer["adapted"]["encrypted"], false);
    assert_eq!(answer["adapted"]["guarantee"], "none");
    let (status, _) = server.post("/api/v1/chat/compare", &json!({ "query": "x", "k": 1 })).await;
    assert_eq!(status, 400);
}

#[tokio::test]
async fn a_chat_socket_says_input_tokens_and_end() {
    let server = start().await;
    let mut client = open(&server, "/api/v1/chat/stream").await;
    for _ in 0..2 {
        ask(
            &mut client,
            json!({ "query": "x", "max_tokens": 2, "top_k": 5, "temperature": 0.5,
            "session_id": "s", "use_he": true }),
        )
        .await;
        let info = receive_json(&mut client).await;
        assert_eq!(
            (&info["type"], &info["active_expert"]),
            (&json!("input_info"), &json!("banking"))
        );
        assert_eq!(info["ignored"], json!(["top_k"]));
        for index in 0..2 {
            let token = receive_json(&mut client).await;
            assert_eq!((&token["type"], &token["index"]), (&json!("token"), &json!(index)));
            assert_eq!(token["token"], word(3.0));
            let metrics = &token["metrics"];
            assert_eq!(
                (&metrics["he_operations"], &metrics["encrypt_ms"]),
                (&json!(5), &json!(1.0))
            );
            assert_eq!(metrics["decrypt_ms"], Value::Null, "a step that did not run");
            assert_eq!(token["aggregate"]["he_operations"], 5 * (index + 1));
        }
        let done = receive_json(&mut client).await;
        assert_eq!((&done["type"], &done["tokens"]), (&json!("done"), &json!(2)));
        assert_eq!((&done["encrypted"], &done["session_id"]), (&json!(true), &json!("s")));
    }
    ask(&mut client, json!({ "query": "x", "use_he": false })).await;
    assert_eq!(receive_json(&mut client).await["active_expert"], Value::Null);
    assert_eq!(receive_json(&mut client).await["token"], word(0.0));
}

#[tokio::test]
async fn a_chat_socket_says_what_is_wrong_and_goes_on() {
    let server =
        start_with(&[("flaky", "3/5/1")], AdapterLossPolicy::Fail, SocketLimits::default()).await;
    let mut client = open(&server, "/api/v1/chat/stream").await;
    client.send(Message::text("{")).await.expect("it is taken");
    assert_eq!(receive_json(&mut client).await["type"], "error");
    ask(&mut client, json!({ "query": "x", "session_id": "s" })).await;
    assert_eq!(receive_json(&mut client).await["type"], "input_info");
    assert_eq!(receive_json(&mut client).await["type"], "token");
    let error = receive_json(&mut client).await;
    assert_eq!(
        (&error["type"], &error["error"]["code"]),
        (&json!("error"), &json!("adapter_lost"))
    );
    assert_eq!(error["session_id"], "s");
    let server =
        start_with(&[("flaky", "3/5/1")], AdapterLossPolicy::Base, SocketLimits::default()).await;
    let mut client = open(&server, "/api/v1/chat/stream").await;
    ask(&mut client, json!({ "query": "x", "max_tokens": 2 })).await;
    let mut kinds = Vec::new();
    while kinds.last() != Some(&json!("done")) {
        let event = receive_json(&mut client).await;
        if event["type"] == "done" {
            assert_eq!(event["finish_reason"], "adapter_lost");
        }
        kinds.push(event["type"].clone());
    }
    assert_eq!(kinds, ["input_info", "token", "adapter_lost", "token", "done"]);
}

#[tokio::test]
async fn the_self_test_compares_with_plain_lora_and_claims_no_more() {
    let server = start().await;
    let test = server.fetch("/api/v1/split/selftest").await;
    assert_eq!((&test["tokens"], &test["he_match"]), (&json!(64), &json!(true)), "{test}");
    assert_eq!(test["encrypted"], true);
    assert_eq!(test["logits_relative_error_max"], 0.0);
    // The reference was loaded next to the two, was dropped again, and was never listed.
    assert_eq!(server.engine.loads.load(std::sync::atomic::Ordering::Relaxed), 3);
    assert_eq!(server.fetch("/v1/models").await["data"].as_array().map(Vec::len), Some(3));
    let (status, _) = server.post("/api/v1/adapters/plain/swap", &json!({})).await;
    assert_eq!(status, 200);
    let test = server.fetch("/api/v1/split/selftest").await;
    assert_eq!((&test["he_match"], &test["encrypted"]), (&Value::Null, &json!(false)));
}

#[tokio::test]
async fn a_split_socket_answers_in_text_and_in_binary() {
    let server = start().await;
    let mut client = open(&server, "/api/v1/split/stream").await;
    ask(&mut client, json!({ "type": "ping" })).await;
    assert_eq!(receive_json(&mut client).await, json!({ "type": "pong" }));
    ask(&mut client, json!({ "type": "config" })).await;
    let config = receive_json(&mut client).await;
    assert_eq!((&config["hidden_dim"], &config["active_adapter"]), (&json!(1), &json!("banking")));
    assert!(config["split_guarantee"].as_str().is_some_and(|text| text.starts_with("none")));
    ask(&mut client, json!({ "type": "tokenize", "text": "ab" })).await;
    assert_eq!(receive_json(&mut client).await["token_ids"], json!([97, 98]));
    ask(&mut client, json!({ "type": "forward", "token_ids": [1, 2, 3] })).await;
    let result = receive_json(&mut client).await;
    assert_eq!((&result["type"], &result["cached_seq_len"]), (&json!("result"), &json!(3)));
    assert_eq!((&result["encrypted"], &result["he_operations"]), (&json!(true), &json!(5)));
    let head = json!({ "type": "forward", "seq_len": 2, "hidden_dim": 1, "incremental": true });
    let message = frame::encode_binary_message(&head, &[0.5, 0.25]);
    client.send(Message::binary(message)).await.expect("it is taken");
    let Some(Ok(Message::Binary(bytes))) = client.next().await else { panic!("wanted bytes") };
    let (head, hidden) = frame::parse_binary_answer(&bytes).expect("an answer");
    assert_eq!((&head["cached_seq_len"], hidden), (&json!(5), vec![3.0]));
    // A broken message ends the session: nothing is continued on a guess.
    client.send(Message::binary(vec![1, 2])).await.expect("it is taken");
    assert_eq!(receive_json(&mut client).await["type"], "error");
    ask(&mut client, json!({ "type": "forward", "token_ids": [1], "incremental": true })).await;
    assert_eq!(receive_json(&mut client).await["type"], "error");
}

#[tokio::test]
async fn split_requests_are_answered_without_a_session() {
    let server = start().await;
    let ask = json!({ "token_ids": [1, 2], "expert_name": "plain" });
    let (status, result) = server.post("/api/v1/split/forward", &ask).await;
    assert_eq!((status, &result["encrypted"]), (200, &json!(false)), "{result}");
    let mut verify = ask.clone();
    verify["pre_activations_b64"] = result["pre_activations_b64"].clone();
    let (_, verified) = server.post("/api/v1/split/verify", &verify).await;
    assert_eq!(verified["match"], true, "{verified}");
    verify["expert_name"] = "banking".into();
    let (_, verified) = server.post("/api/v1/split/verify", &verify).await;
    assert_eq!(verified["match"], false, "{verified}");
    let (status, _) = server
        .post("/api/v1/split/forward", &json!({ "token_ids": [1], "incremental": true }))
        .await;
    assert_eq!(status, 400);
    let (_, ids) = server.post("/api/v1/split/tokenize", &json!({ "text": "a" })).await;
    assert_eq!(ids["token_ids"], json!([97]));
}

#[tokio::test]
async fn adapters_are_listed_swapped_and_counted() {
    let server = start().await;
    assert_eq!(server.fetch("/api/v1/adapters").await["active"], "banking");
    let (_, swapped) = server.post("/api/v1/adapters/plain/swap", &json!({})).await;
    assert_eq!(swapped, json!({ "active": "plain", "previous": "banking" }));
    let (status, _) = server.post("/api/v1/adapters/nobody/swap", &json!({})).await;
    assert_eq!(status, 404);
    server.post("/api/v1/chat/compare", &json!({ "query": "x", "expert_name": "banking" })).await;
    let metrics = server.fetch("/api/v1/metrics").await;
    assert_eq!((&metrics["answers"], &metrics["tokens"]), (&json!(2), &json!(128)));
    assert_eq!(metrics["adapted"]["he_operations"], 5 * 64);
}

#[tokio::test]
async fn pages_of_other_origins_open_no_socket() {
    let server = start().await;
    for path in ["/api/v1/chat/stream", "/api/v1/split/stream"] {
        let refused = connect(&server, path, Some("https://evil.example")).await;
        let Err(WsError::Http(answer)) = refused else { panic!("wanted a refusal") };
        assert_eq!(answer.status(), 403);
        let (status, _) = server.send("GET", path, "", "").await;
        assert_eq!(status, 426);
    }
    let page = "sec-fetch-site: cross-site\r\n";
    assert_eq!(server.send("GET", "/api/v1/split/selftest", page, "").await.0, 403);
}

#[tokio::test]
async fn sockets_are_counted_and_messages_bounded() {
    let few = SocketLimits { open: 1, message_bytes: 1000, ..SocketLimits::default() };
    let server = start_with(&ADAPTERS, AdapterLossPolicy::Fail, few).await;
    let mut only = open(&server, "/api/v1/split/stream").await;
    ask(&mut only, json!({ "type": "ping" })).await;
    assert_eq!(receive_json(&mut only).await["type"], "pong");
    let second = connect(&server, "/api/v1/split/stream", None).await;
    let Err(WsError::Http(answer)) = second else { panic!("wanted a refusal") };
    assert_eq!(answer.status(), 503);
    ask(&mut only, json!({ "type": "tokenize", "text": "x".repeat(1000) })).await;
    assert_eq!(receive_json(&mut only).await["type"], "error");
    assert!(matches!(only.next().await, None | Some(Ok(Message::Close(_)) | Err(_))));
}

#[tokio::test]
async fn an_idle_socket_ends_when_the_server_stops() {
    let server = start().await;
    let mut client = open(&server, "/api/v1/chat/stream").await;
    let (ended, heard) = tokio::join!(server.end(), client.next());
    assert!(matches!(heard, None | Some(Ok(Message::Close(_)))));
    assert_eq!(ended, DrainOutcome::Completely);
}
