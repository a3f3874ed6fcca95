//! The same answer, fetched plainly and through a notary. All evidence here is simulated.

use std::{
    io::{BufRead, BufReader, Lines, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::Arc,
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use confide_channel::Binding;
use confide_fake_attester::{FakeAttester, FakeAttesterOptions as Simulated, Mode, Tee};
use confide_notary::{Notary, NotaryOptions, NotaryPolicy, ServerRoots};
use serde_json::{Value, json};

fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_secs()
}

/// A process that prints one line when it is ready.
struct Started {
    child: Child,
    input: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    first: Value,
}

impl Started {
    fn new(arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_confide-arm"))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the arm starts");
        let input = child.stdin.take().expect("its input");
        let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let first = lines.next().expect("a line").expect("text");
        let first = serde_json::from_str(&first).expect("JSON");
        Self { child, input, lines, first }
    }

    /// Makes a run of two requests; gives all its lines.
    fn run(&mut self, params: Value) -> Vec<Value> {
        let order = json!({ "type": "run", "id": 1, "requests": 2, "params": params });
        writeln!(self.input, "{order}").expect("the arm reads");
        let mut lines = Vec::new();
        loop {
            let line = self.lines.next().expect("a line").expect("text");
            let line: Value = serde_json::from_str(&line).expect("JSON");
            let more = line["type"] == "sample";
            lines.push(line);
            if !more {
                return lines;
            }
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Serves for as long as the test runs; writes the policy that accepts it, gives its address.
fn notary(folder: &Path) -> String {
    let read =
        |name: &str| std::fs::read_to_string(folder.join(name)).expect("what the host wrote");
    let (rules, pem) = (read("notary.toml"), read("host.pem"));
    let attester = FakeAttester::new(Simulated {
        seed: [1; 32],
        tee: Tee::Tdx,
        debug: false,
        issued_at: unix_now() - 60,
        mode: Mode::Raw,
    })
    .expect("an attester");
    std::fs::write(folder.join("policy.toml"), attester.dangerous_policy_toml()).expect("a file");
    let options = NotaryOptions {
        binding: Binding::Key,
        key_validity: Duration::from_secs(3600),
        names: vec!["127.0.0.1".into()],
        policy: NotaryPolicy::from_toml(&rules).expect("a notary's policy"),
        roots: ServerRoots::from_pem(pem.as_bytes()).expect("the host's certificate"),
    };
    let notary = Notary::new(options, Arc::new(attester), unix_now).expect("a notary");
    let (say, said) = std::sync::mpsc::channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
            say.send(listener.local_addr().expect("an address")).expect("the test waits");
            notary.serve(listener, std::future::pending()).await
        })
    });
    said.recv().expect("it listens").to_string()
}

#[test]
fn a_notarised_answer_is_the_plain_one_and_says_what_it_rests_on() {
    let name = format!("fetch-{}", std::process::id());
    let folder = Folder(Path::new(env!("CARGO_TARGET_TMPDIR")).join(name));
    std::fs::create_dir_all(&folder.0).expect("a folder");
    let out = folder.0.to_str().expect("text");
    let host = Started::new(&["fetch-host", "--out", out]);
    let listen = host.first["listen"].as_str().expect("an address");
    let notary = notary(&folder.0);
    let (root, policy) = (format!("{out}/host.pem"), format!("{out}/policy.toml"));
    let plain = ["fetch", "--by", "plain", "--host", listen, "--root", &root];
    let mut plain = Started::new(&plain);
    let through = ["fetch", "--by", "notary", "--host", listen, "--notary", &notary];
    let mut through = Started::new(&[&through[..], &["--policy", &policy]].concat());
    assert_eq!(
        (&plain.first["simulated"], &through.first["simulated"]),
        (&false.into(), &true.into())
    );
    for body_bytes in [1024, 65_536] {
        let params = json!({ "body_bytes": body_bytes });
        let (plainly, notarised) = (plain.run(params.clone()), through.run(params));
        for (one, other) in plainly.iter().zip(&notarised) {
            assert_eq!(one["type"], other["type"], "{one} {other}");
            assert_eq!(one["answer"], other["answer"]);
        }
        assert_eq!(plainly[0]["answer"]["body_bytes"], body_bytes);
        assert!(notarised[0]["metrics"]["holder_check_ms"].as_f64() > Some(0.0), "{notarised:?}");
    }
    let unknown = plain.run(json!({ "colour": 1 }));
    assert_eq!(unknown[0]["type"], "error", "{unknown:?}");
}
