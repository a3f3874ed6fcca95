//! Adapters that the worker itself holds or reaches.

use std::process::{Command, Stdio};

use confide_tests::{ANY_PORT, text};
use serde_json::json;

use crate::{
    NAMES, QUESTIONS, python, serve,
    served::{CONFIDE, Place, chat, post},
};

#[test]
fn an_adapter_in_the_worker_says_what_plain_lora_says() {
    let Some(python) = python() else { return };
    let place = Place::new("plain");
    let adapter = format!("banking={}", text(&place.adapter("banking")));
    let flags = ["--adapter-at", "worker", "--adapter-kind", "plain", "--adapter", &adapter];
    let serve = serve(python, &place.model(), &flags);
    assert_eq!(serve.ready["adapters"][0]["guarantee"], "none");
    let answer = chat(&serve.address(), "banking", QUESTIONS[0]);
    assert_eq!(answer.text, place.plainly(0));
    assert_eq!(answer.label["guarantee"], "none");
    assert!(serve.terminate().success());
}

#[test]
fn masked_adapters_in_the_worker_say_what_plain_lora_says() {
    let Some(python) = python() else { return };
    if !has_compiler() {
        return eprintln!("skipped: no c++: the kernels are compiled for the CPU");
    }
    let place = Place::new("masked");
    let adapter = format!("banking={}", text(&place.adapter("banking")));
    let blind = "adapter host is blind; adapter is not protected";
    for (kind, guarantee) in [("one-graph", "none"), ("ipc", blind)] {
        let flags = ["--adapter-at", "worker", "--adapter-kind", kind, "--adapter", &adapter];
        let serve = serve(python, &place.model(), &flags);
        assert_eq!(serve.ready["adapters"][0]["guarantee"], guarantee);
        let answer = chat(&serve.address(), NAMES[0], QUESTIONS[0]);
        assert_eq!(answer.text, place.plainly(0), "{kind}");
        let label = [&answer.label["guarantee"], &answer.label["encrypted"]];
        assert_eq!(label, [&json!(guarantee), &json!(true)]);
        assert!(serve.terminate().success());
    }
}

#[test]
fn the_worker_reaches_an_adapter_host_itself_and_its_loss_is_nobody_elses() {
    let Some(python) = python() else { return };
    if !has_compiler() {
        return eprintln!("skipped: no c++: the kernels are compiled for the CPU");
    }
    let place = Place::new("host");
    let listen = ["--listen", ANY_PORT, "--binding", "none", "--budget", "1000000"];
    let listen = [&listen[..], &["--dangerous-forget-budgets"]].concat();
    let travel = place.adapter("travel");
    let mut host = CONFIDE.start(&[&["adapter", "host", text(&travel)][..], &listen].concat());
    let adapters = [
        format!("banking={}", text(&place.adapter("banking"))),
        format!("travel={}", host.address()),
    ];
    let flags = ["--adapter-at", "worker", "--adapter", &adapters[0], "--adapter", &adapters[1]];
    let serve = serve(python, &place.model(), &flags);
    let address = serve.address();
    assert_eq!(serve.ready["adapters"][1]["guarantee"], host.ready["guarantee"]);
    let answer = chat(&address, NAMES[1], QUESTIONS[1]);
    assert_eq!(answer.text, place.plainly(1));
    assert_eq!(answer.label["guarantee"], host.ready["guarantee"]);
    host.kill();
    let body = json!({ "model": NAMES[1], "max_tokens": 4,
        "messages": [{ "role": "user", "content": QUESTIONS[1] }] });
    let (status, answer) = post(&address, "/v1/chat/completions", &body);
    assert_eq!(status, 502, "{answer}");
    assert_eq!(chat(&address, NAMES[0], QUESTIONS[0]).text, place.plainly(0));
    assert!(serve.terminate().success());
}

fn has_compiler() -> bool {
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".into());
    let mut command = Command::new(compiler);
    command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
