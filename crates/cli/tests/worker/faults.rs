//! The worker's death, too little memory, a client that goes away: each has one end, and others go on.

use std::{
    fs,
    io::{BufRead, BufReader},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use confide_tests::{ANY_PORT, Process, text};
use serde_json::{Value, json};

use crate::{
    QUESTIONS, package, python, serve,
    served::{CONFIDE, Place, chat, post, stream_lines},
};

/// A worker imports torch first, on a machine that has other work.
const GENEROUS: Duration = Duration::from_secs(120);

/// The worker of a server: its child.
fn worker_of(serve: &Process) -> u32 {
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
    let mut lines = stream_lines(address, body);
    let mut line = String::new();
    // The first event has a role and no text.
    while content(&line).is_none_or(|text| text.is_empty()) {
        line.clear();
        assert!(lines.read_line(&mut line).unwrap() > 0, "it ends before a token");
    }
    lines
}

/// The text that is still to come, to the end of the stream.
fn read_rest(lines: BufReader<TcpStream>) -> String {
    let lines: Vec<String> = lines.lines().map_while(Result::ok).collect();
    assert!(lines.iter().any(|line| line.contains("[DONE]")), "{lines:?}");
    lines.iter().filter_map(|line| content(line)).collect()
}

fn content(line: &str) -> Option<String> {
    let event: Value = serde_json::from_str(line.strip_prefix("data: ")?).ok()?;
    event["choices"][0]["delta"]["content"].as_str().map(str::to_owned)
}

#[test]
fn a_worker_that_is_killed_breaks_what_runs_and_comes_back_with_its_adapters() {
    let Some(python) = python() else { return };
    let place = Place::new("death");
    let adapter = format!("banking={}", text(&place.adapter("banking")));
    let serve = serve(python, &place.model(), &["--adapter", &adapter]);
    let address = serve.address();
    let lines = begun(&address, &long("model"));
    kill(worker_of(&serve));
    let rest: Vec<String> = lines.lines().map_while(Result::ok).collect();
    let error = rest.iter().find(|line| line.contains("\"error\"")).expect("an error event");
    assert!(error.contains("engine_unavailable") && error.contains("signal 9"), "{error}");
    assert!(!rest.iter().any(|line| line.contains("[DONE]")), "{rest:?}");
    let body = json!({ "model": "banking", "max_tokens": 12, "temperature": 0,
        "messages": [{ "role": "user", "content": QUESTIONS[0] }] });
    let (status, answer) = post(&address, "/v1/chat/completions", &body);
    assert_eq!(status, 503, "{answer}");
    wait("the worker", || post(&address, "/v1/chat/completions", &body).0 == 200);
    assert_eq!(chat(&address, "banking", QUESTIONS[0]).text, place.plainly(0));
    assert!(serve.terminate().success());
}

#[test]
fn a_worker_that_does_not_come_back_is_said_until_one_does() {
    let Some(python) = python() else { return };
    let place = Place::new("broken");
    let (broken, script) = (place.path("broken"), place.path("python"));
    let lines = format!(
        "#!/bin/sh\n[ -e {} ] && {{ echo no device >&2; exit 1; }}\nexec {} \"$@\"\n",
        text(&broken),
        text(python)
    );
    fs::write(&script, lines).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o700)).unwrap();
    let serve = serve(&script, &place.model(), &[]);
    fs::write(&broken, "").unwrap();
    kill(worker_of(&serve));
    let body = json!({ "model": "model", "max_tokens": 4,
        "messages": [{ "role": "user", "content": QUESTIONS[0] }] });
    let ask = || post(&serve.address(), "/v1/chat/completions", &body);
    wait("why it does not come back", || {
        let (status, answer) = ask();
        status == 503 && answer.contains("its last output was: no device")
    });
    fs::remove_file(&broken).unwrap();
    wait("the worker", || ask().0 == 200);
    assert!(serve.terminate().success());
}

#[test]
fn a_worker_that_somebody_else_runs_is_used_and_left_alone() {
    let Some(python) = python() else { return };
    let place = Place::new("socket");
    let (socket, model) = (place.path("s"), place.model());
    let mut command = Command::new(python);
    command.args(["-m", "confide.worker", "--device", "cpu", "--dtype", "f32", "--socket"]);
    command.arg(&socket).arg("--model").arg(&model).stdin(Stdio::piped()).stdout(Stdio::piped());
    command.env("PYTHONPATH", package()).env("OMP_NUM_THREADS", "1");
    let mut worker = command.spawn().unwrap();
    let mut ready = String::new();
    BufReader::new(worker.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    assert!(ready.contains("true"), "{ready}");
    let texts = [0, 1].map(|_| {
        let serve = CONFIDE.start(&[
            "serve",
            "--engine",
            "worker",
            "--listen",
            ANY_PORT,
            "--model",
            text(&model),
            "--worker-socket",
            text(&socket),
        ]);
        let text = chat(&serve.address(), "model", QUESTIONS[0]).text;
        assert!(serve.terminate().success());
        text
    });
    assert_eq!(texts[0], texts[1]);
    assert!(worker.try_wait().unwrap().is_none(), "it ended with a server that did not start it");
    // The end of its standard input.
    drop(worker.stdin.take());
    assert!(worker.wait().unwrap().success());
}

fn kill(process: u32) {
    let process = process.to_string();
    assert!(Command::new("kill").args(["-KILL", &process]).status().unwrap().success());
}

fn wait(what: &str, mut has_come: impl FnMut() -> bool) {
    let until = Instant::now() + GENEROUS;
    while !has_come() {
        assert!(Instant::now() < until, "{what} does not come");
        thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_client_that_goes_away_gives_its_slot_back_and_no_other_stream_is_touched() {
    let Some(python) = python() else { return };
    let place = Place::new("gone");
    let serve = serve(python, &place.model(), &["--worker-slots", "2"]);
    assert_eq!(serve.ready["slots"], 2);
    let address = serve.address();
    let wanted = read_rest(begun(&address, &long("model")));
    let (gone, stays) = (begun(&address, &long("model")), begun(&address, &long("model")));
    drop(gone);
    // Both slots were taken.
    assert!(!chat(&address, "model", QUESTIONS[1]).text.is_empty());
    assert_eq!(read_rest(stays), wanted);
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
    let wanted = read_rest(begun(&address, &long("model")));
    let stays = begun(&address, &long("model"));
    let page = json!({ "model": "model", "max_tokens": 4,
        "messages": [{ "role": "user", "content": "What does protection cost? ".repeat(40) }] });
    for _ in 0..3 {
        let (status, answer) = post(&address, "/v1/chat/completions", &page);
        assert_eq!(status, 503, "{answer}");
        let error: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(error["error"]["code"], "out_of_memory", "{answer}");
        assert!(error["error"]["message"].as_str().unwrap().contains("wanted"), "{answer}");
    }
    assert_eq!(read_rest(stays), wanted);
    assert!(!chat(&address, "model", QUESTIONS[1]).text.is_empty());
    assert!(serve.terminate().success());
}
