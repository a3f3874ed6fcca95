//! The torch worker behind the real program, on the CPU: it says what the native engine says, and its
//! death, too little memory, a client that goes away and random weights are what they are said to be.
#![cfg(feature = "native")]

#[allow(dead_code, reason = "what the tests of adapters need besides")]
mod served;

use std::{
    fs,
    io::{BufRead, BufReader},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use served::{ANY_PORT, Place, Running, chat, fetch, post, run, start, start_with, streamed, text};

const QUESTIONS: [&str; 2] = ["What is a savings account?", "What should I pack?"];
const NAMES: [&str; 2] = ["banking", "travel"];
/// A worker imports torch first, on a machine that has other work.
const GENEROUS: Duration = Duration::from_secs(120);

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
fn serve(python: &Path, model: &Path, more: &[&str]) -> Running {
    let fixed = ["serve", "--engine", "worker", "--listen", ANY_PORT, "--model", text(model)];
    let place = ["--worker-python", text(python), "--worker-device", "cpu"];
    let package = package();
    // One thread: the model is tiny.
    let environment = [("PYTHONPATH", &package[..]), ("OMP_NUM_THREADS", "1")];
    start_with(&[&fixed[..], &place, more].concat(), &environment)
}

/// The worker of a server: its child.
fn worker_of(serve: &Running) -> u32 {
    let parent = serve.id().to_string();
    let stats = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        // `pid (name) state parent …`; a name may hold anything.
        let (head, rest) =
            (stat.split(' ').next()?.to_owned(), stat.rsplit_once(')')?.1.to_owned());
        (rest.split_whitespace().nth(1)? == parent).then(|| head.parse().ok())?
    });
    let children: Vec<u32> = stats.collect();
    assert_eq!(children.len(), 1, "{children:?}");
    children[0]
}

fn long(model: &str) -> Value {
    json!({ "model": model, "stream": true, "temperature": 0, "max_tokens": 400, "ignore_eos": true,
        "messages": [{ "role": "user", "content": QUESTIONS[0] }] })
}

/// A stream of which some text has come.
fn begun(address: &str, body: &Value) -> BufReader<TcpStream> {
    let mut lines = streamed(address, body);
    let mut line = String::new();
    // The first event has a role and no text.
    while content(&line).is_none_or(|text| text.is_empty()) {
        line.clear();
        assert!(lines.read_line(&mut line).unwrap() > 0, "it ends before a token");
    }
    lines
}

/// The text that is still to come, to the end of the stream.
fn rest(lines: BufReader<TcpStream>) -> String {
    let lines: Vec<String> = lines.lines().map_while(Result::ok).collect();
    assert!(lines.iter().any(|line| line.contains("[DONE]")), "{lines:?}");
    lines.iter().filter_map(|line| content(line)).collect()
}

fn content(line: &str) -> Option<String> {
    let event: Value = serde_json::from_str(line.strip_prefix("data: ")?).ok()?;
    event["choices"][0]["delta"]["content"].as_str().map(str::to_owned)
}

