//! `confide prove` and `confide verify proof` as people type them, with a stand-in for the zkVM that
//! speaks its lines and proves nothing (tests/stand_in). What holds of a real proof is tested in
//! prove_real.rs, where `confide-prover` was built.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Takes whatever statement a proof is of: these tests are about something else.
const ANY: &str = "--dangerous-any-statement";

/// Nothing here takes this long unless it hangs.
const GENEROUS: Duration = Duration::from_secs(60);

#[test]
fn the_four_stages_run_from_one_command_and_their_proof_is_accepted() {
    let case = Case::new("accepted");
    let proved = case.prove(&[]);
    for stage in ["native", "emulate", "prove", "check"] {
        let used = &proved["stages"][stage];
        assert!(used["wall_s"].as_f64().unwrap() > 0.0, "{stage}: {used}");
        assert!(used["peak_rss_bytes"].as_u64().unwrap() > 1 << 20, "{stage}: {used}");
    }
    assert_eq!(proved["statement"], json!({"claim": "fibonacci", "n": 10, "value": 55}));
    let (answer, status) = case.verify_json(&["--statement", &case.statement(10, 55)]);
    assert_eq!((status, &answer["outcome"]), (0, &json!("accepted")), "{answer}");
    for field in
        ["statement", "program_digest", "backend", "mode", "proven_bits", "conjectured_bits"]
    {
        assert_eq!(answer[field], proved[field], "{field}");
    }
    assert_eq!(answer["unproved"], json!(["cycles"]));
    assert_eq!(answer["zero_knowledge"], json!(false));
    assert!(answer["hidden"].as_str().unwrap().starts_with("nothing is promised"), "{answer}");
}

#[test]
fn people_read_what_is_proved_by_what_and_what_is_hidden() {
    let case = Case::new("people");
    let output = case.run(&case.prove_words(&[]));
    assert!(output.status.success(), "{}", text(&output.stderr));
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    for wanted in [
        "peak memory",
        "value: 55",
        "stand-in 1, app proof",
        "100 bits proven, 110 bits conjectured",
        "zero-knowledge     no",
        "nothing is promised",
        "segments           2",
    ] {
        assert!(out.contains(wanted), "{wanted}: {out}");
    }
    assert!(err.contains("prove: segment 1 of 2"), "{err}");
    let output = case.verify(&[ANY]);
    let out = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for wanted in [
        "accepted           yes",
        "not evaluated",
        "was not pinned",
        "value: 55",
        "segments           2\n",
        "(as claimed by the prover)",
    ] {
        assert!(out.contains(wanted), "{wanted}: {out}");
    }
}

#[test]
fn another_statement_program_mode_or_prover_is_refused_by_name() {
    let case = Case::new("expected");
    case.prove(&[]);
    let program = digest(b"stand-in fibonacci");
    let other = digest(b"other");
    let pin = format!("prover_sha256 = \"{}\"\n", digest(&fs::read(stand_in()).unwrap()));
    let policies = [
        ("mode", format!("{pin}modes = [\"aggregated\"]\n")),
        ("weaker_parameters", format!("{pin}proven_bits_min = 128\n")),
        ("weaker_parameters", format!("{pin}zero_knowledge = true\n")),
        ("another_program", format!("{pin}[programs]\nfibonacci = [\"{other}\"]\n")),
        ("another_program", format!("{pin}[programs]\nsort = [\"{program}\"]\n")),
        ("another_prover", format!("prover_sha256 = \"{other}\"\n")),
        ("unpinned_prover", String::new()),
    ];
    for (name, policy) in policies {
        let path = case.write("policy.toml", policy.as_bytes());
        let (answer, status) = case.verify_json(&["--policy", &path]);
        assert_eq!((status, &answer["reason"]), (1, &json!(name)), "{policy}: {answer}");
        assert_eq!(answer["outcome"], "rejected");
        // Nothing of a refused file is told as if it were so.
        assert!(answer.get("statement").is_none(), "{answer}");
    }
    let good = format!("{pin}proven_bits_min = 100\n[programs]\nfibonacci = [\"{program}\"]\n");
    let path = case.write("policy.toml", good.as_bytes());
    let (answer, status) = case.verify_json(&["--policy", &path, "--program", &program]);
    assert_eq!(status, 0, "{answer}");
    let (answer, _) = case.verify_json(&["--program", &other]);
    assert_eq!(answer["reason"], "another_program");
    let (answer, _) = case.verify_json(&["--statement", &case.statement(10, 54)]);
    assert_eq!(answer["reason"], "another_statement");
    // An expectation about a quote is not silently left out where the proof is about none.
    let (answer, status) = case.verify_json(&["--at", "1", ANY]);
    assert_eq!((status, &answer["reason"]), (1, &json!("evidence")), "{answer}");
}

