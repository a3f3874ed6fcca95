//! Adapters by model name: answers and their labels, loading and unloading, what is lost.

mod double;

use confide_engine::AdapterLossPolicy;
use double::{Server, word};
use serde_json::{Value, json};

async fn start(adapters: &[(&str, &str)], on_loss: AdapterLossPolicy, runtime: bool) -> Server {
    Server::start_with(adapters, on_loss, runtime, |_| {}).await
}

fn chat(model: &str, extra: Value) -> Value {
    let mut body =
        json!({ "model": model, "messages": [{ "role": "user", "content": "How are you?" }] });
    if let (Value::Object(body), Value::Object(extra)) = (&mut body, extra) {
        body.extend(extra);
    }
    body
}

const CHAT: &str = "/v1/chat/completions";

#[tokio::test]
async fn the_model_field_chooses_the_adapter_and_the_answer_says_what_ran() {
    let adapters = [("travel", "3/5"), ("plain", "2")];
    let server = start(&adapters, AdapterLossPolicy::Fail, false).await;
    let (status, travel) = server.post(CHAT, &chat("travel", json!({}))).await;
    assert_eq!(status, 200, "{travel}");
    assert_eq!(travel["choices"][0]["message"]["content"], word(3.0).repeat(4));
    assert_eq!(travel["confide"]["adapter"], "travel");
    assert_eq!(travel["confide"]["encrypted"], true);
    assert_eq!(travel["confide"]["he_operations"], 20);
    assert_eq!(travel["confide"]["budget_left"], 96);
    assert_eq!(travel["confide"]["adapter_lost"], Value::Null);
    let (_, plain) = server.post(CHAT, &chat("plain", json!({}))).await;
    assert_eq!(plain["confide"]["encrypted"], false);
    assert_eq!(plain["confide"]["guarantee"], "none");
    let (_, base) = server.post(CHAT, &chat("base", json!({}))).await;
    assert_eq!(base["choices"][0]["message"]["content"], word(0.0).repeat(4));
    assert!(base.get("confide").is_none());
    assert_eq!(server.end().await, confide_serve::DrainOutcome::Completely);
}

#[tokio::test]
async fn a_stream_carries_the_same_label_at_its_end() {
    let server = start(&[("travel", "3/5")], AdapterLossPolicy::Fail, false).await;
    let ask =
        chat("travel", json!({ "stream": true, "stream_options": { "include_usage": true } }));
    let (status, body) = server.send("POST", CHAT, "", &ask.to_string()).await;
    assert_eq!(status, 200);
    let labelled: Vec<&str> = body.lines().filter(|line| line.contains("\"confide\"")).collect();
    assert_eq!(labelled.len(), 2, "the finish chunk and the usage chunk: {body}");
    assert!(labelled.iter().all(|line| line.contains("\"he_operations\":20")));
    assert!(body.contains("\"finish_reason\":\"length\""));
}

#[tokio::test]
async fn models_are_listed_with_parent_root_and_guarantee() {
    let server = start(&[("travel", "3/5")], AdapterLossPolicy::Fail, false).await;
    let list = server.fetch("/v1/models").await;
    let data = list["data"].as_array().expect("a list");
    assert_eq!(data.len(), 2);
    assert_eq!((&data[0]["id"], &data[0]["parent"]), (&json!("base"), &Value::Null));
    assert_eq!((&data[1]["id"], &data[1]["parent"]), (&json!("travel"), &json!("base")));
    assert_eq!(data[1]["root"], "3/5");
    assert_eq!(data[1]["guarantee"], "adapter host is blind; adapter is not protected");
    assert_eq!(data[1]["base_model"], "confirmed");
    assert_eq!(server.fetch("/v1/models/travel").await, data[1]);
}

#[tokio::test]
async fn adapters_are_loaded_and_unloaded_as_vllm_does() {
    let server = start(&[], AdapterLossPolicy::Fail, true).await;
    let load = json!({ "lora_name": "new", "lora_path": "4" });
    let (status, body) = server.post("/v1/load_lora_adapter", &load).await;
    assert_eq!((status, body), (200, json!("Success: LoRA adapter 'new' added successfully.")));
    let (status, answer) = server.post(CHAT, &chat("new", json!({}))).await;
    assert_eq!((status, &answer["confide"]["adapter"]), (200, &json!("new")));
    let (status, twice) = server.post("/v1/load_lora_adapter", &load).await;
    assert_eq!(status, 400, "{twice}");
    let unload = json!({ "lora_name": "new" });
    let (status, body) = server.post("/v1/unload_lora_adapter", &unload).await;
    assert_eq!((status, body), (200, json!("Success: LoRA adapter 'new' removed successfully.")));
    let (status, _) = server.post("/v1/unload_lora_adapter", &unload).await;
    assert_eq!(status, 404);
    let (status, _) = server.post(CHAT, &chat("new", json!({}))).await;
    assert_eq!(status, 404);
    for (body, wanted) in [
        (json!({ "lora_name": "a" }), 400),
        (json!({ "lora_name": "a#b", "lora_path": "1" }), 400),
        (json!({ "lora_name": "", "lora_path": "1" }), 400),
        (json!({ "lora_name": "a", "lora_path": "word" }), 400),
        (json!({ "lora_name": "a", "lora_path": "9" }), 403),
        (json!({ "lora_name": "a", "lora_path": "1", "load_inplace": true }), 400),
        (json!({ "lora_name": "a".repeat(200), "lora_path": "1" }), 400),
    ] {
        let (status, answer) = server.post("/v1/load_lora_adapter", &body).await;
        assert_eq!(status, wanted, "{body}: {answer}");
    }
}

