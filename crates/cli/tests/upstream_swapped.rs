//! A model server swapped behind a running gateway, and routes that are not proxied, with the real
//! program: serve, gateway and connect each a process.
//!
//! All evidence here is simulated. The first model server is a stand-in that names a manifest; the
//! second is `confide serve` on the same port, whose simulated engine names none.

// Not every test file uses all of it.
#[allow(dead_code)]
use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use confide_tests::{ANY_PORT, Folder, Process, Program};

const CONFIDE: Program = Program(env!("CARGO_BIN_EXE_confide"));

/// Nothing here takes this long unless it hangs.
const GENEROUS: Duration = Duration::from_secs(60);

/// A model server with a manifest, which can be ended with all its connections.
struct StandIn {
    address: SocketAddr,
    open: Arc<Mutex<Vec<TcpStream>>>,
    accepting: JoinHandle<()>,
}

impl StandIn {
    fn start() -> Self {
        let listener = TcpListener::bind(ANY_PORT).unwrap();
        let address = listener.local_addr().unwrap();
        let open = Arc::new(Mutex::new(Vec::new()));
        let streams = open.clone();
        let accepting = thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                // One byte tells it to end.
                let mut first = [0];
                if stream.peek(&mut first).unwrap_or(0) == 1 && first == *b"!" {
                    return;
                }
                streams.lock().unwrap().push(stream.try_clone().unwrap());
                thread::spawn(move || answer_all(&mut stream));
            }
        });
        Self { address, open, accepting }
    }

    fn end(self) -> SocketAddr {
        let mut last = TcpStream::connect(self.address).unwrap();
        last.write_all(b"!").unwrap();
        self.accepting.join().unwrap();
        for stream in self.open.lock().unwrap().iter() {
            let _ = stream.shutdown(Shutdown::Both);
        }
        self.address
    }
}

fn answer_all(stream: &mut TcpStream) {
    let mut read = Vec::new();
    let mut byte = [0];
    while stream.read(&mut byte).is_ok_and(|count| count == 1) {
        read.push(byte[0]);
        if !read.ends_with(b"\r\n\r\n") {
            continue;
        }
        let body = match read.starts_with(b"GET /v1/models ") {
            true => format!(r#"{{"data":[{{"confide_manifest_sha256":"{}"}}]}}"#, "ab".repeat(32)),
            false => r#"{"from":"the first"}"#.to_owned(),
        };
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
        if stream.write_all((head + &body).as_bytes()).is_err() {
            return;
        }
        read.clear();
    }
}

struct Attested {
    folder: Folder,
    simulation: String,
}

impl Attested {
    fn new(name: &str) -> Self {
        let folder = Folder::new(name);
        let simulation = folder.argument("sim");
        let made = CONFIDE.run(&["attest", "--simulate", "tdx", "--out", &simulation]);
        assert_eq!(made.status, Some(0), "{}", made.stderr);
        Self { folder, simulation }
    }

    fn gateway(&self, upstream: SocketAddr, more: &[&str]) -> Process {
        let upstream = format!("http://{upstream}");
        let arguments = ["gateway", "--listen", ANY_PORT, "--upstream", &upstream];
        let evidence = ["--simulate", &self.simulation, "--binding", "key"];
        CONFIDE.start(&[&arguments[..], &evidence, more].concat())
    }

    /// The simulation's policy with the digest of this gateway pinned.
    fn pin(&self, gateway: &Process) -> String {
        let digest = gateway.ready["config_digest"].as_str().unwrap();
        let policy = String::from_utf8(self.folder.read("sim/policy.toml")).unwrap();
        let any = "config_digest = \"dangerous-any\"";
        assert!(policy.contains(any), "{policy}");
        let pinned = policy.replace(any, &format!("config_digest = \"{digest}\""));
        self.folder.write("pinned.toml", pinned)
    }
}

fn connect(gateway: &Process, policy: &str) -> Process {
    let url = format!("https://{}", gateway.address());
    CONFIDE.start(&["connect", &url, "--policy", policy, "--listen", ANY_PORT])
}

fn exchange(address: &str, method: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(GENEROUS)).unwrap();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\ncontent-length: 0\r\n\
         connection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer
}

/// Another engine on the port of the first.
fn serve_at(address: SocketAddr) -> Process {
    CONFIDE.start(&[
        "serve",
        "--engine",
        "sim",
        "--model-name",
        "tiny",
        "--listen",
        &address.to_string(),
    ])
}

#[test]
fn a_model_server_swapped_behind_a_running_gateway_is_not_accepted() {
    let site = Attested::new("swapped-asked");
    let first = StandIn::start();
    // No question at intervals: the request itself has to find out.
    let gateway = site.gateway(first.address, &["--upstream-check-s", "3600"]);
    assert_eq!(gateway.ready["model_manifest_source"], "claimed by the upstream");
    let pinned = site.pin(&gateway);
    let old = connect(&gateway, &pinned);
    let answer = exchange(&old.address(), "POST", "/v1/completions");
    assert!(answer.contains("the first"), "{answer}");
    let address = first.end();
    let other = serve_at(address);
    let answer = exchange(&old.address(), "POST", "/v1/completions");
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(answer.contains("upstream_changed"), "{answer}");
    assert_no_way_in(&gateway, &pinned, &old);
    // Started again it serves the other model, under another digest.
    drop(gateway);
    let again = site.gateway(address, &[]);
    let refused =
        CONFIDE.run(&["connect", &format!("https://{}", again.address()), "--policy", &pinned]);
    assert_eq!(refused.status, Some(1), "{}", refused.stderr);
    let new = connect(&again, &site.pin(&again));
    let answer = exchange(&new.address(), "GET", "/v1/models");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    drop(other);
}

