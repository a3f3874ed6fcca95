//! The torch worker behind the real program, on the CPU: it says what the native engine says, and its
//! death, too little memory, a client that goes away and random weights are what they are said to be.
#![cfg(feature = "native")]

mod adapters;
mod faults;
#[path = "../served/mod.rs"]
#[allow(dead_code, reason = "what the tests of adapters need besides")]
mod served;

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
    thread,
};

use confide_tests::{ANY_PORT, Process, text};
use serde_json::json;
use served::{CONFIDE, Place, chat, fetch, post};

const QUESTIONS: [&str; 2] = ["What is a savings account?", "What should I pack?"];
const NAMES: [&str; 2] = ["banking", "travel"];

/// A Python that can run the worker; `None`, said once, where there is none.
fn python() -> Option<&'static Path> {
    static FOUND: OnceLock<Option<PathBuf>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let given = std::env::var_os("CONFIDE_TORCH_PYTHON").map(PathBuf::from);
        // As tests/worker.sh makes it.
        let made = Path::new(&package()).with_file_name(".venv-worker/bin/python");
        let found = given.into_iter().chain([made, PathBuf::from("python3")]).find(|python| {
            let imports = "import aiohttp, safetensors, torch, transformers";
            let mut command = Command::new(python);
            command.args(["-c", imports]).stdout(Stdio::null()).stderr(Stdio::null());
            command.status().is_ok_and(|status| status.success())
        });
        if found.is_none() {
            eprintln!("skipped: no Python with torch (tests/worker.sh --install fetches one)");
        }
        found
    });
    found.as_deref()
}

fn package() -> String {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    text(&checkout.join("python")).to_owned()
}

/// `confide serve --engine worker` on the CPU.
fn serve(python: &Path, model: &Path, more: &[&str]) -> Process {
    let fixed = ["serve", "--engine", "worker", "--listen", ANY_PORT, "--model", text(model)];
    let place = ["--worker-python", text(python), "--worker-device", "cpu"];
    let package = package();
    // One thread: the model is tiny.
    let environment = [("PYTHONPATH", &package[..]), ("OMP_NUM_THREADS", "1")];
    let mut command = CONFIDE.command(&[&fixed[..], &place, more].concat());
    Process::start(command.envs(environment))
}