#[tokio::test]
async fn nothing_is_loaded_at_run_time_unless_that_was_enabled() {
    let server = start(&[("travel", "3/5")], AdapterLossPolicy::Fail, false).await;
    let before = server.engine.loads.load(std::sync::atomic::Ordering::Relaxed);
    let load = json!({ "lora_name": "new", "lora_path": "4" });
    let (status, body) = server.post("/v1/load_lora_adapter", &load).await;
    assert_eq!((status, &body["error"]["code"]), (403, &json!("runtime_adapters_off")));
    let (status, _) =
        server.post("/v1/unload_lora_adapter", &json!({ "lora_name": "travel" })).await;
    assert_eq!(status, 403);
    assert_eq!(server.engine.loads.load(std::sync::atomic::Ordering::Relaxed), before);
}

#[tokio::test]
async fn an_adapter_that_is_lost_is_an_error_where_the_policy_says_so() {
    let server = start(&[("flaky", "3/5/2")], AdapterLossPolicy::Fail, false).await;
    let (status, whole) = server.post(CHAT, &chat("flaky", json!({}))).await;
    assert_eq!((status, &whole["error"]["code"]), (502, &json!("adapter_lost")), "{whole}");
    let ask = chat("flaky", json!({ "stream": true })).to_string();
    let (status, body) = server.send("POST", CHAT, "", &ask).await;
    assert_eq!(status, 200);
    assert!(body.contains("\"error\"") && body.contains("adapter_lost"), "{body}");
    assert!(!body.contains("[DONE]") && !body.contains(&word(0.0)), "{body}");
    // A host that was never there is a status, not a stream.
    let server = start(&[("gone", "3/5/0")], AdapterLossPolicy::Base, false).await;
    let ask = chat("gone", json!({ "stream": true })).to_string();
    assert_eq!(server.send("POST", CHAT, "", &ask).await.0, 502);
}

#[tokio::test]
async fn a_budget_that_is_used_up_is_403_with_a_hint_and_nothing_to_retry() {
    let spent = format!("3/5/{}", double::BUDGET_USED_UP);
    let server = start(&[("spent", &spent)], AdapterLossPolicy::Fail, false).await;
    for stream in [false, true] {
        let ask = chat("spent", json!({ "stream": stream }));
        let (status, body) = server.post(CHAT, &ask).await;
        let error = &body["error"];
        assert_eq!((status, &error["code"]), (403, &json!("adapter_budget")), "{body}");
        assert_eq!(error["type"], "invalid_request_error");
        assert!(error["message"].as_str().is_some_and(|text| text.contains("hint: ")), "{body}");
    }
}

#[tokio::test]
async fn an_answer_of_the_base_model_in_an_adapters_place_is_labelled() {
    let server = start(&[("flaky", "3/5/2")], AdapterLossPolicy::Base, false).await;
    let (status, whole) = server.post(CHAT, &chat("flaky", json!({}))).await;
    assert_eq!(status, 200);
    let content = word(3.0).repeat(2) + &word(0.0).repeat(2);
    assert_eq!(whole["choices"][0]["message"]["content"], content);
    assert_eq!(whole["choices"][0]["finish_reason"], "adapter_lost");
    assert_eq!(whole["model"], "base");
    assert!(whole["confide"]["adapter_lost"]["reason"].is_string());
    let ask = chat("flaky", json!({ "stream": true })).to_string();
    let (_, body) = server.send("POST", CHAT, "", &ask).await;
    let at = |what: &str| body.find(what).unwrap_or_else(|| panic!("{what} in {body}"));
    assert!(at("\"content\":\"+3 \"") < at("adapter_lost"));
    assert!(at("adapter_lost") < at("\"content\":\"base \""), "{body}");
    assert!(body.contains("\"finish_reason\":\"adapter_lost\""));
}

#[tokio::test]
async fn pages_of_other_origins_change_nothing() {
    let allow = |options: &mut confide_serve::ServeOptions| {
        options.origins = vec!["https://chat.example".parse().expect("an origin")];
    };
    let server =
        Server::start_with(&[("travel", "3/5")], AdapterLossPolicy::Fail, true, allow).await;
    let ask = chat("travel", json!({})).to_string();
    let load = json!({ "lora_name": "new", "lora_path": "4" }).to_string();
    for (path, body) in [(CHAT, &ask), ("/v1/load_lora_adapter", &load)] {
        for origin in ["https://evil.example", "null", "http://127.0.0.1:1"] {
            let head = format!("origin: {origin}\r\n");
            let (status, answer) = server.send("POST", path, &head, body).await;
            assert_eq!(status, 403, "{origin} {answer}");
            assert!(answer.contains("foreign_origin"));
        }
        let (status, answer) =
            server.send("POST", path, "origin: https://chat.example\r\n", body).await;
        assert_eq!(status, 200, "{answer}");
    }
}
