//! Adapters behind the real program: two of them at once, in folders and at hosts; a host that dies
//! in mid-answer; split mode with a client of its own.
#![cfg(feature = "native")]

#[allow(dead_code, reason = "what the tests of the worker need besides")]
mod served;

use std::{io::BufRead, thread};

use confide_tests::{ANY_PORT, Process, text};
use serde_json::{Value, json};
use served::{CONFIDE, Place, chat, fetch, post, stream_lines};

const QUESTIONS: [&str; 2] = ["What is a savings account?", "What should I pack?"];
const NAMES: [&str; 2] = ["banking", "travel"];

#[test]
fn two_folders_answer_side_by_side_as_plain_lora_does() {
    let place = Place::new("folders");
    let adapters: Vec<String> =
        NAMES.iter().map(|name| format!("{name}={}", text(&place.adapter(name)))).collect();
    let serve = serve(&place, &adapters, &[]);
    assert_eq!(serve.ready["adapters"][0]["guarantee"], "none");
    both_answer_as_plainly(&place, &serve, false);
    let models = fetch(&serve.address(), "/v1/models");
    let parents: Vec<&Value> =
        models["data"].as_array().unwrap().iter().map(|model| &model["parent"]).collect();
    assert_eq!(parents, [&Value::Null, &json!("model"), &json!("model")]);
    assert!(serve.terminate().success());
}

#[test]
fn requests_load_adapters_below_the_folders_that_were_given_and_nowhere_else() {
    let place = Place::new("runtime");
    let (allowed, banking) = (place.path("allowed"), place.adapter("banking"));
    std::fs::create_dir(&allowed).unwrap();
    let inside = allowed.join("travel");
    std::fs::rename(place.adapter("travel"), &inside).unwrap();
    std::os::unix::fs::symlink(&banking, allowed.join("way-out")).unwrap();
    let serve = serve(&place, &[], &["--enable-runtime-adapters", "--adapter-dir", text(&allowed)]);
    let load = |path: &str| {
        let body = json!({ "lora_name": "new", "lora_path": path });
        post(&serve.address(), "/v1/load_lora_adapter", &body)
    };
    let outside = [
        text(&banking).to_owned(),
        format!("{}/way-out", text(&allowed)),
        format!("{}/../banking", text(&allowed)),
        text(&allowed).to_owned(),
        "/etc".into(),
        "127.0.0.1:9".into(),
    ];
    for path in &outside {
        let (status, body) = load(path);
        assert_eq!(status, 403, "{path}: {body}");
        assert!(body.contains("adapter_path_refused"), "{body}");
    }
    let (status, body) = load(text(&inside));
    assert_eq!((status, &body[..]), (200, "Success: LoRA adapter 'new' added successfully."));
    assert_eq!(chat(&serve.address(), "new", QUESTIONS[1]).text, place.plainly(1));
    let unload = json!({ "lora_name": "new" });
    assert_eq!(post(&serve.address(), "/v1/unload_lora_adapter", &unload).0, 200);
    assert_eq!(post(&serve.address(), "/v1/unload_lora_adapter", &unload).0, 404);
}

#[test]
fn a_client_of_split_mode_says_what_the_server_would() {
    let place = Place::new("split");
    let adapter = format!("banking={}", text(&place.adapter("banking")));
    let serve = serve(&place, &[adapter], &[]);
    let url = format!("http://{}", serve.address());
    let model = place.model();
    let split = |more: &[&str]| {
        let fixed = ["split", "--server", &url, "--model", text(&model), "--max-tokens", "12"];
        CONFIDE.run(&[&fixed[..], more, &[QUESTIONS[0]]].concat())
    };
    for way in [&["--adapter", "banking"][..], &["--adapter", "banking", "--embeddings"]] {
        let ended = split(way);
        assert_eq!(ended.status, Some(0), "{}", ended.stderr);
        assert_eq!(ended.stdout.trim_end_matches('\n'), place.plainly(0), "{}", ended.stderr);
        assert!(ended.stderr.contains("guarantee: none"), "{}", ended.stderr);
    }
    // Noise is accounted for after every token, over all that was sent.
    let noisy = split(&["--json", "--dp-epsilon-per-token", "8"]);
    assert_eq!(noisy.status, Some(0), "{}", noisy.stderr);
    let lines: Vec<Value> =
        noisy.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (done, tokens) = lines.split_last().unwrap();
    let spent: Vec<f64> = tokens.iter().map(|line| line["epsilon"].as_f64().unwrap()).collect();
    assert!(spent.windows(2).all(|two| two[0] < two[1]), "{spent:?}");
    assert!(done["epsilon"].as_f64() >= spent.last().copied());
    assert!(done["guarantee"].as_str().unwrap().starts_with("differential privacy"));
    // What it costs: much at a small epsilon, nothing at one that hides nothing.
    let table = split(&["--dp-table", "1,1e9"]);
    assert_eq!(table.status, Some(0), "{}", table.stderr);
    let rows: Vec<Value> =
        table.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows[1]["top1_agreement"], 1.0, "{rows:?}");
    let error = |row: &Value| row["logits_relative_error_mean"].as_f64().unwrap();
    assert!(error(&rows[0]) > 10.0 * error(&rows[1]), "{rows:?}");
    let refused = split(&["--adapter", "nobody"]);
    assert_eq!(refused.status, Some(1), "{}", refused.stderr);
    let secure = CONFIDE.run(&["split", "--server", "https://x", "--model", text(&model), "hi"]);
    assert_eq!(secure.status, Some(2), "{}", secure.stderr);
}

