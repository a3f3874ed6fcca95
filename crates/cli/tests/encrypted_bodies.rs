//! Encrypted bodies from `confide connect` through a program that terminates TLS to an attested gateway,
//! with somebody in between who reads and changes what passes in clear there.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use confide_tests::{ANY_PORT, CommandOutput, Folder, Process, Program, text};
use sha2::{Digest, Sha256};

const CONFIDE: Program = Program(env!("CARGO_BIN_EXE_confide"));
/// Nothing here takes this long unless it hangs.
const GENEROUS: Duration = Duration::from_secs(60);
const SECRET: &str = "Tell me of the house.";
const REQUEST: &str = r#"{"model":"sim","stream":true,"max_tokens":5,"seed":7,"temperature":0,
    "messages":[{"role":"user","content":"Tell me of the house."}]}"#;

/// The path at which the program in between passes encapsulated requests on.
const RELAY_PATH: &str = "/.well-known/ohttp-gateway";

/// Fields of answers without text.
const EMPTY: &str = "content-length: 0\r\n";
const CHUNKED: &str = "transfer-encoding: chunked\r\n";

/// What the proxy does with the next answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trick {
    Honesty,
    /// The answer without its last frame.
    Cut,
    /// The answer with a bit changed in its first frame.
    Change,
    /// An answer of the proxy's own in its place.
    OwnAnswer,
    /// The answer without the field that says that it is encrypted.
    NoNonce,
    /// An answer of the proxy's own that claims to be encrypted and has no frame: its status, its
    /// further fields, and its body.
    NoFrame(&'static str, &'static str, &'static str),
    /// The request without the announcement of its end.
    NoAnnouncement,
    /// The request twice; the second answer is kept.
    Replay,
    /// A report with another key, whose digests do not fit.
    OtherKey,
    /// A report with another key and all digests of it, so that only the quote does not fit.
    OtherKeyset,
}

/// What somebody in between has seen and does.
#[derive(Clone)]
struct Proxy {
    address: SocketAddr,
    trick: Arc<Mutex<Trick>>,
    seen: Arc<Mutex<Vec<u8>>>,
    replayed: Arc<Mutex<Option<Vec<u8>>>>,
}

impl Proxy {
    fn start(upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Self {
            address: listener.local_addr().unwrap(),
            trick: Arc::new(Mutex::new(Trick::Honesty)),
            seen: Arc::default(),
            replayed: Arc::default(),
        };
        let serving = proxy.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let proxy = serving.clone();
                std::thread::spawn(move || proxy.serve(client, upstream));
            }
        });
        proxy
    }

    fn play(&self, trick: Trick) {
        *self.trick.lock().unwrap() = trick;
    }

    /// Passes one request and its answer on.
    fn serve(&self, mut client: TcpStream, upstream: SocketAddr) {
        client.set_read_timeout(Some(GENEROUS)).unwrap();
        let Some(mut request) = read_request(&mut client) else { return };
        self.seen.lock().unwrap().extend_from_slice(&request);
        if request.starts_with(b"GET /v1/models") {
            // The front would pin the model, and ask for it on each connection.
            let _ = client.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n");
            return;
        }
        let is_report = request.starts_with(b"GET /v1/aci/attestation");
        let trick = *self.trick.lock().unwrap();
        let is_played = match trick {
            Trick::OtherKey | Trick::OtherKeyset => is_report,
            // Nor does it touch the list of keys, for which nothing vouches.
            _ => !request.starts_with(b"GET "),
        };
        let trick = if is_played { trick } else { Trick::Honesty };
        if trick == Trick::NoAnnouncement {
            let text = String::from_utf8_lossy(&request[..find(&request, b"\r\n\r\n").unwrap()]);
            let line = text.lines().find(|line| line.starts_with("confide-body-end")).unwrap();
            request = replace(&request, format!("{line}\r\n").as_bytes(), b"");
        }
        let mut answer = forward(upstream, &request);
        self.seen.lock().unwrap().extend_from_slice(&answer);
        if trick == Trick::Replay {
            *self.replayed.lock().unwrap() = Some(forward(upstream, &request));
        }
        let end = find(&answer, b"\r\n\r\n").unwrap() + 4;
        // The gateway makes one report a second, and the client asks again.
        let has_report = answer.starts_with(b"HTTP/1.1 200 ");
        match trick {
            _ if is_report && !has_report => {}
            Trick::Cut => answer = cut_chunked_body(&answer, end),
            Trick::Change => {
                answer[end + 20] ^= 1;
            }
            Trick::OwnAnswer => {
                answer =
                    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\
                           content-length: 17\r\n\r\n{\"answer\":\"mine\"}"[..]
                        .into();
            }
            Trick::NoFrame(status, fields, body) => {
                let nonce = "ab".repeat(32);
                answer = format!(
                    "HTTP/1.1 {status}\r\nehbp-response-nonce: {nonce}\r\nconfide-body-end: final-frame\r\n\
                     connection: close\r\n{fields}\r\n{body}"
                )
                .into_bytes();
            }
            Trick::NoNonce => {
                answer = replace(&answer, b"ehbp-response-nonce", b"x-ehbp-response-nonce");
            }
            Trick::OtherKey => exchange_key(&mut answer[end..]),
            Trick::OtherKeyset => exchange_keyset(&request, &mut answer[end..]),
            _ => {}
        }
        let _ = client.write_all(&answer);
    }
}

