//! Aggregated proofs through the command line. Making one takes minutes: the one that zkvm/tests
//! keeps is put into a file here, and the ignored test makes one (`make long`). Skipped by name where
//! `confide-prover` was not built (`make prover` puts it next to the binary).

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

const MAGIC: &[u8] = b"confide proof v1\n";

/// What the issue promises of the size of an aggregated proof, whatever was proved.
const BYTES_MAX: u64 = 270_000;

#[test]
fn a_kept_aggregated_proof_is_accepted_and_its_forgeries_are_refused_by_name() {
    let Some(case) = Case::new("kept") else { return };
    let body = fs::read(repository("zkvm/tests/data/fibonacci-10.aggregated")).unwrap();
    let header = header();
    let program = header["program_digest"].as_str().unwrap().to_string();
    let pin = hex::encode(Sha256::digest(fs::read(&case.prover).unwrap()));
    let policy = |modes: &str| {
        format!(
            "prover_sha256 = \"{pin}\"\nmodes = [\"{modes}\"]\nproven_bits_min = 100\n[programs]\n\
             fibonacci = [\"{program}\"]\n"
        )
    };
    case.write("policy.toml", policy("aggregated").as_bytes());
    case.write("app.toml", policy("app").as_bytes());
    case.write("statement.json", statement(10, 55).to_string().as_bytes());
    case.write("other.json", statement(10, 54).to_string().as_bytes());
    case.write("proof", &file(&header, &body));
    let good = ["--policy", "policy.toml", "--statement", "statement.json"];
    let (answer, status) = case.verify(&good);
    assert_eq!((status, &answer["mode"]), (0, &json!("aggregated")), "{answer}");
    assert!(answer["proof_bytes"].as_u64().unwrap() <= BYTES_MAX, "{answer}");
    case.check_refusal("mode", &["--policy", "app.toml"]);
    case.check_refusal("another_statement", &["--statement", "other.json"]);

    let changed = |field: &str, value: Value| {
        let mut header = header.clone();
        header[field] = value;
        file(&header, &body)
    };
    let flipped = |place: usize| {
        let mut body = body.clone();
        body[place] ^= 1;
        file(&header, &body)
    };
    for (name, bytes) in [
        ("malformed_proof", changed("mode", json!("app"))),
        ("public_values", changed("statement", json!(hex::encode(encode(10, 54))))),
        ("header", changed("proven_bits", json!(101))),
        ("header", changed("zero_knowledge", json!(true))),
        ("another_program", changed("program_digest", json!("cd".repeat(32)))),
        ("another_backend", changed("backend_version", json!("2.0.1"))),
        ("parameters", flipped(16)),
        ("another_program", flipped(48)),
        ("malformed_proof", file(&header, &body[..body.len() - 1])),
    ] {
        case.write("proof", &bytes);
        case.check_refusal(name, &["--dangerous-any-statement"]);
    }
    for place in (84..body.len()).step_by(body.len() / 5) {
        case.write("proof", &flipped(place));
        let (answer, status) = case.verify(&good);
        assert_eq!(status, 1, "byte {place}: {answer}");
    }
}

#[test]
#[ignore = "an aggregated proof takes minutes and 2.3 GB"]
fn an_aggregated_proof_is_made_and_accepted() {
    let Some(case) = Case::new("made") else { return };
    case.write("input.json", br#"{"n":10}"#);
    let words = ["prove", "fibonacci", "--input", "input.json", "--mode", "aggregated"];
    let (proved, status) = case.run(&[&words[..], &["--out", "proof", "--json"]].concat());
    assert_eq!(status, 0, "{proved}");
    assert_eq!(proved["mode"], "aggregated");
    assert!(proved["proof_bytes"].as_u64().unwrap() <= BYTES_MAX, "{proved}");
    case.write("statement.json", statement(10, 55).to_string().as_bytes());
    let (answer, status) = case.verify(&["--statement", "statement.json"]);
    assert_eq!(status, 0, "{answer}");
}

struct Case {
    dir: PathBuf,
    prover: PathBuf,
}

impl Case {
    fn new(name: &str) -> Option<Self> {
        let beside = Path::new(env!("CARGO_BIN_EXE_confide")).with_file_name("confide-prover");
        let prover = env::var_os("CONFIDE_PROVER").map_or(beside, PathBuf::from);
        if !prover.is_file() {
            println!("skipped: no confide-prover (make prover)");
            return None;
        }
        let dir = env::temp_dir().join(format!("confide-aggregated-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        Some(Self { dir, prover })
    }

    fn check_refusal(&self, name: &str, more: &[&str]) {
        let (answer, status) = self.verify(more);
        assert_eq!((status, &answer["reason"]), (1, &json!(name)), "{more:?}: {answer}");
    }

    fn verify(&self, more: &[&str]) -> (Value, i32) {
        self.run(&[&["verify", "proof", "proof", "--json"], more].concat())
    }

    fn run(&self, words: &[&str]) -> (Value, i32) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_confide"));
        command.args(words).arg("--prover").arg(&self.prover).current_dir(&self.dir);
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let answer = serde_json::from_slice(&output.stdout).unwrap_or(Value::String(text));
        (answer, output.status.code().unwrap_or(-1))
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.dir.join(name), bytes).unwrap();
    }
}

impl Drop for Case {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// The header that `confide prove` would write for the kept proof.
fn header() -> Value {
    let text = fs::read_to_string(repository("zkvm/keys/programs.json")).unwrap();
    let records: Vec<Value> = serde_json::from_str(&text).unwrap();
    let record = records.iter().find(|record| record["claim"] == "fibonacci").unwrap();
    json!({
        "statement": hex::encode(encode(10, 55)),
        "claim": "fibonacci",
        "program_digest": record["program_digest"],
        "backend": "openvm",
        "backend_version": "2.0.2",
        "mode": "aggregated",
        "proven_bits": 100,
        "conjectured_bits": 100,
        "zero_knowledge": false,
        "segments": 1,
        "cycles": 1179,
    })
}

/// The file: the header in its one spelling (docs/prove.md, "The file").
fn file(header: &Value, body: &[u8]) -> Vec<u8> {
    let fields = [
        "statement",
        "claim",
        "program_digest",
        "backend",
        "backend_version",
        "mode",
        "proven_bits",
        "conjectured_bits",
        "zero_knowledge",
        "segments",
        "cycles",
    ];
    let fields: Vec<String> =
        fields.iter().map(|name| format!("\"{name}\":{}", header[*name])).collect();
    let header = format!("{{{}}}", fields.join(","));
    let lengths = ((header.len() as u32).to_be_bytes(), (body.len() as u64).to_be_bytes());
    [MAGIC, &lengths.0, header.as_bytes(), &lengths.1, body].concat()
}

fn statement(n: u32, value: u64) -> Value {
    json!({"claim": "fibonacci", "n": n, "value": value})
}

fn encode(n: u32, value: u64) -> Vec<u8> {
    let tag: &[u8] = b"confide/statement/v1/fibonacci";
    let fields = [tag, &n.to_be_bytes(), &value.to_be_bytes()];
    fields.iter().flat_map(|field| [&(field.len() as u32).to_be_bytes(), *field].concat()).collect()
}

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}
