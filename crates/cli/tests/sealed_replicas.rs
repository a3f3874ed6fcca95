//! Encrypted requests to several attested gateways behind one front that terminates TLS: each is
//! sealed to one gateway's key and reaches that gateway only.
//!
//! All evidence here is simulated.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use confide_tests::{ANY_PORT, Folder, Process, Program, text};
use serde_json::Value;

const CONFIDE: Program = Program(env!("CARGO_BIN_EXE_confide"));
/// Nothing here takes this long unless it hangs.
const GENEROUS: Duration = Duration::from_secs(120);
const REQUEST: &str = r#"{"model":"sim","max_tokens":3,"seed":7,"temperature":0,
    "messages":[{"role":"user","content":"Tell me of the house."}]}"#;
const CHAT: &str = "/v1/chat/completions";
/// The requests that run at once at each program.
const REQUESTS: &str = "256";

/// An attested gateway, and the `confide connect` through which the front reaches it.
struct Replica {
    gateway: Process,
    connect: Process,
    log: PathBuf,
}

/// The statuses in an access log of requests for chats, and of the others.
#[derive(Debug, Default)]
struct Served {
    chats: usize,
    key_problems: usize,
}

impl Replica {
    fn count_served(&self) -> Served {
        let mut served = Served::default();
        for line in fs::read_to_string(&self.log).unwrap_or_default().lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            served.chats += usize::from(line["path"] == CHAT);
            served.key_problems += usize::from(line["status"] == 422);
        }
        served
    }
}

/// Two replicas behind one front.
struct Site {
    _folder: Folder,
    attester: PathBuf,
    roots: PathBuf,
    serve: Process,
    replicas: [Replica; 2],
    front: Process,
}

impl Site {
    fn start(name: &str, routes: &str) -> Self {
        let folder = Folder::new(name);
        let attester = folder.join("attester");
        run_well(&["attest", "--simulate", "tdx", "--out", text(&attester)]);
        let serve = CONFIDE.start(&["serve", "--engine", "sim", "--listen", ANY_PORT]);
        let gateways = ["one", "two"].map(|name| {
            let log = folder.join(format!("{name}.jsonl"));
            (start_gateway(&attester, &serve, ANY_PORT, &log), log)
        });
        let digest = gateways[0].0.ready["config_digest"].as_str().unwrap();
        let policy = attester.join("policy.toml");
        run_well(&["policy", "pin", text(&policy), "--digest", digest]);
        let replicas = gateways.map(|(gateway, log)| {
            let url = format!("https://{}", gateway.address());
            let start = ["connect", &url, "--policy", text(&policy), "--listen", ANY_PORT];
            let connect = CONFIDE.start(&[&start[..], &["--requests", REQUESTS]].concat());
            Replica { gateway, connect, log }
        });
        let roots = folder.join("front.pem");
        let mut file = format!(
            "[[listener]]\nkind = 'terminate'\nlisten = '{ANY_PORT}'\nbinding = 'none'\n\
             certificate_out = '{}'\n",
            text(&roots)
        );
        for Replica { connect, .. } in &replicas {
            let url = format!("http://{}", connect.address());
            file += &format!("[[listener.upstream]]\nurl = '{url}'\ngroup = 'replicas'\n");
        }
        file += routes;
        let path = folder.join("front.toml");
        fs::write(&path, file).unwrap();
        let front = CONFIDE.start(&["gateway", "--config", text(&path)]);
        Self { _folder: folder, attester, roots, serve, replicas, front }
    }

    fn connect(&self, more: &[&str]) -> Process {
        let (url, policy) =
            (format!("https://{}", self.front.address()), self.attester.join("policy.toml"));
        let start = ["connect", &url, "--encrypted-bodies", "--policy", text(&policy)];
        let ends = ["--tls-ca", text(&self.roots), "--listen", ANY_PORT, "--requests", REQUESTS];
        CONFIDE.start(&[&start[..], &ends, more].concat())
    }

    /// The chats that each replica served, once all are in the logs.
    fn wait_for_chats(&self, count: usize) -> [usize; 2] {
        let chats = || [0, 1].map(|index| self.replicas[index].count_served().chats);
        wait_until(|| chats().iter().sum::<usize>() >= count);
        chats()
    }

    fn key_problems(&self) -> usize {
        self.replicas.iter().map(|replica| replica.count_served().key_problems).sum()
    }
}