/// Changes a digit of the key in a report.
fn exchange_key(report: &mut [u8]) {
    let key = find(report, b"\"public_key\":\"").unwrap() + 14;
    report[key] = if report[key] == b'0' { b'1' } else { b'0' };
}

/// The same, with the digests that follow from it.
fn exchange_keyset(request: &[u8], report: &mut [u8]) {
    let read = |report: &[u8]| serde_json::from_slice::<serde_json::Value>(report).unwrap();
    let before = read(report);
    exchange_key(report);
    let keyset = read(report)["attestation"]["workload_keyset"].to_string();
    let digest = format!("sha256:{}", hex::encode(Sha256::digest(keyset)));
    let nonce = find(request, b"nonce=").unwrap() + 6;
    let nonce = std::str::from_utf8(&request[nonce..][..64]).unwrap();
    let statement = format!(
        r#"{{"keyset_digest":"{digest}","nonce":"{nonce}","purpose":"aci.report_data.v1"}}"#
    );
    let old = before["attestation"]["report_data"].as_str().unwrap();
    let new = hex::encode(Sha256::digest(statement));
    let changed = replace(
        report,
        before["workload_keyset_digest"].as_str().unwrap().as_bytes(),
        digest.as_bytes(),
    );
    let member = |digest: &str| format!("\"report_data\":\"{digest}").into_bytes();
    report.copy_from_slice(&replace(&changed, &member(old), &member(&new)));
}

/// Sends a request on a connection of its own, and reads the answer to the end of the connection.
fn forward(upstream: SocketAddr, request: &[u8]) -> Vec<u8> {
    let line = find(request, b"\r\n").unwrap() + 2;
    let request = [&request[..line], b"connection: close\r\n", &request[line..]].concat();
    let mut stream = TcpStream::connect(upstream).unwrap();
    stream.set_read_timeout(Some(GENEROUS)).unwrap();
    stream.write_all(&request).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    answer
}

/// Reads a request with its body, which has a length or chunks.
fn read_request(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        if let Some(end) = find(&bytes, b"\r\n\r\n").map(|end| end + 4) {
            let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let is_whole = match length {
                Some(length) => bytes.len() - end >= length.trim().parse().unwrap(),
                None if head.contains("transfer-encoding: chunked") => {
                    bytes.ends_with(b"0\r\n\r\n")
                }
                None => true,
            };
            if is_whole {
                return Some(bytes);
            }
        }
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return None,
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
        }
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

/// Leaves away the last bytes of a body in chunks, which begins at `start`. What is left is one whole
/// chunk, so that nothing but the encryption shows the cut.
fn cut_chunked_body(answer: &[u8], start: usize) -> Vec<u8> {
    let (mut body, mut rest) = (Vec::new(), &answer[start..]);
    loop {
        let line = find(rest, b"\r\n").unwrap();
        let size = std::str::from_utf8(&rest[..line]).unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            break;
        }
        let data = line + 2;
        body.extend_from_slice(&rest[data..data + size]);
        rest = &rest[data + size + 2..];
    }
    // In the final frame.
    body.truncate(body.len() - 5);
    let size = format!("{:x}\r\n", body.len());
    [&answer[..start], size.as_bytes(), &body, b"\r\n0\r\n\r\n"].concat()
}

