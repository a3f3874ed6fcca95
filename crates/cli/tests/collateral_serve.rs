//! `confide collateral serve` as a process. All endorsements here are simulated.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use serde_json::Value;

const ROOT_CRL: &str = "/sgx/certification/v4/rootcacrl";

#[test]
fn a_simulated_service_says_so_and_ends_when_it_is_asked_to() {
    let folder = Folder::new("simulated");
    let sim = folder.simulate();
    let service = Serving::start(&["--simulate", &sim, "--request-limit", "2/600"]);
    assert_eq!(service.ready["simulated"], true);
    assert_eq!(service.ready["guarantee"], "none");
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
    let sim = folder.simulate();
    let (first, second) = (folder.path("first.sqlite"), folder.path("second.sqlite"));
    let collateral = format!("{sim}/collateral.json");
    let service = Serving::start(&["--database", &first, "--import", &collateral]);
    assert_eq!(service.ready["simulated"], false);
    assert_eq!(service.ready["database"], "sqlite");
    assert_eq!(service.ready["imported"]["kept"], 4);
    let url = format!("http://{}", service.address());
    let behind = Serving::start(&["--database", &second, "--upstream", &url]);
    assert_eq!(behind.ready["upstream"], true);
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
    let file = folder.path("not.json");
    std::fs::write(&file, "{}").unwrap();
    let (missing, database) = (folder.path("none/pccs.sqlite"), folder.path("pccs.sqlite"));
    for arguments in [
        &["--database", missing.as_str()][..],
        &["--database", &database, "--import", &file],
        &["--simulate", &missing],
        &["--database", "postgres://user:secret@127.0.0.1:9/none"],
    ] {
        let output = confide().args(["collateral", "serve"]).args(arguments).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains("\nhint: ") && !text.contains("secret"), "{text}");
    }
    for arguments in [&[][..], &["--database", "a", "--failure-rate", "1"]] {
        let output = confide().args(["collateral", "serve"]).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
    }
}

fn confide() -> Command {
    Command::new(env!("CARGO_BIN_EXE_confide"))
}

struct Serving {
    process: Child,
    ready: Value,
}

impl Serving {
    fn start(arguments: &[&str]) -> Self {
        let mut process = confide()
            .args(["collateral", "serve", "--listen", "127.0.0.1:0"])
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready = serde_json::from_str(&line).unwrap_or_else(|_| panic!("not ready: {line:?}"));
        Self { process, ready }
    }

    fn address(&self) -> &str {
        self.ready["listen"].as_str().unwrap()
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

    fn terminate(mut self) {
        let id = self.process.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        assert_eq!(self.process.wait().unwrap().code(), Some(0));
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("pccs-{name}"));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    fn simulate(&self) -> String {
        let sim = self.path("sim");
        let made = confide().args(["attest", "--simulate", "tdx", "--out", &sim]).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        sim
    }
}