#[test]
fn the_worker_says_what_native_says_alone_side_by_side_and_through_adapters() {
    let Some(python) = python() else { return };
    let place = Place::new("parity");
    let native = start(&["serve", "--listen", ANY_PORT, "--model", text(&place.model())]);
    let wanted: Vec<String> =
        QUESTIONS.iter().map(|question| chat(&native.address(), "model", question).text).collect();
    let adapters: Vec<String> =
        NAMES.iter().map(|name| format!("{name}={}", text(&place.adapter(name)))).collect();
    let flags = ["--adapter", &adapters[0], "--adapter", &adapters[1]];
    let serve = serve(python, &place.model(), &flags);
    let ready = &serve.ready;
    assert_eq!((&ready["engine"], &ready["device"]), (&json!("worker"), &json!("cpu")), "{ready}");
    assert_eq!(ready["simulated"], false);
    assert!(ready["weights"].as_str().unwrap().starts_with("safetensors"), "{ready}");
    let address = serve.address();
    let said = |model: &str, question: usize| chat(&address, model, QUESTIONS[question]).text;
    assert_eq!([said("model", 0), said("model", 1)], wanted[..]);
    // Several streams at once, of the base and of both adapters.
    thread::scope(|scope| {
        let streams: Vec<_> = (0..6)
            .map(|index| {
                let (said, question) = (&said, index % 2);
                let model = if index < 2 { "model" } else { NAMES[question] };
                scope.spawn(move || (model, question, said(model, question)))
            })
            .collect();
        for stream in streams {
            let (model, question, said) = stream.join().unwrap();
            let wanted = if model == "model" { &wanted[question] } else { place.plainly(question) };
            assert_eq!(said, wanted, "{model}");
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
    let travel = place.adapter("travel");
    let mut host = start(&[&["adapter", "host", text(&travel)][..], &listen].concat());
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
    let (status, said) = post(&address, "/v1/chat/completions", &body);
    assert_eq!(status, 502, "{said}");
    assert_eq!(chat(&address, NAMES[0], QUESTIONS[0]).text, place.plainly(0));
    assert!(serve.terminate().success());
}

fn has_compiler() -> bool {
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".into());
    let mut command = Command::new(compiler);
    command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[test]
fn a_worker_that_is_killed_breaks_what_runs_and_comes_back_with_its_adapters() {
    let Some(python) = python() else { return };
    let place = Place::new("death");
    let adapter = format!("banking={}", text(&place.adapter("banking")));
    let serve = serve(python, &place.model(), &["--adapter", &adapter]);
    let address = serve.address();
    let lines = begun(&address, &long("model"));
    let worker = worker_of(&serve).to_string();
    assert!(Command::new("kill").args(["-KILL", &worker]).status().unwrap().success());
    let rest: Vec<String> = lines.lines().map_while(Result::ok).collect();
    let error = rest.iter().find(|line| line.contains("\"error\"")).expect("an error event");
    assert!(error.contains("engine_unavailable") && error.contains("signal 9"), "{error}");
    assert!(!rest.iter().any(|line| line.contains("[DONE]")), "{rest:?}");
    let body = json!({ "model": "banking", "max_tokens": 12, "temperature": 0,
        "messages": [{ "role": "user", "content": QUESTIONS[0] }] });
    let (status, said) = post(&address, "/v1/chat/completions", &body);
    assert_eq!(status, 503, "{said}");
    let until = Instant::now() + GENEROUS;
    while post(&address, "/v1/chat/completions", &body).0 != 200 {
        assert!(Instant::now() < until, "it does not come back");
        thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(chat(&address, "banking", QUESTIONS[0]).text, place.plainly(0));
    assert!(serve.terminate().success());
}

#[test]
fn a_client_that_goes_away_gives_its_slot_back_and_no_other_stream_is_touched() {
    let Some(python) = python() else { return };
    let place = Place::new("gone");
    let serve = serve(python, &place.model(), &["--worker-slots", "2"]);
    assert_eq!(serve.ready["slots"], 2);
    let address = serve.address();
    let wanted = rest(begun(&address, &long("model")));
    let (gone, stays) = (begun(&address, &long("model")), begun(&address, &long("model")));
    drop(gone);
    // Both slots were taken.
    assert!(!chat(&address, "model", QUESTIONS[1]).text.is_empty());
    assert_eq!(rest(stays), wanted);
    let worker = worker_of(&serve);
    assert!(serve.terminate().success());
    assert!(!Path::new(&format!("/proc/{worker}")).exists(), "the worker outlives its server");
}

#[test]
fn a_prompt_for_which_there_is_too_little_memory_fails_alone() {
    let Some(python) = python() else { return };
    let place = Place::new("memory");
    // The worker's own bound of what reading a prompt may take: a question fits, a page does not.
    let serve = serve(python, &place.model(), &["--worker-arg=--prefill-bytes=1000000"]);
    let address = serve.address();
    let wanted = rest(begun(&address, &long("model")));
    let stays = begun(&address, &long("model"));
    let page = json!({ "model": "model", "max_tokens": 4,
        "messages": [{ "role": "user", "content": "What does protection cost? ".repeat(40) }] });
    for _ in 0..3 {
        let (status, said) = post(&address, "/v1/chat/completions", &page);
        assert_eq!(status, 503, "{said}");
        let error: Value = serde_json::from_str(&said).unwrap();
        assert_eq!(error["error"]["code"], "out_of_memory", "{said}");
        assert!(error["error"]["message"].as_str().unwrap().contains("wanted"), "{said}");
    }
    assert_eq!(rest(stays), wanted);
    assert!(!chat(&address, "model", QUESTIONS[1]).text.is_empty());
    assert!(serve.terminate().success());
}

#[test]
fn random_weights_are_said_to_be_random() {
    let Some(python) = python() else { return };
    let place = Place::new("random");
    let dir = place.path("shape");
    let made = run(&["model", "make", "--shape", "tiny", "--weights", "none", text(&dir)]);
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
        let ended = run(&[&engine[..], more].concat());
        assert_eq!(ended.status, Some(2), "{more:?}: {}", ended.stderr);
        ended.stderr
    };
    let nowhere = refused(&["--worker-python", "/nowhere/python"]);
    assert!(nowhere.contains("/nowhere/python") && nowhere.contains("confide[gpu]"), "{nowhere}");
    let silent = refused(&["--worker-python", "/bin/true"]);
    assert!(silent.contains("status 0") && silent.contains("said nothing"), "{silent}");
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
        assert_eq!(run(&[&native[..], odd].concat()).status, Some(2));
    }
}

#[test]
fn a_folder_without_weights_is_not_served_unless_random_ones_are_asked_for() {
    let Some(python) = python() else { return };
    let place = Place::new("weightless");
    let dir = place.path("shape");
    let made = run(&["model", "make", "--shape", "tiny", "--weights", "none", text(&dir)]);
    assert_eq!(made.status, Some(0), "{}", made.stderr);
    let fixed = ["serve", "--engine", "worker", "--listen", ANY_PORT, "--model", text(&dir)];
    let more = ["--worker-python", text(python), "--worker-device", "cpu"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_confide"));
    command.args(fixed).args(more).env("PYTHONPATH", package()).stdin(Stdio::null());
    let ended = command.output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(2), "{said}");
    assert!(said.contains("random"), "{said}");
}