fn replace(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let at = find(bytes, from).unwrap();
    [&bytes[..at], to, &bytes[at + from.len()..]].concat()
}

fn run_well(arguments: &[&str]) {
    let done = CONFIDE.run(arguments);
    assert_eq!(done.status, Some(0), "{arguments:?}: {}", done.stderr);
}

/// An attested gateway, and in front of it a program that terminates TLS. What passes between the two
/// is in clear for [`Proxy`].
struct Site {
    _folder: Folder,
    policy: PathBuf,
    roots: PathBuf,
    url: String,
    proxy: Proxy,
    _processes: Vec<Process>,
}

impl Site {
    fn start(name: &str) -> Self {
        let folder = Folder::new(name);
        let attester = PathBuf::from(folder.argument("attester"));
        run_well(&["attest", "--simulate", "tdx", "--out", text(&attester)]);
        let serve = CONFIDE.start(&["serve", "--engine", "sim", "--listen", ANY_PORT]);
        let upstream = format!("http://{}", serve.address());
        let evidence = ["--simulate", text(&attester), "--receipts", "--encrypted-bodies"];
        let common = ["gateway", "--listen", ANY_PORT, "--upstream"];
        let gateway = CONFIDE.start(&[&common[..], &[&upstream], &evidence].concat());
        let policy = attester.join("policy.toml");
        let digest = gateway.ready["config_digest"].as_str().unwrap().to_owned();
        run_well(&["policy", "pin", text(&policy), "--digest", &digest]);
        // How the operator of the proxy reaches the gateway does not matter.
        let url = format!("https://{}", gateway.address());
        let connect = ["connect", &url, "--policy", text(&policy), "--listen", ANY_PORT];
        let inner = CONFIDE.start(&connect);
        let proxy = Proxy::start(inner.address().parse().unwrap());
        let roots = PathBuf::from(folder.argument("proxy.pem"));
        let upstream = format!("http://{}", proxy.address);
        let plain = ["--binding", "none", "--certificate-out", text(&roots)];
        let more = ["--route", "/v1/aci/**", "--route", RELAY_PATH, "--upstream-wait-s", "0"];
        let front = CONFIDE.start(&[&common[..], &[&upstream], &plain, &more].concat());
        let url = format!("https://{}", front.address());
        let processes = vec![serve, gateway, inner, front];
        Self { _folder: folder, policy, roots, url, proxy, _processes: processes }
    }

    fn arguments(&self) -> [&str; 9] {
        let Self { policy, roots, url, .. } = self;
        let (policy, roots) = (text(policy), text(roots));
        [
            "connect",
            url,
            "--encrypted-bodies",
            "--policy",
            policy,
            "--tls-ca",
            roots,
            "--listen",
            ANY_PORT,
        ]
    }

    /// A client that encrypts bodies only.
    fn connect(&self) -> Process {
        CONFIDE.start(&[&self.arguments()[..], &["--dangerous-visible-heads"]].concat())
    }
}

fn chat(connect: &Process) -> (String, String) {
    let length = REQUEST.len();
    exchange(
        connect,
        &format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\nconnection: close\r\n\r\n{REQUEST}"
        ),
    )
}

