//! `confide collateral serve` as a process. All endorsements here are simulated.

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use confide_tests::{ANY_PORT, Folder, Process, Program};
use serde_json::Value;

const CONFIDE: Program = Program(env!("CARGO_BIN_EXE_confide"));
const ROOT_CRL: &str = "/sgx/certification/v4/rootcacrl";

#[test]
fn a_simulated_service_says_so_and_ends_when_it_is_asked_to() {
    let folder = Folder::new("simulated");
    let sim = simulate(&folder);
    let service = Serving::start(&["--simulate", &sim, "--request-limit", "2/600"]);
    assert_eq!(service.ready()["simulated"], true);
    assert_eq!(service.ready()["guarantee"], "none");
    let answer = service.get(ROOT_CRL);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("confide-simulated: true"), "{answer}");
    service.get(ROOT_CRL);
    assert!(service.get(ROOT_CRL).starts_with("HTTP/1.1 429"));
    service.ask("POST", "/simulate", "{}");
    assert!(service.get(ROOT_CRL).starts_with("HTTP/1.1 200"));
    service.terminate();
}

#[test]
fn what_was_imported_is_served_and_a_second_instance_fetches_from_the_first() {
    let folder = Folder::new("imported");
    let sim = simulate(&folder);
    let (first, second) = (folder.argument("first.sqlite"), folder.argument("second.sqlite"));
    let collateral = format!("{sim}/collateral.json");
    let service = Serving::start(&["--database", &first, "--import", &collateral]);
    assert_eq!(service.ready()["simulated"], false);
    assert_eq!(service.ready()["database"], "sqlite");
    assert_eq!(service.ready()["imported"]["kept"], 4);
    let url = format!("http://{}", service.address());
    let behind = Serving::start(&["--database", &second, "--upstream", &url]);
    assert_eq!(behind.ready()["upstream"], true);
    let body = |answer: String| answer.split_once("\r\n\r\n").unwrap().1.to_owned();
    let fetched = body(behind.get(ROOT_CRL));
    assert_eq!(fetched, body(service.get(ROOT_CRL)));
    service.terminate();
    assert_eq!(body(behind.get(ROOT_CRL)), fetched);
    behind.terminate();
    // And it outlives the process.
    let again = Serving::start(&["--database", &second]);
    assert_eq!(body(again.get(ROOT_CRL)), fetched);
    again.terminate();
}

#[test]
fn what_cannot_be_served_is_refused_with_a_hint() {
    let folder = Folder::new("refused");
    let file = folder.argument("not.json");
    std::fs::write(&file, "{}").unwrap();
    let (missing, database) = (folder.argument("none/pccs.sqlite"), folder.argument("pccs.sqlite"));
    for arguments in [
        &["--database", missing.as_str()][..],
        &["--database", &database, "--import", &file],
        &["--simulate", &missing],
        &["--database", "postgres://user:secret@127.0.0.1:9/none"],
    ] {
        let fixed = ["collateral", "serve"];
        let ended = CONFIDE.run(&[&fixed[..], arguments].concat());
        let text = ended.stderr;
        assert_eq!(ended.status, Some(2), "{text}");
        assert!(text.contains("\nhint: ") && !text.contains("secret"), "{text}");
    }
    for arguments in [&[][..], &["--database", "a", "--failure-rate", "1"]] {
        let fixed = ["collateral", "serve"];
        let ended = CONFIDE.run(&[&fixed[..], arguments].concat());
        assert_eq!(ended.status, Some(2));
    }
}

struct Serving(Process);

impl Serving {
    fn start(arguments: &[&str]) -> Self {
        let fixed = ["collateral", "serve", "--listen", ANY_PORT];
        Self(CONFIDE.start(&[&fixed[..], arguments].concat()))
    }

    fn ready(&self) -> &Value {
        &self.0.ready
    }

    fn address(&self) -> String {
        self.0.address()
    }

    fn get(&self, path: &str) -> String {
        self.ask("GET", path, "")
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(self.address()).unwrap();
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\
             content-length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn terminate(self) {
        assert_eq!(self.0.terminate().code(), Some(0));
    }
}

fn simulate(folder: &Folder) -> String {
    let out = folder.argument("sim");
    let made = CONFIDE.run(&["attest", "--simulate", "tdx", "--out", &out]);
    assert_eq!(made.status, Some(0), "{}", made.stderr);
    out
}