#[test]
fn two_hosts_answer_side_by_side_as_plain_lora_does() {
    let place = Place::new("hosts");
    let hosts = NAMES.map(|name| host(&place, name));
    let serve = serve(&place, &adapter_arguments(&hosts), &[]);
    for adapter in serve.ready["adapters"].as_array().unwrap() {
        let guarantee = adapter["guarantee"].as_str().unwrap();
        assert!(guarantee.starts_with("adapter host is blind"), "{guarantee}");
    }
    both_answer_as_plainly(&place, &serve, true);
    assert!(serve.terminate().success());
    hosts.into_iter().for_each(|host| assert!(host.terminate().success()));
}

#[test]
fn a_request_beyond_the_budget_is_403_and_leaves_the_budget_untouched() {
    const BUDGET: u64 = 60;
    let place = Place::new("budget");
    let folder = place.adapter("banking");
    let state = place.path("state");
    let options = ["--listen", ANY_PORT, "--binding", "none", "--state", text(&state)];
    let budget = BUDGET.to_string();
    let options = [&options[..], &["--budget", &budget]].concat();
    let host = CONFIDE.start(&[&["adapter", "host", text(&folder)][..], &options].concat());
    let serve = serve(&place, &adapter_arguments(&[&host]), &[]);
    assert_eq!(serve.ready["adapters"][0]["guarantee"], host.ready["guarantee"]);
    let guarantee = host.ready["guarantee"].as_str().unwrap();
    assert_eq!(guarantee, "adapter host is blind; adapter can be learned");
    assert_eq!(serve.ready["adapters"][0]["base_model"], "not evaluated");
    let ask = |max_tokens: Value, stream: bool| {
        let body = json!({ "model": "banking", "max_tokens": max_tokens, "ignore_eos": true,
            "temperature": 0, "stream": stream,
            "messages": [{ "role": "user", "content": QUESTIONS[0] }] });
        post(&serve.address(), "/v1/chat/completions", &body)
    };
    // As SDKs read it: no retry on a 403, and its text says what helps.
    for stream in [false, true] {
        let (status, answer) = ask(json!(200), stream);
        assert_eq!(status, 403, "{answer}");
        assert!(
            answer.contains("\"code\":\"adapter_budget\"") && answer.contains("hint: "),
            "{answer}"
        );
    }
    let (status, answer) = ask(json!(4), false);
    assert_eq!(status, 200, "{answer}");
    let answer: Value = serde_json::from_str(&answer).unwrap();
    let prompt = answer["usage"]["prompt_tokens"].as_u64().unwrap();
    assert_eq!(answer["confide"]["budget_left"], BUDGET - (prompt + 3), "{answer}");
    assert_eq!(answer["confide"]["guarantee"], guarantee);
    assert_eq!(answer["confide"]["adapter_can_be_learned"], true);
    // Without a length the answer ends where the budget does.
    let (status, answer) = ask(Value::Null, false);
    assert_eq!(status, 200, "{answer}");
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
    assert_eq!(answer["confide"]["budget_left"], 0, "{answer}");
    assert_eq!(ask(json!(1), false).0, 403);
}