/// Head and body of an answer; the body as it is on the wire.
fn exchange(connect: &Process, request: &str) -> (String, String) {
    let mut stream = TcpStream::connect(connect.address()).unwrap();
    stream.set_read_timeout(Some(GENEROUS)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    (head.to_owned(), body.to_owned())
}

/// Plays each trick with its status and code, then a cut and a replay, with an honest answer in between.
fn assert_tricks_show(site: &Site, connect: &Process, tricks: &[(Trick, &str, &str)]) {
    for &(trick, status, wanted) in tricks {
        site.proxy.play(trick);
        let (head, body) = chat(connect);
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{trick:?}: {head}\n{body}");
        assert!(body.contains(wanted) && !body.contains("mine"), "{trick:?}: {body}");
        site.proxy.play(Trick::Honesty);
        assert!(chat(connect).0.starts_with("HTTP/1.1 200 "), "{trick:?}: the next one passes");
    }
    site.proxy.play(Trick::Cut);
    let (head, body) = chat(connect);
    match head.starts_with("HTTP/1.1 502 ") {
        // The cut took the whole body.
        true => assert!(body.contains("answer_not_authentic"), "{body}"),
        false => {
            assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
            assert!(!body.ends_with("0\r\n\r\n"), "the answer breaks off: {body}");
        }
    }
    site.proxy.play(Trick::Replay);
    assert!(chat(connect).0.starts_with("HTTP/1.1 200 "));
    let replayed = site.proxy.replayed.lock().unwrap().take().unwrap();
    let replayed = String::from_utf8(replayed).unwrap();
    assert!(replayed.starts_with("HTTP/1.1 400 "), "{replayed}");
    assert!(replayed.contains("encrypted_body_replayed"), "{replayed}");
}

#[test]
fn bodies_pass_a_proxy_that_cannot_read_them_and_every_trick_of_it_shows() {
    let site = Site::start("encrypted-bodies");
    let connect = site.connect();
    assert_eq!(connect.ready["encrypted_bodies"], "ehbp-x-wing-hkdf-sha256-aes-256-gcm");
    assert_eq!(connect.ready["guarantee"], "none (simulated)");
    assert_eq!(connect.ready["simulated"], true);
    assert_eq!(connect.ready["weights"], "not measured");
    assert!(connect.ready["visible_to_proxies"].as_str().unwrap().contains("API keys"));
    let (head, body) = chat(&connect);
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}\n{body}");
    assert!(body.contains("data: [DONE]") && body.ends_with("0\r\n\r\n"), "{body}");
    assert!(!head.contains("ehbp-"), "{head}");
    let seen = site.proxy.seen.lock().unwrap().clone();
    assert!(find(&seen, b"/v1/chat/completions").is_some(), "the proxy sees the path");
    for hidden in [SECRET.as_bytes(), b"[DONE]", b"max_tokens"] {
        assert!(find(&seen, hidden).is_none(), "{}", String::from_utf8_lossy(hidden));
    }
    let tricks = [
        (Trick::OwnAnswer, "502", "answer_not_encrypted"),
        (Trick::NoNonce, "502", "answer_not_encrypted"),
        (Trick::NoFrame("204 No Content", "", ""), "502", "answer_not_authentic"),
        (Trick::NoFrame("205 Reset Content", EMPTY, ""), "502", "answer_not_authentic"),
        (Trick::NoFrame("304 Not Modified", "", ""), "502", "answer_not_authentic"),
        (Trick::NoFrame("200 OK", EMPTY, ""), "502", "answer_not_authentic"),
        (Trick::NoFrame("200 OK", CHUNKED, "0\r\n\r\n"), "502", "answer_not_authentic"),
        (
            Trick::NoFrame("201 Created", CHUNKED, "4\r\n\0\0\0\0\r\n0\r\n\r\n"),
            "502",
            "answer_not_authentic",
        ),
        (Trick::Change, "502", "answer_not_authentic"),
        (Trick::NoAnnouncement, "503", "gateway_key_replaced"),
    ];
    assert_tricks_show(&site, &connect, &tricks);
}

#[test]
fn a_relay_sees_nothing_of_a_request_and_every_trick_of_it_shows() {
    let site = Site::start("relay");
    let relay = format!("{}{RELAY_PATH}", site.url);
    let named = CONFIDE.start(&[&site.arguments()[..], &["--relay", &relay]].concat());
    assert_eq!(named.ready["relay"], *relay);
    assert!(chat(&named).0.starts_with("HTTP/1.1 200 "));
    // By default the proxy itself is the relay.
    let connect = CONFIDE.start(&site.arguments());
    assert!(connect.ready["relay"].is_null(), "{}", connect.ready);
    let visible = connect.ready["visible_to_proxies"].as_str().unwrap().to_owned();
    assert!(visible.starts_with("sizes, times, the identifier of the gateway's key"), "{visible}");
    let (head, body) = chat(&connect);
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}\n{body}");
    assert!(body.contains("data: [DONE]") && body.ends_with("0\r\n\r\n"), "{body}");
    // Requests without a body go the same way, that for the receipt among them.
    let id = head.lines().find_map(|line| line.strip_prefix("x-receipt-id: ")).expect("a receipt");
    for path in ["/v1/models", &format!("/v1/aci/receipts/{id}")] {
        let get = format!("GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n");
        let (head, body) = exchange(&connect, &get);
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}\n{body}");
    }
    let get = "GET /v1/models HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer sk-hidden\r\n\
               connection: close\r\n\r\n";
    assert!(exchange(&connect, get).0.starts_with("HTTP/1.1 200 "));
    let seen = site.proxy.seen.lock().unwrap().clone();
    assert!(find(&seen, b"message/ohttp-chunked-res").is_some(), "the relay sees the form");
    let key_id = connect.ready["key_id"].as_str().unwrap();
    assert!(find(&seen, key_id.as_bytes()).is_some(), "and for which gateway the request is");
    for hidden in
        [SECRET.as_bytes(), b"[DONE]", b"max_tokens", b"/v1/chat", b"x-receipt-id", b"sk-hidden"]
    {
        assert!(find(&seen, hidden).is_none(), "{}", String::from_utf8_lossy(hidden));
    }
    let tricks = [
        (Trick::OwnAnswer, "502", "answer_not_encrypted"),
        (Trick::NoFrame("204 No Content", "", ""), "502", "answer_not_encrypted"),
        (Trick::Change, "502", "answer_not_authentic"),
    ];
    assert_tricks_show(&site, &connect, &tricks);
}