fn start_gateway(attester: &Path, serve: &Process, listen: &str, log: &Path) -> Process {
    let upstream = format!("http://{}", serve.address());
    let start = ["gateway", "--listen", listen, "--upstream", &upstream, "--simulate"];
    let more = ["--receipts", "--encrypted-bodies", "--access-log", text(log)];
    CONFIDE.start(&[&start[..], &[text(attester)], &more].concat())
}

fn run_well(arguments: &[&str]) {
    let done = CONFIDE.run(arguments);
    assert_eq!(done.status, Some(0), "{arguments:?}: {}", done.stderr);
}

/// Sends a request and reads the answer to the end of the connection.
fn exchange(connect: &Process, request: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(connect.address()).unwrap();
    stream.set_read_timeout(Some(GENEROUS)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    (head.get(9..12).map_or(0, |status| status.parse().unwrap()), body.to_owned())
}

fn chat(connect: &Process) -> (u16, String) {
    let length = REQUEST.len();
    exchange(
        connect,
        &format!(
            "POST {CHAT} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\nconnection: close\r\n\r\n{REQUEST}"
        ),
    )
}

/// Sends so many chats at once, and gives their statuses.
fn chat_many(connect: &Process, count: usize) -> Vec<u16> {
    thread::scope(|scope| {
        let chats: Vec<_> = (0..count).map(|_| scope.spawn(|| chat(connect).0)).collect();
        chats.into_iter().map(|chat| chat.join().unwrap()).collect()
    })
}

/// The states of the replicas, and the identifiers of their keys.
fn describe(connect: &Process) -> Vec<(String, String)> {
    let get = "GET /.well-known/confide/verification HTTP/1.1\r\nhost: 127.0.0.1\r\n\
               connection: close\r\n\r\n";
    let document: Value = serde_json::from_str(&exchange(connect, get).1).unwrap();
    let describe = |replica: &Value| {
        let text = |name: &str| replica[name].as_str().unwrap_or_default().to_owned();
        (text("state"), text("key_id"))
    };
    document["replicas"].as_array().unwrap().iter().map(describe).collect()
}

fn has_both(connect: &Process) -> bool {
    let states = describe(connect);
    states.len() == 2 && states.iter().all(|(state, _)| state == "admitted")
}

fn wait_until(is_so: impl Fn() -> bool) {
    let until = Instant::now() + GENEROUS;
    while !is_so() {
        assert!(Instant::now() < until, "it does not come about");
        thread::sleep(Duration::from_millis(50));
    }
}

const BY_KEY: &str = "[[listener.route]]\n\
    paths = ['/.well-known/ohttp-gateway', 'GET /v1/aci/attestation', 'POST /v1/chat/completions']\n\
    group = 'replicas'\nby_key_id = true\n";

#[test]
fn a_request_sealed_to_one_replica_never_reaches_another() {
    let site = Site::start("sealed", BY_KEY);
    // Whole messages, and bodies alone.
    for (round, more) in [&[][..], &["--dangerous-visible-heads"]].into_iter().enumerate() {
        let connect = site.connect(more);
        wait_until(|| has_both(&connect));
        let keys: Vec<String> = describe(&connect).into_iter().map(|(_, id)| id).collect();
        assert!(keys[0] != keys[1] && keys.iter().all(|id| id.starts_with("body-")), "{keys:?}");
        let statuses = chat_many(&connect, 200);
        assert!(statuses.iter().all(|status| *status == 200), "{statuses:?}");
        let chats = site.wait_for_chats(200 * (round + 1));
        assert_eq!(chats.iter().sum::<usize>(), 200 * (round + 1));
        assert!(chats.iter().all(|count| *count >= 60 * (round + 1)), "{chats:?}");
        assert_eq!(site.key_problems(), 0, "none was sealed to another replica's key");
    }
}

#[test]
fn the_front_refuses_a_request_that_names_no_key_or_an_unknown_one() {
    let site = Site::start("unnamed", BY_KEY);
    // The front speaks TLS, so that this goes through an ordinary client.
    let front = format!("https://{}", site.front.address());
    let unknown = "Confide-Key-Id: body-0123456789abcdef";
    for (fields, status, code, wanted) in [
        (["x: y", "x: z"], "400", "key_not_named", "got none"),
        (["x: y", "Confide-Key-Id: key-1"], "400", "key_not_named", "got another text"),
        ([unknown, unknown], "400", "key_not_named", "got several"),
        (["x: y", unknown], "422", "ohttp-key", "no key of this gateway"),
    ] {
        let mut curl = std::process::Command::new("curl");
        curl.args(["-s", "--cacert", text(&site.roots), "-w", " %{http_code}"]);
        curl.args(fields.iter().flat_map(|field| ["-H", field]));
        curl.args(["-H", "Content-Type: message/ohttp-req", "--data-binary", "sealed"]);
        let answer = curl.arg(format!("{front}/.well-known/ohttp-gateway")).output().unwrap();
        let answer = String::from_utf8(answer.stdout).unwrap();
        let is_named = answer.contains(code) && answer.contains(wanted);
        assert!(answer.ends_with(status) && is_named, "{fields:?}: {answer}");
    }
    assert_eq!(site.key_problems(), 0, "none reached a replica");
}

#[test]
fn a_front_that_does_not_select_by_key_has_requests_refused_unread() {
    // The counterpart of the tests above: here the replicas count what is not theirs.
    let site = Site::start("blind-front", &BY_KEY.replace("by_key_id = true\n", ""));
    let connect = site.connect(&[]);
    let mut answers: Vec<(u16, String)> = (0..10).map(|_| chat(&connect)).collect();
    // Both take turns among the replicas. If they were in step, they are not after one more request.
    let keys = format!("https://{}/.well-known/ohttp-gateway", site.front.address());
    let listed = std::process::Command::new("curl")
        .args(["-s", "-f", "--cacert", text(&site.roots), &keys])
        .output();
    assert!(listed.unwrap().status.success());
    answers.extend((0..10).map(|_| chat(&connect)));
    assert!(answers.iter().all(|(status, _)| [200, 503].contains(status)), "{answers:?}");
    // The others of 503 had no report: a gateway makes only so many.
    let has_other_key = |(_, body): &&(u16, String)| body.contains("gateway_key_replaced");
    let refused = answers.iter().filter(has_other_key).count();
    assert!(refused > 0, "{answers:?}");
    wait_until(|| site.key_problems() >= refused);
    let answered = answers.iter().filter(|(status, _)| *status == 200).count();
    assert_eq!(site.wait_for_chats(answered).iter().sum::<usize>(), answered);
}

#[test]
fn a_replica_that_restarts_with_a_new_key_loses_requests_cleanly_and_comes_back() {
    let mut site = Site::start("restart", BY_KEY);
    let connect = site.connect(&[]);
    wait_until(|| has_both(&connect));
    let before: Vec<String> = describe(&connect).into_iter().map(|(_, id)| id).collect();
    let stop = AtomicBool::new(false);
    let [sent, answered, broken] = [const { AtomicUsize::new(0) }; 3];
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while !stop.load(Ordering::SeqCst) {
                    let (status, body) = chat(&connect);
                    sent.fetch_add(1, Ordering::SeqCst);
                    answered.fetch_add(usize::from(status == 200), Ordering::SeqCst);
                    // A connection that breaks in the middle of an answer leaves no status.
                    assert!([0, 200, 502, 503].contains(&status), "{status} {body}");
                    // These were opened by no gateway; of the others nobody here knows.
                    let unread = ["gateway_key_replaced", "gateway_report_unavailable"];
                    let is_unread = unread.iter().any(|code| body.contains(code));
                    let is_broken = status != 200 && !is_unread;
                    broken.fetch_add(usize::from(is_broken), Ordering::SeqCst);
                }
            });
        }
        thread::sleep(Duration::from_secs(1));
        let address = site.replicas[1].gateway.address();
        site.replicas[1].gateway.kill();
        thread::sleep(Duration::from_secs(1));
        let log = site.replicas[1].log.clone();
        site.replicas[1].gateway = start_gateway(&site.attester, &site.serve, &address, &log);
        wait_until(|| {
            has_both(&connect) && describe(&connect).iter().any(|(_, id)| !before.contains(id))
        });
        stop.store(true, Ordering::SeqCst);
    });
    let [sent, answered, broken] = [sent, answered, broken].map(AtomicUsize::into_inner);
    assert!(answered > sent / 2, "{answered} of {sent}");
    // A gateway that is killed may not have written its last lines.
    thread::sleep(Duration::from_secs(1));
    let chats: usize = site.replicas.iter().map(|replica| replica.count_served().chats).sum();
    assert!(chats <= answered + broken, "none was served twice: {chats}, {answered}, {broken}");
    assert!(chats + 16 >= answered, "{chats} of {answered}");
    // What was sealed to the one that was away did not go to the other one.
    assert_eq!(site.replicas[0].count_served().key_problems, 0);
    let statuses = chat_many(&connect, 100);
    assert!(statuses.iter().all(|status| *status == 200), "{statuses:?}");
}