#[test]
fn a_proof_of_which_nothing_is_expected_is_not_judged() {
    let case = Case::new("unexpected");
    case.prove(&[]);
    let (answer, status) = case.verify_json(&[]);
    assert_eq!((status, &answer["outcome"]), (2, &json!("error")), "{answer}");
    assert_eq!(answer["reason"], "no_expectation");
    // A time says nothing of what was proved.
    let (answer, status) = case.verify_json(&["--at", "1"]);
    assert_eq!((status, &answer["reason"]), (2, &json!("no_expectation")), "{answer}");
    let output = case.verify(&[]);
    let err = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{err}");
    assert!(output.stdout.is_empty(), "{}", text(&output.stdout));
    assert!(err.contains("--input") && err.contains(ANY), "{err}");
    let (answer, status) = case.verify_json(&[ANY]);
    assert_eq!((status, &answer["outcome"]), (0, &json!("accepted")), "{answer}");
}

#[test]
fn the_input_that_the_prover_was_given_says_what_has_to_be_proved() {
    let case = Case::new("input");
    case.prove(&[]);
    let input = case.write("mine.json", br#"{"n":10}"#);
    let (answer, status) = case.verify_json(&["--input", &input]);
    assert_eq!(status, 0, "{answer}");
    let checks = answer["checks"].as_array().unwrap();
    let statement = checks.iter().find(|check| check["name"] == "statement").unwrap();
    assert_eq!(statement["outcome"], "passed", "{answer}");
    let out = text(&case.verify(&["--input", &input]).stdout);
    assert!(!out.contains("was not compared"), "{out}");
    let input = case.write("mine.json", br#"{"n":11}"#);
    let (answer, status) = case.verify_json(&["--input", &input]);
    assert_eq!((status, &answer["reason"]), (1, &json!("another_statement")), "{answer}");
    let input = case.write("mine.json", br#"{"message":"text"}"#);
    let (answer, status) = case.verify_json(&["--input", &input]);
    assert_eq!((status, &answer["reason"]), (2, &json!("malformed_input_file")), "{answer}");
    // What a run of this program has nothing for is refused, not ignored.
    let key = case.write("key.pem", b"a key");
    for option in ["--key", "--certificate", "--message"] {
        let (answer, status) = case.verify_json(&[option, &key]);
        assert_eq!((status, &answer["reason"]), (2, &json!("option_of_another_kind")), "{answer}");
    }
}

#[test]
fn a_changed_file_is_refused_by_name() {
    let case = Case::new("changed");
    case.prove(&[]);
    let file = Parts::read(&fs::read(case.proof()).unwrap());
    let segments = |change: &dyn Fn(&mut Vec<Value>)| {
        let mut body: Value = serde_json::from_slice(&file.body).unwrap();
        change(body["segments"].as_array_mut().unwrap());
        file.with_body(body.to_string().as_bytes())
    };
    let body = |field: &str, value: Value| {
        let mut body: Value = serde_json::from_slice(&file.body).unwrap();
        body[field] = value;
        file.with_body(body.to_string().as_bytes())
    };
    let other = fibonacci(10, 56);
    let both = |all: &mut Vec<Value>| {
        for segment in all {
            segment["digest"] = digest(b"another").into();
        }
    };
    for (name, bytes) in [
        ("segments", segments(&|all| drop(all.pop()))),
        ("segments", segments(&|all| all.swap(0, 1))),
        ("segments", segments(&|all| all.push(all[1].clone()))),
        ("segments", segments(&both)),
        ("unsound", segments(&|all| all[1]["digest"] = digest(b"another").into())),
        ("parameters", body("bits", json!(40))),
        ("another_program", body("program", json!(digest(b"other")))),
        ("malformed_proof", file.with_body(b"not a proof")),
        ("public_values", file.with_header(&hex::encode(fibonacci(10, 55)), &hex::encode(other))),
        ("malformed_proof", file.with_header("\"app\"", "\"aggregated\"")),
        ("header", file.with_header("\"segments\":2", "\"segments\":1")),
        ("header", file.with_header("\"proven_bits\":100", "\"proven_bits\":128")),
        ("header", file.with_header("\"zero_knowledge\":false", "\"zero_knowledge\":true")),
        ("another_backend", file.with_header("stand-in", "openvm")),
        ("another_statement", file.with_header("\"fibonacci\"", "\"sort\"")),
        (
            "another_program",
            file.with_header(&digest(b"stand-in fibonacci"), &digest(b"something else")),
        ),
    ] {
        fs::write(case.proof(), bytes).unwrap();
        let (answer, status) = case.verify_json(&[ANY]);
        assert_eq!((status, &answer["reason"]), (1, &json!(name)), "{answer}");
    }
}

#[test]
fn what_cannot_be_read_is_not_judged_and_says_why() {
    let case = Case::new("unreadable");
    case.prove(&[]);
    let whole = fs::read(case.proof()).unwrap();
    let longer = [&whole[..], b"\n"].concat();
    for bytes in [b"".as_slice(), b"PNG", &whole[..40], &whole[..whole.len() - 1], &longer] {
        fs::write(case.proof(), bytes).unwrap();
        let (answer, status) = case.verify_json(&[ANY]);
        assert_eq!((status, &answer["outcome"]), (2, &json!("error")), "{answer}");
        assert_eq!(answer["reason"], "malformed_file");
        let output = case.verify(&[ANY]);
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).starts_with("confide: "));
    }
    fs::write(case.proof(), &whole).unwrap();
    let bad = case.write("policy.toml", b"proven_bits = 1");
    let (answer, status) = case.verify_json(&["--policy", &bad]);
    assert_eq!((status, &answer["reason"]), (2, &json!("malformed_policy")));
    let (answer, status) = case.verify_json(&["--statement", &bad]);
    assert_eq!((status, &answer["reason"]), (2, &json!("malformed_statement_file")));
}

#[test]
fn what_a_file_calls_itself_draws_no_answer() {
    let case = Case::new("drawn");
    case.prove(&[]);
    let file = Parts::read(&fs::read(case.proof()).unwrap());
    let drawn = "x\\naccepted           yes            the program ran";
    let mode = format!("\"{drawn}\"");
    for (from, to) in [("stand-in", drawn), ("\"app\"", mode.as_str())] {
        fs::write(case.proof(), file.with_header(from, to)).unwrap();
        let output = case.verify(&[ANY]);
        assert_eq!(output.status.code(), Some(2));
        for shown in [output.stdout, output.stderr].map(|bytes| text(&bytes)) {
            assert!(!shown.contains("yes"), "{shown}");
        }
    }
}

#[test]
fn a_proof_whose_check_was_interrupted_is_not_judged() {
    let case = Case::new("unjudged");
    case.prove(&[]);
    let (proof, prover) = (case.proof().display().to_string(), stand_in().display().to_string());
    let words = ["verify", "proof", &proof, "--prover", &prover, ANY];
    for words in [&words[..], &[&words[..], &["--json"]].concat()] {
        let begun = case.dir.with_extension("begun");
        let child = case
            .command(words)
            .env("STAND_IN_SECONDS", "600")
            .env("STAND_IN_BEGUN", &begun)
            .stderr(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let started = Instant::now();
        while !begun.exists() {
            assert!(started.elapsed() < Duration::from_secs(300), "the check never began");
            std::thread::sleep(Duration::from_millis(20));
        }
        fs::remove_file(&begun).unwrap();
        let id = child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    }
}

#[test]
fn a_link_that_lies_where_a_proof_is_made_is_not_followed() {
    let case = Case::new("links");
    let precious = case.dir.join("precious");
    fs::write(&precious, b"precious").unwrap();
    std::os::unix::fs::symlink(&precious, case.proof()).unwrap();
    case.prove(&[]);
    assert_eq!(fs::read(&precious).unwrap(), b"precious");
    assert!(fs::symlink_metadata(case.proof()).unwrap().is_file());
    let left: Vec<_> = fs::read_dir(&case.dir).unwrap().flatten().map(|e| e.file_name()).collect();
    assert_eq!(left.len(), 4, "input, tmp, proof, precious: {left:?}");
}

#[test]
fn a_missing_confide_prover_gives_the_line_that_says_how_to_get_it() {
    let case = Case::new("missing");
    case.prove(&[]);
    let proof = case.proof().display().to_string();
    let absent = case.dir.join("absent").display().to_string();
    let input = case.write("input.json", br#"{"n":10}"#);
    let out = case.dir.join("other").display().to_string();
    let prove = ["prove", "fibonacci", "--input", &input, "--out", &out, "--prover", &absent];
    for words in [&prove[..], &["verify", "proof", &proof, "--prover", &absent, ANY]] {
        let output = case.run(words);
        let err = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{err}");
        assert!(err.contains("confide-prover is missing") && err.contains("make prover"), "{err}");
    }
    let words = ["verify", "proof", &proof, "--prover", &absent, "--json", ANY];
    let answer: Value = serde_json::from_slice(&case.run(&words).stdout).unwrap();
    assert_eq!(answer["reason"], "prover_missing");
}

#[test]
fn a_refused_input_leaves_no_file() {
    let case = Case::new("refused");
    for (input, wanted) in [
        (&br#"{"n":1000001}"#[..], "claim_refused"),
        (br#"{"m":1}"#, "input of fibonacci is not the JSON"),
        (br#"{"n":-1}"#, "input of fibonacci is not the JSON"),
        (b"", "input of fibonacci is not the JSON"),
    ] {
        case.write("input.json", input);
        let output = case.run(&case.prove_words(&[]));
        let err = text(&output.stderr);
        assert!(!output.status.success() && err.contains(wanted), "{err}");
        assert!(!case.proof().exists());
    }
    case.write("input.json", br#"{"n":10}"#);
    let output = case.run(&case.prove_words(&["--memory", "512KiB"]));
    assert!(text(&output.stderr).contains("memory"), "{}", text(&output.stderr));
    assert!(!case.proof().exists());
}

#[test]
fn an_interrupted_proof_leaves_nothing_half_written() {
    let case = Case::new("interrupted");
    let begun = case.dir.with_extension("begun");
    let child = case
        .command(&case.prove_words(&[]))
        .env("STAND_IN_SECONDS", "600")
        .env("STAND_IN_BEGUN", &begun)
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    // The stand-in says its first line, then sleeps: the signal finds a stage at work.
    let started = Instant::now();
    while !begun.exists() {
        assert!(started.elapsed() < GENEROUS, "no stage begins");
        std::thread::sleep(Duration::from_millis(10));
    }
    fs::remove_file(&begun).unwrap();
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("nothing was written"));
    let left: Vec<_> = fs::read_dir(&case.dir).unwrap().flatten().map(|e| e.file_name()).collect();
    assert_eq!(left.len(), 2, "the input and the folder for the work: {left:?}");
    assert!(fs::read_dir(case.dir.join("tmp")).unwrap().next().is_none());
}

#[test]
fn a_killed_prove_leaves_neither_a_child_nor_its_input() {
    let case = Case::new("killed");
    let begun = case.dir.with_extension("begun");
    let mut confide = case
        .command(&case.prove_words(&[]))
        .env("STAND_IN_SECONDS", "600")
        .env("STAND_IN_BEGUN", &begun)
        .stderr(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    wait_until("no stage begins", || begun.exists());
    fs::remove_file(&begun).unwrap();
    let children = children_of(confide.id());
    assert!(!children.is_empty(), "the stage runs in a process of its own");
    assert_eq!(files_under(&case.dir.join("tmp")), Vec::<PathBuf>::new(), "nor while it runs");
    confide.kill().unwrap();
    confide.wait().unwrap();
    wait_until("a child of the killed process goes on", || {
        children.iter().all(|child| !is_running(*child))
    });
    assert_eq!(files_under(&case.dir.join("tmp")), Vec::<PathBuf>::new());
    // The empty folder goes with the next command, and one that is in use does not.
    let in_use = case.dir.join("tmp/confide-prove-work-0123456789abcdef");
    fs::create_dir(&in_use).unwrap();
    let lock = fs::File::open(&in_use).unwrap();
    lock.try_lock().unwrap();
    // Nor does somebody's own that is called nearly so.
    let own = ["confide-prove-work-mine", "confide-prove-real", "confide-prove-0123456789abcdef"];
    let own = own.map(|name| case.dir.join("tmp").join(name));
    own.iter().for_each(|own| fs::create_dir(own).unwrap());
    case.prove(&[]);
    let left: Vec<_> = fs::read_dir(case.dir.join("tmp")).unwrap().flatten().collect();
    assert_eq!(left.len(), 4, "{left:?}");
    assert!(in_use.exists() && own.iter().all(|own| own.exists()));
}

#[test]
fn a_run_that_no_app_proof_holds_is_refused_before_it_is_proved() {
    let case = Case::new("segments");
    let begun = case.dir.with_extension("begun");
    let prove = |more: &[&str]| {
        let mut command = case.command(&case.prove_words(more));
        command.env("STAND_IN_SEGMENTS", "130").env("STAND_IN_BEGUN", &begun).output().unwrap()
    };
    let refused = prove(&[]);
    let err = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{err}");
    assert!(err.contains("130") && err.contains("--mode aggregated"), "{err}");
    assert!(!begun.exists(), "nothing is proved: {err}");
    assert!(!case.proof().exists());
}

#[test]
fn a_confide_prover_that_cannot_be_started_is_not_called_missing() {
    let case = Case::new("not-started");
    case.prove(&[]);
    let broken = case.write("broken", b"#!/no/such/interpreter\n");
    fs::set_permissions(&broken, fs::Permissions::from_mode(0o755)).unwrap();
    let proof = case.proof().display().to_string();
    let words = ["verify", "proof", &proof, "--statement", &case.statement(10, 55)];
    let output = case.run(&[&words[..], &["--prover", &broken, "--json"]].concat());
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(2), "{answer}");
    assert_eq!(answer["reason"], "prover_not_started", "{answer}");
    assert!(!answer["detail"].as_str().unwrap().contains("missing"), "{answer}");
}

fn wait_until(otherwise: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < 5 * GENEROUS, "{otherwise}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// State and parent of a process, as /proc tells them after its name.
fn state_of(process: u32) -> Option<(String, u32)> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    Some((fields.next()?.to_string(), fields.next()?.parse().ok()?))
}

fn children_of(parent: u32) -> Vec<u32> {
    let names = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.file_name());
    let processes = names.filter_map(|name| name.to_str()?.parse().ok());
    processes.filter(|process| state_of(*process).is_some_and(|(_, of)| of == parent)).collect()
}

/// The process that adopted it may not have reaped it yet.
fn is_running(process: u32) -> bool {
    state_of(process).is_some_and(|(state, _)| state != "Z" && state != "X")
}

fn files_under(folder: &Path) -> Vec<PathBuf> {
    let (folders, mut files): (Vec<_>, Vec<_>) = fs::read_dir(folder)
        .unwrap()
        .flatten()
        .map(|entry| entry.path())
        .partition(|path| path.is_dir());
    files.extend(folders.iter().flat_map(|folder| files_under(folder)));
    files
}

struct Case {
    dir: PathBuf,
}

impl Case {
    fn new(name: &str) -> Self {
        let name = format!("confide-prove-test-{name}-{}", std::process::id());
        let case = Self { dir: std::env::temp_dir().join(name) };
        fs::create_dir_all(case.dir.join("tmp")).unwrap();
        case.write("input.json", br#"{"n":10}"#);
        case
    }

    fn proof(&self) -> PathBuf {
        self.dir.join("proof")
    }

    fn write(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.dir.join(name);
        fs::write(&path, bytes).unwrap();
        path.display().to_string()
    }

    fn statement(&self, n: u32, value: u64) -> String {
        let statement = json!({"claim": "fibonacci", "n": n, "value": value});
        self.write("statement.json", statement.to_string().as_bytes())
    }

    fn prove_words(&self, more: &[&str]) -> Vec<String> {
        let (input, out) = (self.dir.join("input.json"), self.proof());
        let mut words: Vec<String> = ["prove", "fibonacci", "--input"].map(String::from).into();
        words.extend([input.display().to_string(), "--out".into(), out.display().to_string()]);
        words.extend(["--prover".into(), stand_in().display().to_string()]);
        words.extend(more.iter().map(|word| (*word).to_string()));
        words
    }

    fn prove(&self, more: &[&str]) -> Value {
        let output = self.run(&self.prove_words(&[more, &["--json"]].concat()));
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn verify(&self, more: &[&str]) -> Output {
        let (proof, prover) = (self.proof().display().to_string(), stand_in());
        let prover = prover.display().to_string();
        self.run(&[&["verify", "proof", &proof, "--prover", &prover], more].concat())
    }

    fn verify_json(&self, more: &[&str]) -> (Value, i32) {
        let output = self.verify(&[more, &["--json"]].concat());
        let answer = serde_json::from_slice(&output.stdout);
        (
            answer.unwrap_or_else(|_| panic!("{}", text(&output.stderr))),
            output.status.code().unwrap(),
        )
    }

    fn run(&self, words: &[impl AsRef<std::ffi::OsStr>]) -> Output {
        self.command(words).output().unwrap()
    }

    fn command(&self, words: &[impl AsRef<std::ffi::OsStr>]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_confide"));
        command.args(words).env("TMPDIR", self.dir.join("tmp"));
        command
    }
}

impl Drop for Case {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// A proof file cut open.
struct Parts {
    header: String,
    body: Vec<u8>,
}

const MAGIC: &[u8] = b"confide proof v1\n";

impl Parts {
    fn read(bytes: &[u8]) -> Self {
        let rest = bytes.strip_prefix(MAGIC).unwrap();
        let (length, rest) = rest.split_first_chunk::<4>().unwrap();
        let (header, rest) = rest.split_at(u32::from_be_bytes(*length) as usize);
        Self { header: String::from_utf8(header.to_vec()).unwrap(), body: rest[8..].to_vec() }
    }

    fn with_body(&self, body: &[u8]) -> Vec<u8> {
        file(&self.header, body)
    }

    fn with_header(&self, from: &str, to: &str) -> Vec<u8> {
        assert!(self.header.contains(from), "{from}: {}", self.header);
        file(&self.header.replace(from, to), &self.body)
    }
}

fn file(header: &str, body: &[u8]) -> Vec<u8> {
    let lengths = ((header.len() as u32).to_be_bytes(), (body.len() as u64).to_be_bytes());
    [MAGIC, &lengths.0, header.as_bytes(), &lengths.1, body].concat()
}

fn fibonacci(n: u32, value: u64) -> Vec<u8> {
    let tag: &[u8] = b"confide/statement/v1/fibonacci";
    let fields = [tag, &n.to_be_bytes(), &value.to_be_bytes()];
    let all =
        fields.iter().flat_map(|field| [&(field.len() as u32).to_be_bytes(), *field].concat());
    all.collect()
}

fn digest(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

fn stand_in() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/stand_in/confide-prover")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
