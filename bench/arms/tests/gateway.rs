//! The load client of the gateway before a server that counts: what it says it did, it did.

use std::{
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use serde_json::{Value, json};

#[derive(Clone, Default)]
struct RequestCounts {
    /// Connections that carried a request. One that was only opened may be accepted long after the
    /// arm's hello.
    connections: Arc<AtomicUsize>,
    requests: Arc<AtomicUsize>,
}

/// Answers each request with two bytes, until the other end closes or asked to.
fn server(counts: RequestCounts, answer: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let counts = counts.clone();
            thread::spawn(move || talk(stream, &counts, answer));
        }
    });
    address
}

fn talk(mut stream: TcpStream, counts: &RequestCounts, answer: &str) {
    let mut reader = BufReader::new(stream.try_clone().expect("a second handle"));
    let mut line = String::new();
    let (mut closes, mut asked) = (false, false);
    while reader.read_line(&mut line).is_ok_and(|read| read > 0) {
        closes |= line == "connection: close\r\n";
        if line == "\r\n" {
            counts.requests.fetch_add(1, Ordering::Relaxed);
            counts.connections.fetch_add(usize::from(!asked), Ordering::Relaxed);
            asked = true;
            if stream.write_all(answer.as_bytes()).is_err() || closes {
                return;
            }
        }
        line.clear();
    }
}

struct Arm {
    child: Child,
    input: ChildStdin,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
    hello: Value,
}

impl Arm {
    fn start(server: SocketAddr) -> Self {
        Self::start_with(server, &[])
    }

    fn start_with(server: SocketAddr, more: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_confide-arm"))
            .args(["gateway", "--mode", "http", "--server", &server.to_string()])
            .args(more)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the arm starts");
        let input = child.stdin.take().expect("its input");
        let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let hello = lines.next().expect("a line").expect("text");
        let hello = serde_json::from_str(&hello).expect("JSON");
        Self { child, input, lines, hello }
    }

    /// Samples, then what ended the run.
    fn run(&mut self, requests: u64, params: Value) -> (usize, Value) {
        let order = json!({ "type": "run", "id": 1, "requests": requests, "params": params });
        writeln!(self.input, "{order}").expect("the arm reads");
        let mut samples = 0;
        loop {
            let line = self.lines.next().expect("a line").expect("text");
            let line: Value = serde_json::from_str(&line).expect("JSON");
            match line["type"].as_str() {
                Some("sample") => samples += 1,
                _ => return (samples, line),
            }
        }
    }

    fn end(mut self) {
        writeln!(self.input, "{}", json!({ "type": "end" })).expect("the arm reads");
        drop(self.input);
        let mut rest = String::new();
        for line in self.lines {
            rest.push_str(&line.expect("text"));
        }
        assert_eq!(rest, "");
        assert!(self.child.wait().expect("it ends").success());
    }
}

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

#[test]
fn each_new_request_has_a_connection_of_its_own_and_kept_ones_share_theirs() {
    let counts = RequestCounts::default();
    let mut arm = Arm::start(server(counts.clone(), OK));
    assert_eq!(arm.hello["type"], "hello");
    let before = counts.connections.load(Ordering::Relaxed);
    let (samples, new) = arm.run(20, json!({ "connections": "new", "concurrency": 3 }));
    assert_eq!((samples, &new["answer"]["requests"]), (0, &20.into()), "{new}");
    assert_eq!(counts.connections.load(Ordering::Relaxed) - before, 20);
    assert_eq!(new["metrics"]["handshakes_per_request_ratio"], 0.0);
    assert!(new["metrics"]["rate_per_s"].as_f64().is_some_and(|rate| rate > 0.0), "{new}");
    assert!(new.get("floor").is_none(), "without TLS there is no floor: {new}");
    let before = counts.connections.load(Ordering::Relaxed);
    let (_, kept) = arm.run(20, json!({ "connections": "kept", "concurrency": 3 }));
    assert_eq!(kept["answer"], new["answer"], "the same answers whichever way they came");
    assert!(counts.connections.load(Ordering::Relaxed) - before <= 3, "{kept}");
    assert_eq!(counts.requests.load(Ordering::Relaxed), 40);
    arm.end();
}

#[test]
fn a_client_with_default_sockets_gets_the_same_answers_and_says_what_it_is() {
    let server = server(RequestCounts::default(), OK);
    let (mut usual, mut default) =
        (Arm::start(server), Arm::start_with(server, &["--default-sockets"]));
    let said = default.hello["arm"].as_str().expect("text");
    assert!(said.ends_with("default sockets"), "{said}");
    let params = json!({ "connections": "new", "rate_per_s": 500 });
    let (samples, done) = default.run(10, params.clone());
    let (_, wanted) = usual.run(10, params);
    assert_eq!((samples, &done["answer"]), (10, &wanted["answer"]), "{done}");
    usual.end();
    default.end();
}

#[test]
fn an_open_loop_has_a_sample_for_each_request_and_says_its_delay() {
    let mut arm = Arm::start(server(RequestCounts::default(), OK));
    let (samples, done) = arm.run(15, json!({ "connections": "new", "rate_per_s": 500 }));
    assert_eq!((samples, &done["answer"]["requests"]), (15, &15.into()), "{done}");
    assert!(done["metrics"]["dispatch_delay_ms"].is_number(), "{done}");
    assert!(done["metrics"].get("closed_mean_ms").is_none(), "{done}");
    arm.end();
}

#[test]
fn a_wrong_answer_or_an_unknown_param_is_no_figure() {
    let refused = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n";
    let mut arm = Arm::start(server(RequestCounts::default(), refused));
    for params in [json!({}), json!({ "colour": 1 }), json!({ "path": "no slash" })] {
        let (_, line) = arm.run(4, params);
        assert_eq!(line["type"], "error", "{line}");
    }
    arm.end();
}