#[test]
fn a_gateway_whose_report_is_not_accepted_gets_nothing() {
    let site = Site::start("other-keys");
    let refuse = |wanted: &str| {
        let CommandOutput { status, stderr, .. } = CONFIDE.run(&site.arguments());
        assert_eq!(status, Some(1), "{stderr}");
        assert!(stderr.contains(wanted), "{stderr}");
    };
    site.proxy.play(Trick::OtherKey);
    refuse("workload_keyset_digest is not the digest of its content");
    site.proxy.play(Trick::OtherKeyset);
    refuse("the report's evidence is refused: report data");
    site.proxy.play(Trick::Honesty);
    let policy = std::fs::read_to_string(&site.policy).unwrap();
    let write = |text: &str| std::fs::write(&site.policy, text).unwrap();
    write(&format!("binding = \"session\"\n{policy}"));
    refuse("session binding");
    let other = policy.lines().filter(|line| !line.starts_with("config_digest"));
    let other: Vec<&str> = other.collect();
    let digest = format!("config_digest = \"{}\"\n{}", "ab".repeat(32), other.join("\n"));
    write(&digest);
    refuse("the key is for the configuration");
    write(&format!("weights = \"{}\"\n{policy}", "cd".repeat(32)));
    refuse("the key is for models with the weights not measured");
    write(&policy);
    // A gateway that was accepted, and whose next report is not: requests are no longer sent.
    let connect = site.connect();
    assert!(chat(&connect).0.starts_with("HTTP/1.1 200 "));
    site.proxy.play(Trick::NoAnnouncement);
    assert!(chat(&connect).1.contains("gateway_key_replaced"));
    let count_posts = || {
        let seen = site.proxy.seen.lock().unwrap();
        seen.windows(5).filter(|window| window == b"POST ").count()
    };
    let sent = count_posts();
    assert_eq!(sent, 2, "the request, and the one whose key was said to be replaced");
    site.proxy.play(Trick::OtherKeyset);
    let (head, body) = chat(&connect);
    assert!(head.starts_with("HTTP/1.1 502 ") && body.contains("evidence_rejected"), "{body}");
    assert_eq!(count_posts(), sent, "nothing was sent");
}

#[test]
fn a_relay_leads_to_one_gateway_so_several_addresses_are_refused() {
    let folder = Folder::new("relay-of-two");
    let attester = PathBuf::from(folder.argument("attester"));
    run_well(&["attest", "--simulate", "tdx", "--out", text(&attester)]);
    let policy = attester.join("policy.toml");
    let start = ["connect", "https://127.0.0.1:9", "https://127.0.0.1:19", "--encrypted-bodies"];
    let more = ["--relay", "https://127.0.0.1:29/relay", "--policy", text(&policy)];
    let refused = CONFIDE.run(&[&start[..], &more].concat());
    assert_eq!(refused.status, Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("--relay leads to one gateway"), "{}", refused.stderr);
    assert!(refused.stderr.contains("wanted one URL, got 2"), "{}", refused.stderr);
}

#[test]
fn encrypted_bodies_need_receipts() {
    let arguments = ["gateway", "--listen", ANY_PORT, "--upstream", "http://127.0.0.1:9"];
    let refused = CONFIDE.run(&[&arguments[..], &["--encrypted-bodies"]].concat());
    assert_eq!(refused.status, Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("--receipts"), "{}", refused.stderr);
}
