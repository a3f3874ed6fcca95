//! One address that would hold a server for itself, before the real program: those of other addresses
//! are served at once.
//!
//! The holder is 127.0.0.2, the honest clients 127.0.0.1. All evidence here is simulated.

#[allow(dead_code, reason = "each test file uses its part")]
use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use confide_tests::{ANY_PORT, Folder, Process, Program};
use tokio::{net::TcpSocket, runtime::Builder};

const CONFIDE: Program = Program(env!("CARGO_BIN_EXE_confide"));

/// Nothing here takes this long unless it hangs.
const GENEROUS: Duration = Duration::from_secs(60);
/// Eight places, two for one address, one for newcomers.
const FEW: [&str; 2] = ["--connections", "8"];

fn connect_as_holder(address: &str) -> std::io::Result<TcpStream> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let stream = runtime.block_on(async {
        let socket = TcpSocket::new_v4()?;
        socket.bind("127.0.0.2:0".parse().unwrap())?;
        socket.connect(address.parse().unwrap()).await?.into_std()
    })?;
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(GENEROUS))?;
    Ok(stream)
}

/// Opens connections from the holder's address, and holds the last forty, until it is dropped.
struct Flood {
    over: Arc<AtomicBool>,
    running: Option<JoinHandle<()>>,
}

impl Flood {
    fn start(address: String) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let ended = over.clone();
        let running = thread::spawn(move || {
            let mut streams = Vec::new();
            for start in ["", "GET / HT", "\u{16}\u{3}\u{1}"].iter().cycle() {
                if ended.load(Ordering::Relaxed) {
                    return;
                }
                if let Ok(mut stream) = connect_as_holder(&address) {
                    let _ = stream.write_all(start.as_bytes());
                    streams.push(stream);
                }
                if streams.len() > 40 {
                    drop(streams.remove(0));
                }
            }
        });
        Self { over, running: Some(running) }
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(running) = self.running.take() {
            let _ = running.join();
        }
    }
}

fn simulate(folder: &Folder) -> String {
    let attester = folder.argument("attester");
    let made = CONFIDE.run(&["attest", "--simulate", "tdx", "--out", &attester]);
    assert_eq!(made.status, Some(0), "{}", made.stderr);
    attester
}

fn gateway(attester: &str, upstream: &str, more: &[&str]) -> Process {
    let upstream = format!("http://{upstream}");
    let arguments = ["gateway", "--listen", ANY_PORT, "--upstream", &upstream];
    let own = ["--upstream-wait-s", "0", "--simulate", attester];
    CONFIDE.start(&[&arguments[..], &own[..], more].concat())
}

fn connect(gateway: &Process, attester: &str, more: &[&str]) -> Process {
    let (url, policy) =
        (format!("https://{}", gateway.address()), format!("{attester}/policy.toml"));
    let digest = gateway.ready["config_digest"].as_str().unwrap();
    let pinned = CONFIDE.run(&["policy", "pin", &policy, "--digest", digest]);
    assert_eq!(pinned.status, Some(0), "{}", pinned.stderr);
    CONFIDE.start(&[&["connect", &url, "--policy", &policy][..], more].concat())
}

fn ask(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(GENEROUS)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

const CONFIGURATION: &str =
    "GET /.well-known/confide HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";

#[test]
fn a_gateway_and_a_tunnel_that_one_address_floods_serve_another_at_once() {
    let folder = Folder::new("connection-limits");
    let attester = simulate(&folder);
    let gateway = gateway(&attester, "127.0.0.1:9", &FEW);
    let allow = ["tunnel", "--listen", ANY_PORT, "--allow", &gateway.address()];
    let tunnel = CONFIDE.start(&[&allow[..], &FEW[..]].concat());
    let via = format!("ws://{}", tunnel.address());
    let floods = (Flood::start(gateway.address()), Flood::start(tunnel.address()));
    for more in [&[][..], &["--via", &via]] {
        let connect = connect(&gateway, &attester, more);
        for _ in 0..3 {
            let answer = ask(&connect.address(), CONFIGURATION);
            assert!(answer.starts_with("HTTP/1.1 200 "), "{more:?}: {answer}");
        }
    }
    drop(floods);
}

/// Whether the other end has closed; a connection that waits for its handshake has not.
fn is_closed(mut stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    !matches!(stream.read(&mut [0]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
}

#[test]
fn connections_of_a_listed_proxy_count_for_the_clients_that_it_announces() {
    let folder = Folder::new("proxy-protocol");
    let attester = simulate(&folder);
    let limits = ["--connections-per-address", "1", "--proxy-protocol-from", "127.0.0.2"];
    let gateway = gateway(&attester, "127.0.0.1:9", &limits);
    let announced = |client: &str| {
        let mut stream = connect_as_holder(&gateway.address()).unwrap();
        let header = format!("PROXY TCP4 {client} 192.0.2.9 5 443\r\n");
        stream.write_all(header.as_bytes()).unwrap();
        stream
    };
    let (first, second) = (announced("192.0.2.1"), announced("192.0.2.2"));
    let again = announced("192.0.2.1");
    // Headers are read side by side, so either may come first: one client keeps one place.
    while !is_closed(&first) && !is_closed(&again) {
        thread::sleep(Duration::from_millis(5));
    }
    assert!(!is_closed(&second), "the other client's place is its own");
    let mut bare = connect_as_holder(&gateway.address()).unwrap();
    bare.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert_eq!(bare.read(&mut [0]).unwrap_or(0), 0, "no header, no place");
    // An address that is not listed is never asked for one.
    let connect = connect(&gateway, &attester, &[]);
    assert!(ask(&connect.address(), CONFIGURATION).starts_with("HTTP/1.1 200 "));
}

#[test]
fn connect_tells_a_request_too_many_to_come_again() {
    let folder = Folder::new("connect-busy");
    let attester = simulate(&folder);
    // An upstream that takes connections and never answers.
    let silent = std::net::TcpListener::bind(ANY_PORT).unwrap();
    let gateway = gateway(&attester, &silent.local_addr().unwrap().to_string(), &[]);
    let connect = connect(&gateway, &attester, &["--requests", "1", "--requests-waiting", "0"]);
    let request = "GET /v1/files/x HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    let mut runs = TcpStream::connect(connect.address()).unwrap();
    runs.write_all(request.as_bytes()).unwrap();
    // The upstream shows that the first request runs; the gateway asks it for models, too.
    let (arrived, runs_now) = mpsc::channel();
    thread::spawn(move || {
        for mut stream in silent.incoming().flatten() {
            let arrived = arrived.clone();
            thread::spawn(move || {
                let mut head = [0; 13];
                if stream.read_exact(&mut head).is_ok() && &head == b"GET /v1/files" {
                    let _ = arrived.send(());
                }
                let _ = stream.read_to_end(&mut Vec::new());
            });
        }
    });
    runs_now.recv_timeout(GENEROUS).expect("the first request runs");
    let answer = ask(&connect.address(), request);
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("connect_busy"), "{answer}");
    assert!(answer.contains("retry-after: 1\r\n") && answer.contains("--requests"), "{answer}");
}

#[test]
fn limits_that_do_not_fit_together_are_refused_before_anything_listens() {
    let refused = CONFIDE.run(&[
        "tunnel",
        "--listen",
        ANY_PORT,
        "--allow",
        "127.0.0.1:9",
        "--connections-per-address",
        "4096",
    ]);
    assert_eq!(refused.status, Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("raise --connections as well"), "{}", refused.stderr);
}
