//! `confide connect` with several attested replicas of one service, each a process.
//!
//! All evidence here is simulated.

use std::{
    fs::{self, File},
    io::{Read, Write},
    net::TcpStream,
    path::PathBuf,
    time::{Duration, Instant},
};

use confide_tests::{ANY_PORT, Folder, Process, Program, text};
use serde_json::Value;

const CONFIDE: Program = Program(env!("CARGO_BIN_EXE_confide"));
/// Nothing here takes this long unless it hangs.
const GENEROUS: Duration = Duration::from_secs(60);

struct Site {
    folder: Folder,
    attester: PathBuf,
    serve: Process,
}

impl Site {
    fn start(name: &str) -> Self {
        let folder = Folder::new(name);
        let attester = folder.join("attester");
        run_well(&["attest", "--simulate", "tdx", "--out", text(&attester)]);
        let serve = CONFIDE.start(&["serve", "--engine", "sim", "--listen", ANY_PORT]);
        Self { folder, attester, serve }
    }

    /// A gateway; `more` may change its configuration.
    fn gateway(&self, listen: &str, more: &[&str]) -> Process {
        let upstream = format!("http://{}", self.serve.address());
        let start = ["gateway", "--listen", listen, "--upstream", &upstream, "--simulate"];
        CONFIDE.start(&[&start[..], &[text(&self.attester)], more].concat())
    }

    fn policy(&self) -> PathBuf {
        self.attester.join("policy.toml")
    }
}

fn run_well(arguments: &[&str]) {
    let done = CONFIDE.run(arguments);
    assert_eq!(done.status, Some(0), "{arguments:?}: {}", done.stderr);
}

fn url(gateway: &Process) -> String {
    format!("https://{}", gateway.address())
}

fn get(connect: &Process, path: &str) -> (u16, Value) {
    let mut stream = TcpStream::connect(connect.address()).unwrap();
    stream.set_read_timeout(Some(GENEROUS)).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head[9..12].parse().unwrap(), serde_json::from_str(body).unwrap_or_default())
}

fn describe(connect: &Process) -> Value {
    let (status, document) = get(connect, "/.well-known/confide/verification");
    assert_eq!(status, 200);
    document
}

fn wait_until(is_so: impl Fn() -> bool) {
    let until = Instant::now() + GENEROUS;
    while !is_so() {
        assert!(Instant::now() < until, "it does not come about");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn one_address_leads_to_each_replica_that_satisfies_the_policy_and_tells_of_the_others() {
    let site = Site::start("replicas");
    let log = site.folder.join("one.jsonl");
    let one = site.gateway(ANY_PORT, &["--access-log", text(&log)]);
    let mut two = site.gateway(ANY_PORT, &[]);
    // It proxies more, so that its digest is another one.
    let other = site.gateway(ANY_PORT, &["--route", "/tokenize"]);
    let policy = site.policy();
    let digest = one.ready["config_digest"].as_str().unwrap();
    run_well(&["policy", "pin", text(&policy), "--digest", digest]);
    let urls = [url(&one), url(&two), url(&other)];
    let start = ["connect", &urls[0], &urls[1], &urls[2], "--policy", text(&policy)];
    let stderr = site.folder.join("stderr");
    let mut command = CONFIDE.command(&[&start[..], &["--listen", ANY_PORT]].concat());
    let connect = Process::start(command.stderr(File::create(&stderr).unwrap()));
    assert_eq!(connect.ready["config_digest"], digest);
    let document = describe(&connect);
    assert_eq!(document["endpoint"], urls[0]);
    assert_eq!(document["state"], "admitted");
    let replicas = document["replicas"].as_array().unwrap();
    let states: Vec<_> = replicas.iter().map(|replica| &replica["state"]).collect();
    assert_eq!(states, ["admitted", "admitted", "refused"]);
    let endpoints: Vec<_> = replicas.iter().map(|replica| &replica["endpoint"]).collect();
    assert_eq!(endpoints, [&urls[0], &urls[1], &urls[2]]);
    assert_eq!(replicas[1]["verification"]["config_digest"], digest);
    assert_eq!(replicas[2]["check"], "config_digest");
    assert!(replicas[2]["verification"].is_null() && replicas[2]["reason"].is_string());
    let told = fs::read_to_string(&stderr).unwrap();
    assert!(told.contains("ERROR") && told.contains("does not satisfy the policy"), "{told}");
    assert!(told.contains(&urls[2]) && told.contains("config_digest"), "{told}");
    for _ in 0..20 {
        assert_eq!(get(&connect, "/v1/models").0, 200);
    }
    let count = || fs::read_to_string(&log).unwrap().matches("/v1/models").count();
    wait_until(|| count() >= 10);
    assert_eq!(count(), 10, "the replicas take turns");

    let address = two.address();
    two.kill();
    for _ in 0..20 {
        assert_eq!(get(&connect, "/v1/models").0, 200);
    }
    let state = |index: usize| describe(&connect)["replicas"][index]["state"].clone();
    assert_eq!(state(1), "unreachable");
    let _back = site.gateway(&address, &[]);
    wait_until(|| state(1) == "admitted");
}

#[test]
fn without_an_accepted_replica_there_is_no_address_and_each_reason_is_told() {
    let site = Site::start("no-replica");
    let (one, two) = (site.gateway(ANY_PORT, &[]), site.gateway(ANY_PORT, &[]));
    let production = site.folder.join("production.toml");
    fs::write(&production, "roots = [\"intel-production\"]\n").unwrap();
    let nobody = "https://127.0.0.1:9".to_owned();
    let (one, two) = (url(&one), url(&two));
    let start = ["connect", &nobody, &one, &two, "--policy", text(&production)];
    let refused = CONFIDE.run(&start);
    assert_eq!(refused.status, Some(1), "{}", refused.stderr);
    assert!(refused.stderr.contains("none of 3 replicas is used"), "{}", refused.stderr);
    for wanted in [
        format!("{one} is not accepted: check `root` failed"),
        format!("{two} is not accepted: check `root` failed"),
        format!("{nobody} could not be judged"),
    ] {
        assert!(refused.stderr.contains(&wanted), "{wanted}: {}", refused.stderr);
    }
    let twice = ["connect", &one, &one, "--policy", text(&production)];
    let refused = CONFIDE.run(&twice);
    assert_eq!(refused.status, Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("is given twice"), "{}", refused.stderr);
}
