//! Measured weights with the real program: a model made here, served by `confide serve`, behind a
//! gateway that measures its files, and a client whose policy demands their digest.
//!
//! All evidence here is simulated.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    ops::ControlFlow,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use confide_native::make::{ModelShape, ModelSpec, make_model};
use confide_tests::{ANY_PORT, CommandOutput, Folder, Process, Program, text};
use serde_json::{Value, json};

const CONFIDE: Program = Program(env!("CARGO_BIN_EXE_confide"));
/// Nothing here takes this long unless it hangs.
const GENEROUS: Duration = Duration::from_secs(60);
const REQUEST: &str = r#"{"model":"model","max_tokens":4,"temperature":0,
    "messages":[{"role":"user","content":"Tell me of the house."}]}"#;

/// A folder with a small model of random weights, a simulated TEE, and a policy.
struct Place {
    folder: Folder,
    model: PathBuf,
    tee: PathBuf,
    policy: PathBuf,
}

impl Place {
    fn new(name: &str) -> Self {
        let folder = Folder::new(name);
        let model = PathBuf::from(folder.argument("model"));
        let tee = PathBuf::from(folder.argument("tee"));
        // Three steps of training: what it says does not matter here.
        let spec =
            ModelSpec { shape: ModelShape::Tiny, seed: 7, dir: model.clone(), steps: Some(3) };
        make_model(&spec, &mut |_| ControlFlow::Continue(())).unwrap();
        run_well(&["attest", "--simulate", "tdx", "--out", text(&tee)]);
        let policy = tee.join("policy.toml");
        Self { folder, model, tee, policy }
    }

    fn serve(&self) -> Process {
        CONFIDE.start(&["serve", "--model", text(&self.model), "--listen", ANY_PORT])
    }

    /// A gateway that measures the model, in front of `upstream`.
    fn gateway(&self, upstream: &Process) -> Process {
        let upstream = format!("http://{}", upstream.address());
        let (weights, tee) = (text(&self.model), text(&self.tee));
        let fixed = ["gateway", "--listen", ANY_PORT, "--upstream", &upstream, "--receipts"];
        let mut command =
            CONFIDE.command(&[&fixed[..], &["--weights", weights, "--simulate", tee]].concat());
        let log = fs::File::create(self.folder.path().join("log")).unwrap();
        let gateway = Process::start(command.stderr(log));
        let digest = gateway.ready["config_digest"].as_str().unwrap();
        run_well(&["policy", "pin", text(&self.policy), "--digest", digest]);
        gateway
    }

    /// What the gateway has logged.
    fn log(&self) -> String {
        String::from_utf8(self.folder.read("log")).unwrap()
    }

    /// Writes the policy with this demand on weights to a new file.
    fn demand(&self, name: &str, weights: &str) -> PathBuf {
        let policy = fs::read_to_string(&self.policy).unwrap();
        self.folder.write(name, format!("weights = \"{weights}\"\n{policy}")).into()
    }

    fn connect(&self, gateway: &Process, policy: &Path) -> Process {
        let url = format!("https://{}", gateway.address());
        CONFIDE.start(&["connect", &url, "--policy", text(policy), "--listen", ANY_PORT])
    }

    /// The digest by the command of docs/weights.md.
    fn digest(&self) -> String {
        let script = "find -L . -name '.?*' -prune -o -type f -printf '%P\\0' | LC_ALL=C sort -z \
                      | xargs -0 sha256sum | sha256sum";
        let mut shell = Command::new("sh");
        let output = shell.args(["-c", script]).current_dir(&self.model).output().unwrap();
        String::from_utf8(output.stdout).unwrap()[..64].to_owned()
    }
}

fn run_well(arguments: &[&str]) -> CommandOutput {
    let done = CONFIDE.run(arguments);
    assert_eq!(done.status, Some(0), "{arguments:?}: {}", done.stderr);
    done
}

/// Sends a request to a loopback address; `None` if the connection is closed without an answer.
fn exchange(process: &Process, method: &str, path: &str, body: &str) -> Option<(String, String)> {
    let mut stream = TcpStream::connect(process.address()).ok()?;
    stream.set_read_timeout(Some(GENEROUS)).unwrap();
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\nconnection: close\r\n\r\n"
    );
    stream.write_all((head + body).as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.to_owned(), body.to_owned()))
}

fn chat(process: &Process) -> Option<(String, String)> {
    exchange(process, "POST", "/v1/chat/completions", REQUEST)
}