/// A drawn answer of 24 tokens, by temperature 0.9 within a nucleus of 0.95.
fn draw(address: &str, seed: u64) -> String {
    let message = json!({ "role": "user", "content": QUESTIONS[0] });
    let body = json!({ "model": "model", "temperature": 0.9, "top_p": 0.95, "seed": seed,
        "max_tokens": 24, "messages": [message] });
    let (status, answer) = post(address, "/v1/chat/completions", &body);
    assert_eq!(status, 200, "{answer}");
    let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
    answer["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
}

#[test]
fn the_worker_says_what_native_says_alone_side_by_side_and_through_adapters() {
    let Some(python) = python() else { return };
    let place = Place::new("parity");
    let native = CONFIDE.start(&["serve", "--listen", ANY_PORT, "--model", text(&place.model())]);
    let wanted: Vec<String> =
        QUESTIONS.iter().map(|question| chat(&native.address(), "model", question).text).collect();
    let drawn = [1, 2, 3].map(|seed| draw(&native.address(), seed));
    assert_ne!(drawn[0], drawn[1], "two seeds");
    let adapters: Vec<String> =
        NAMES.iter().map(|name| format!("{name}={}", text(&place.adapter(name)))).collect();
    let flags = ["--adapter", &adapters[0], "--adapter", &adapters[1]];
    let serve = serve(python, &place.model(), &flags);
    let ready = &serve.ready;
    assert_eq!((&ready["engine"], &ready["device"]), (&json!("worker"), &json!("cpu")), "{ready}");
    assert_eq!(ready["simulated"], false);
    assert!(ready["weights"].as_str().unwrap().starts_with("safetensors"), "{ready}");
    let address = serve.address();
    let ask = |model: &str, question: usize| chat(&address, model, QUESTIONS[question]).text;
    assert_eq!([ask("model", 0), ask("model", 1)], wanted[..]);
    // A seed stands for the same text in both engines.
    assert_eq!([1, 2, 3].map(|seed| draw(&address, seed)), drawn);
    // Several streams at once, of the base and of both adapters.
    thread::scope(|scope| {
        let streams: Vec<_> = (0..6)
            .map(|index| {
                let (ask, question) = (&ask, index % 2);
                let model = if index < 2 { "model" } else { NAMES[question] };
                scope.spawn(move || (model, question, ask(model, question)))
            })
            .collect();
        for stream in streams {
            let (model, question, text) = stream.join().unwrap();
            let wanted = if model == "model" { &wanted[question] } else { place.plainly(question) };
            assert_eq!(text, wanted, "{model}");
        }
    });
    let label = chat(&address, NAMES[0], QUESTIONS[0]).label;
    assert_eq!((&label["guarantee"], &label["adapter"]), (&json!("none"), &json!(NAMES[0])));
    let models = fetch(&address, "/v1/models");
    assert_eq!(models["data"][1]["parent"], "model");
    assert_eq!(models["data"][0]["confide_weights"], ready["weights"]);
    assert!(serve.terminate().success());
}

#[test]
fn random_weights_are_said_to_be_random() {
    let Some(python) = python() else { return };
    let place = Place::new("random");
    let dir = place.path("shape");
    let made = CONFIDE.run(&["model", "make", "--shape", "tiny", "--weights", "none", text(&dir)]);
    assert_eq!(made.status, Some(0), "{}", made.stderr);
    let serve = serve(python, &dir, &["--random-weights", "7"]);
    assert_eq!(serve.ready["weights"], "random from seed 7");
    let models = fetch(&serve.address(), "/v1/models");
    assert_eq!(models["data"][0]["confide_weights"], "random from seed 7");
    let answer = chat(&serve.address(), "shape", QUESTIONS[0]);
    assert!(answer.label.is_null(), "{:?}", answer.label);
    assert!(serve.terminate().success());
}

#[test]
fn what_a_worker_cannot_be_started_for_is_said_with_what_to_do() {
    let place = Place::new("refusals");
    let model = place.model();
    let engine = ["serve", "--engine", "worker", "--listen", ANY_PORT, "--model", text(&model)];
    let refused = |more: &[&str]| {
        let ended = CONFIDE.run(&[&engine[..], more].concat());
        assert_eq!(ended.status, Some(2), "{more:?}: {}", ended.stderr);
        ended.stderr
    };
    let nowhere = refused(&["--worker-python", "/nowhere/python"]);
    assert!(nowhere.contains("/nowhere/python") && nowhere.contains("confide[gpu]"), "{nowhere}");
    let silent = refused(&["--worker-python", "/bin/true"]);
    assert!(silent.contains("status 0") && silent.contains("had no output"), "{silent}");
    let socket = refused(&["--worker-socket", text(&place.path("no-socket"))]);
    assert!(socket.contains("cannot connect"), "{socket}");
    for odd in [
        &["--worker-socket", "x", "--worker-python", "y"][..],
        &["--worker-slots", "0"],
        &["--ttft-ms", "5"],
        &["--adapter-kind", "plain"],
        &["--adapter-at", "worker", "--adapter-on-loss", "base"],
    ] {
        refused(&[odd, &["--worker-device", "cpu"]].concat());
    }
    let native = ["serve", "--listen", ANY_PORT, "--model", text(&model)];
    for odd in
        [&["--worker-device", "cpu"][..], &["--worker-arg=--no-warm"], &["--adapter-at", "worker"]]
    {
        assert_eq!(CONFIDE.run(&[&native[..], odd].concat()).status, Some(2));
    }
}

#[test]
fn a_folder_without_weights_is_not_served_unless_random_ones_are_asked_for() {
    let Some(python) = python() else { return };
    let place = Place::new("weightless");
    let dir = place.path("shape");
    let made = CONFIDE.run(&["model", "make", "--shape", "tiny", "--weights", "none", text(&dir)]);
    assert_eq!(made.status, Some(0), "{}", made.stderr);
    let fixed = ["serve", "--engine", "worker", "--listen", ANY_PORT, "--model", text(&dir)];
    let more = ["--worker-python", text(python), "--worker-device", "cpu"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_confide"));
    command.args(fixed).args(more).env("PYTHONPATH", package()).stdin(Stdio::null());
    let ended = command.output().unwrap();
    let stderr = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("random"), "{stderr}");
}