#[test]
fn a_model_server_swapped_while_nobody_asks_is_noticed_within_the_interval() {
    let site = Attested::new("swapped-idle");
    let first = StandIn::start();
    let gateway = site.gateway(first.address, &["--upstream-check-s", "1"]);
    let pinned = site.pin(&gateway);
    let old = connect(&gateway, &pinned);
    let answer = exchange(&old.address(), "POST", "/v1/completions");
    assert!(answer.contains("the first"), "{answer}");
    let _other = serve_at(first.end());
    let until = Instant::now() + GENEROUS;
    while is_let_in(&gateway) {
        assert!(Instant::now() < until, "the other server is not noticed");
        thread::sleep(Duration::from_millis(100));
    }
    assert_no_way_in(&gateway, &pinned, &old);
}

/// Whether the gateway still begins handshakes: it waits for a client's first byte.
fn is_let_in(gateway: &Process) -> bool {
    let mut stream = TcpStream::connect(gateway.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let waits =
        |error: std::io::Error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
    stream.read(&mut [0]).is_err_and(waits)
}

fn assert_no_way_in(gateway: &Process, pinned: &str, old: &Process) {
    let url = format!("https://{}", gateway.address());
    let opened = CONFIDE.run(&["connect", &url, "--policy", pinned, "--listen", ANY_PORT]);
    assert_eq!(opened.status, Some(2), "{}{}", opened.stdout, opened.stderr);
    assert!(opened.stdout.is_empty(), "{}", opened.stdout);
    for (method, path) in [("POST", "/v1/completions"), ("GET", "/.well-known/confide")] {
        let answer = exchange(&old.address(), method, path);
        assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    }
}

#[test]
fn a_gateway_proxies_other_routes_by_name_only() {
    let site = Attested::new("swapped-routes");
    let serve = CONFIDE.start(&["serve", "--engine", "sim", "--listen", ANY_PORT]);
    let upstream: SocketAddr = serve.address().parse().unwrap();
    let (mut digests, health) = (Vec::new(), "/health");
    for (more, wanted, all) in [
        (&[][..], " 404 ", false),
        (&["--route", health], " 200 ", false),
        (&["--dangerous-all-routes"], " 200 ", true),
    ] {
        let gateway = site.gateway(upstream, more);
        assert_eq!(gateway.ready["dangerous_all_routes"], all);
        digests.push(gateway.ready["config_digest"].as_str().unwrap().to_owned());
        let connect = connect(&gateway, &site.pin(&gateway));
        let answer = exchange(&connect.address(), "GET", health);
        assert!(answer.lines().next().unwrap().contains(wanted), "{more:?}: {answer}");
    }
    digests.sort();
    digests.dedup();
    assert_eq!(digests.len(), 3, "routes are in the configuration digest");
}

#[test]
fn an_upstream_as_openai_clients_are_given_it_is_refused_with_the_right_one() {
    for (upstream, hint) in [
        ("http://127.0.0.1:9/v1", "hint: give --upstream http://127.0.0.1:9\n"),
        ("https://127.0.0.1:9/v1", "hint: give --upstream https://127.0.0.1:9\n"),
    ] {
        let arguments = ["gateway", "--listen", ANY_PORT, "--upstream", upstream];
        let refused = CONFIDE.run(&[&arguments[..], &["--binding", "none"]].concat());
        assert_eq!(refused.status, Some(2), "{}", refused.stderr);
        assert!(refused.stderr.contains(hint), "{}", refused.stderr);
    }
    let arguments = ["gateway", "--listen", ANY_PORT, "--upstream", "http://127.0.0.1:9"];
    let refused = CONFIDE.run(&[&arguments[..], &["--route", "v1/x"]].concat());
    assert!(refused.stderr.contains("hint: for instance --route "), "{}", refused.stderr);
}

#[test]
fn a_model_server_that_is_down_keeps_its_model_through_a_reload() {
    let attested = Attested::new("down");
    let stand_in = StandIn::start();
    let socket = attested.folder.argument("admin.sock");
    let file = attested.folder.write(
        "gateway.toml",
        format!(
            "[admin]\nsocket = \"{socket}\"\n[[listener]]\nkind = \"terminate\"\nlisten = \"{ANY_PORT}\"\n\
             simulate = \"{}\"\nupstream_wait_s = 0\n[[listener.upstream]]\nurl = \"http://{}\"\n",
            attested.simulation, stand_in.address
        ),
    );
    let gateway = CONFIDE.start(&["gateway", "--config", &file]);
    stand_in.end();
    let reload = ["--silent", "--max-time", "60", "--unix-socket", &socket, "--request", "POST"];
    let mut curl = std::process::Command::new("curl");
    let asked = curl.args(reload).arg("http://gateway/reload").output().expect("curl runs");
    let reloaded: serde_json::Value = serde_json::from_slice(&asked.stdout).unwrap();
    assert_eq!(reloaded["reloaded"], true, "{reloaded}");
    let [before, after] = [&gateway.ready, &reloaded].map(|line| &line["listeners"][0]);
    assert_eq!(after["model_manifest_sha256"], "ab".repeat(32), "{reloaded}");
    assert_eq!(after["config_digest"], before["config_digest"]);
    assert!(gateway.terminate().success());
}