#[test]
fn an_adapter_of_another_base_is_refused_unless_it_is_asked_for() {
    let place = Place::new("base");
    let folder = place.adapter("banking");
    let config = folder.join("adapter_config.json");
    let trained = std::fs::read_to_string(&config).unwrap();
    let mut other: Value = serde_json::from_str(&trained).unwrap();
    other["base_model_name_or_path"] = "Qwen/Qwen2.5-7B".into();
    std::fs::write(&config, other.to_string()).unwrap();
    let (model, adapter) = (place.model(), format!("banking={}", text(&folder)));
    let arguments = ["serve", "--model", text(&model), "--listen", ANY_PORT, "--adapter", &adapter];
    let refused = CONFIDE.run(&arguments);
    assert_eq!(refused.status, Some(2), "{}", refused.stdout);
    for part in ["wanted model", "got Qwen/Qwen2.5-7B", "--dangerous-other-base"] {
        assert!(refused.stderr.contains(part), "{part}: {}", refused.stderr);
    }
    let taken = CONFIDE.start(&[&arguments[..], &["--dangerous-other-base"]].concat());
    assert_eq!(taken.ready["adapters"][0]["base_model"], "another model (dangerous)");
    drop(taken);
    std::fs::write(&config, trained).unwrap();
    let taken = CONFIDE.start(&arguments);
    assert_eq!(taken.ready["adapters"][0]["base_model"], "confirmed");
    let listed = fetch(&taken.address(), "/v1/models");
    assert_eq!(listed["data"][1]["base_model"], "confirmed", "{listed}");
}

#[test]
fn a_host_killed_in_mid_answer_is_an_error_or_a_labelled_answer_of_the_base_model() {
    let place = Place::new("killed");
    for (on_loss, wanted_end) in [("fail", None), ("base", Some("adapter_lost"))] {
        let mut killed = host(&place, "banking");
        let serve = serve(&place, &adapter_arguments(&[&killed]), &["--adapter-on-loss", on_loss]);
        let body = json!({ "model": "banking", "stream": true, "max_tokens": 1500,
            "ignore_eos": true, "temperature": 0,
            "messages": [{ "role": "user", "content": QUESTIONS[0] }] });
        let mut lines = stream_lines(&serve.address(), &body);
        // Some tokens of the adapter first.
        let mut before = String::new();
        while before.matches("\"content\"").count() < 5 {
            assert!(lines.read_line(&mut before).unwrap() > 0, "{before}");
        }
        killed.kill();
        let mut after = String::new();
        // A stream that breaks ends without its last chunk: an error here is no surprise.
        while matches!(lines.read_line(&mut after), Ok(1..)) {}
        match wanted_end {
            None => {
                assert!(after.contains("\"code\":\"adapter_lost\""), "{after}");
                assert!(!after.contains("[DONE]"), "{after}");
            }
            Some(reason) => {
                let labelled = after.find("\"adapter_lost\":{").expect("the loss is said");
                let named = after.find("\"model\":\"model\"").expect("the base model is named");
                assert!(labelled.abs_diff(named) < 1000, "in the same chunk: {after}");
                assert!(after.contains(&format!("\"finish_reason\":\"{reason}\"")), "{after}");
                assert!(after.contains("[DONE]"));
            }
        }
    }
}

fn serve(place: &Place, adapters: &[String], more: &[&str]) -> Process {
    let model = place.model();
    let mut arguments = vec!["serve", "--model", text(&model), "--listen", ANY_PORT];
    for adapter in adapters {
        arguments.extend(["--adapter", adapter]);
    }
    arguments.extend(more);
    CONFIDE.start(&arguments)
}

fn host(place: &Place, name: &str) -> Process {
    let folder = place.adapter(name);
    let listen = ["--listen", ANY_PORT, "--binding", "none", "--budget", "1000000"];
    let listen = [&listen[..], &["--dangerous-forget-budgets"]].concat();
    CONFIDE.start(&[&["adapter", "host", text(&folder)][..], &listen].concat())
}

fn adapter_arguments<R: std::borrow::Borrow<Process>>(hosts: &[R]) -> Vec<String> {
    let named = hosts.iter().zip(NAMES);
    named.map(|(host, name)| format!("{name}={}", host.borrow().address())).collect()
}

/// Streamed chats with both adapters at the same time, each several times.
fn both_answer_as_plainly(place: &Place, serve: &Process, encrypted: bool) {
    assert_ne!(place.plainly(0), place.plainly(1));
    let address = serve.address();
    thread::scope(|scope| {
        for number in 0..2 * NAMES.len() {
            let (index, address) = (number % NAMES.len(), &address);
            scope.spawn(move || {
                let answer = chat(address, NAMES[index], QUESTIONS[index]);
                assert_eq!(answer.text, place.plainly(index), "{}", NAMES[index]);
                assert_eq!(answer.label["adapter"], NAMES[index]);
                assert_eq!(answer.label["encrypted"], encrypted, "{}", answer.label);
            });
        }
    });
}
