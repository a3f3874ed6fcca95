//! `confide gateway --answer-shape` and `confide gateway shape`, with the real program.

use confide_tests::{ANY_PORT, Folder, Program};
use serde_json::Value;

const CONFIDE: Program = Program(env!("CARGO_BIN_EXE_confide"));
const SHAPE: &str = "1024/10/8";

#[test]
fn a_shaped_chat_says_what_an_unshaped_one_says_and_its_shape_is_announced() {
    let folder = Folder::new("shape");
    let serve = CONFIDE.start(&["serve", "--engine", "sim", "--listen", ANY_PORT]);
    let file = format!(
        "[[listener]]\nkind = \"terminate\"\nlisten = \"{ANY_PORT}\"\nbinding = \"none\"\n\
         answer_shape = \"{SHAPE}\"\n[[listener.upstream]]\nurl = \"http://{}\"\n",
        serve.address()
    );
    let gateway = CONFIDE.start(&["gateway", "--config", &folder.write("shape.toml", file)]);
    let listener = &gateway.ready["listeners"][0];
    assert_eq!(listener["answer_shape"], SHAPE, "{}", gateway.ready);
    let shaped = format!("https://{}", listener["listen"].as_str().unwrap());
    let direct = format!("http://{}", serve.address());
    for is_streamed in [true, false] {
        let [wanted, got] = [&direct, &shaped].map(|url| chat(url, is_streamed));
        assert_eq!(text_of(&got), text_of(&wanted), "{got}");
        assert!(got.len() >= 8 * 1024 && got.len().is_multiple_of(8 * 1024), "{}", got.len());
    }
    let description = curl(&[&format!("{shaped}/.well-known/confide")]);
    let description: Value = serde_json::from_str(&description).unwrap();
    let wanted = serde_json::json!({ "interval_ms": 10, "record_bytes": 1024, "slots_step": 8 });
    assert_eq!(description["configuration"]["answer_shape"], wanted);
}

#[test]
fn the_price_of_a_shape_is_printed_with_and_before_a_gateway() {
    let price = CONFIDE.run(&["gateway", "shape", SHAPE]).stdout;
    assert!(price.contains("1024 bytes every 10 ms, slots in multiples of 8"), "{price}");
    assert!(price.contains("waits 5 ms on average and 10 ms at most"), "{price}");
    // A gateway that does not start, for lack of an attester.
    let arguments = ["gateway", "--listen", ANY_PORT, "--upstream", "http://127.0.0.1:9"];
    let refused = CONFIDE.run(&[&arguments[..], &["--answer-shape", SHAPE]].concat());
    assert!(refused.stderr.starts_with(&price), "{}", refused.stderr);
}

#[test]
fn a_shape_that_cannot_be_kept_is_refused() {
    let arguments = ["gateway", "--listen", ANY_PORT, "--upstream", "http://127.0.0.1:9"];
    for (more, wanted) in [
        (&["--answer-shape", "1/50/64"][..], "wanted 128 to 16000 bytes"),
        (&["--answer-shape", "1024"], "wanted BYTES/MS/SLOTS"),
        (
            &["--answer-shape", SHAPE, "--route", "WEBSOCKET /v1/realtime"],
            "route `/v1/realtime` allows WebSockets",
        ),
    ] {
        let refused = CONFIDE.run(&[&arguments[..], more].concat());
        assert_ne!(refused.status, Some(0));
        assert!(refused.stderr.contains(wanted), "{}", refused.stderr);
    }
}

fn chat(url: &str, is_streamed: bool) -> String {
    let body = serde_json::json!({
        "model": "sim", "stream": is_streamed, "max_tokens": 20, "seed": 1,
        "messages": [{ "role": "user", "content": "Hello" }],
    });
    let url = format!("{url}/v1/chat/completions");
    curl(&["-H", "content-type: application/json", "-d", &body.to_string(), &url])
}

fn curl(arguments: &[&str]) -> String {
    let common = ["--silent", "--show-error", "--insecure", "--max-time", "60"];
    let output = std::process::Command::new("curl").args(common).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The text of an answer, streamed or not.
fn text_of(answer: &str) -> String {
    let pieces = answer.lines().map(|line| line.strip_prefix("data: ").unwrap_or(line));
    let pieces = pieces.filter_map(|piece| serde_json::from_str::<Value>(piece).ok());
    let text = |piece: Value| {
        let choice = &piece["choices"][0];
        let text = choice["delta"]["content"].as_str().or(choice["message"]["content"].as_str());
        text.unwrap_or_default().to_owned()
    };
    pieces.map(text).collect()
}