fn get(process: &Process, path: &str) -> String {
    let (head, body) = exchange(process, "GET", path, "").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}\n{body}");
    body
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < GENEROUS, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_policy_demands_weights_and_the_receipt_names_them() {
    let place = Place::new("weights");
    let serve = place.serve();
    let gateway = place.gateway(&serve);
    let digest = place.digest();
    let measured = json!({ "sha256": digest, "source": "hashed at start" });
    assert_eq!(gateway.ready["weights"], measured);

    let (good, other) =
        (place.demand("good.toml", &digest), place.demand("other.toml", &"ab".repeat(32)));
    let connect = place.connect(&gateway, &good);
    let (head, answer) = chat(&connect).unwrap();
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}\n{answer}");
    let url = format!("https://{}", gateway.address());
    let refused = CONFIDE.run(&["connect", &url, "--policy", text(&other), "--listen", ANY_PORT]);
    assert_eq!(refused.status, Some(1), "{}", refused.stderr);
    assert!(refused.stderr.contains("weights does not match"), "{}", refused.stderr);

    let described: Value = serde_json::from_str(&get(&connect, "/.well-known/confide")).unwrap();
    assert_eq!(described["configuration"]["upstreams"][0]["weights"], measured);

    let id = head.lines().find_map(|line| line.strip_prefix("x-receipt-id: ")).unwrap();
    let receipt = place.folder.write("receipt", get(&connect, &format!("/v1/aci/receipts/{id}")));
    let report = place.folder.write("report", get(&connect, "/v1/aci/attestation"));
    let (request, response) =
        (place.folder.write("request", REQUEST), place.folder.write("response", &answer));
    let verify = |policy: &Path| {
        let files = ["verify", "receipt", &receipt, "--report", &report, "--policy", text(policy)];
        CONFIDE.run(&[&files[..], &["--request", &request, "--response", &response]].concat())
    };
    let accepted = verify(&good);
    assert_eq!(accepted.status, Some(0), "{}{}", accepted.stdout, accepted.stderr);
    assert!(accepted.stdout.contains("hashed at start, as wanted"), "{}", accepted.stdout);
    let refused = verify(&other);
    assert_eq!(refused.status, Some(1), "{}", refused.stdout);
    assert!(refused.stdout.contains("states the weights"), "{}", refused.stdout);
}

#[test]
fn a_swapped_weight_file_closes_the_listener() {
    let place = Place::new("weights-swapped");
    let serve = place.serve();
    let gateway = place.gateway(&serve);
    let policy = place.demand("good.toml", &place.digest());
    let connect = place.connect(&gateway, &policy);
    assert!(chat(&connect).unwrap().0.starts_with("HTTP/1.1 200 "));

    let file = place.model.join("model.safetensors");
    let mut weights = fs::read(&file).unwrap();
    *weights.last_mut().unwrap() ^= 1;
    fs::write(&file, weights).unwrap();
    until("the gateway still answers", || {
        !chat(&connect).is_some_and(|(head, _)| head.starts_with("HTTP/1.1 200 "))
    });
    // Nobody gets evidence that attests a false digest.
    let url = format!("https://{}", gateway.address());
    let refused = CONFIDE.run(&["connect", &url, "--policy", text(&policy), "--listen", ANY_PORT]);
    assert_ne!(refused.status, Some(0), "{}", refused.stderr);
    let log = place.log();
    assert!(log.contains("model.safetensors has changed: its contents were written to"), "{log}");
}

#[test]
fn a_server_without_the_measured_files_gets_no_request() {
    let place = Place::new("weights-absent");
    // It names the same model and reads no files.
    let serve = CONFIDE.start(&["serve", "--engine", "sim", "--listen", ANY_PORT]);
    let gateway = place.gateway(&serve);
    let connect = place.connect(&gateway, &place.policy);
    let (head, body) = chat(&connect).unwrap();
    assert!(
        head.starts_with("HTTP/1.1 503 ") && body.contains("upstream_not_ready"),
        "{head}\n{body}"
    );
    let log = place.log();
    assert!(log.contains("has none of the measured files open or mapped"), "{log}");
}

#[test]
fn weights_that_cannot_be_measured_keep_the_gateway_from_starting() {
    let folder = Folder::new("weights-unreadable");
    let absent = folder.argument("absent");
    let gateway = |upstream: &str| {
        let fixed = ["gateway", "--listen", ANY_PORT, "--binding", "none", "--weights", &absent];
        CONFIDE.run(&[&fixed[..], &["--upstream", upstream]].concat())
    };
    let refused = gateway("http://127.0.0.1:9");
    assert_eq!(refused.status, Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("absent cannot be read"), "{}", refused.stderr);
    let refused = gateway("http://10.0.0.1:9");
    assert!(refused.stderr.contains("of a server on this machine"), "{}", refused.stderr);
}
