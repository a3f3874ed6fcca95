//! Soundness through the command line, with the real `confide-prover`: skipped by name where it was
//! not built (`make prover` puts it next to the binary). What each byte of a body may be is tested in
//! zkvm/tests.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Memory that cuts the run below into several segments.
const MEMORY: &str = "1543503872";

/// Magic, machine and program in front of a body's segments.
const HEAD_BYTES: usize = 16 + 32 + 32;

const MAGIC: &[u8] = b"confide proof v1\n";

#[test]
fn forged_proofs_are_refused_by_name() {
    let Some(case) = Case::new() else {
        println!("skipped: no confide-prover (make prover)");
        return;
    };
    case.write("input.json", br#"{"fibonacci":{"count":2500,"place":500}}"#);
    let words =
        ["prove", "sort", "--input", "input.json", "--out", "proof", "--memory", MEMORY, "--json"];
    let (proved, status) = case.run(&words);
    assert_eq!(status, 0, "{proved}");
    let pin = hex::encode(Sha256::digest(fs::read(&case.prover).unwrap()));
    let program = proved["program_digest"].as_str().unwrap().to_string();
    let policy = format!(
        "prover_sha256 = \"{pin}\"\nproven_bits_min = 100\n[programs]\nsort = [\"{program}\"]\n"
    );
    case.write("policy.toml", policy.as_bytes());
    case.write("statement.json", proved["statement"].to_string().as_bytes());
    let good = ["--policy", "policy.toml", "--statement", "statement.json"];
    let (answer, status) = case.verify(&good);
    assert_eq!((status, &answer["outcome"]), (0, &json!("accepted")), "{answer}");
    assert_eq!(answer["zero_knowledge"], json!(false));
    assert_eq!(answer["segments"], proved["segments"]);
    assert!(proved["segments"].as_u64().unwrap() >= 2, "{proved}");

    case.refuses_other_expectations(&proved["statement"], &pin);
    case.refuses_forgeries(&fs::read(case.dir.join("proof")).unwrap(), &good, &program);
}

struct Case {
    dir: PathBuf,
    prover: PathBuf,
}

impl Case {
    fn new() -> Option<Self> {
        let beside = Path::new(env!("CARGO_BIN_EXE_confide")).with_file_name("confide-prover");
        let prover = env::var_os("CONFIDE_PROVER").map_or(beside, PathBuf::from);
        let dir = env::temp_dir().join(format!("confide-prove-real-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        prover.is_file().then_some(Self { dir, prover })
    }

    /// What is expected differs: statement, program, mode, bits, prover.
    fn refuses_other_expectations(&self, statement: &Value, pin: &str) {
        let mut other = statement.clone();
        other["value"] = json!(other["value"].as_u64().unwrap() ^ 1);
        self.write("other.json", other.to_string().as_bytes());
        let digest = "ab".repeat(32);
        let policy = |text: &str| {
            self.write("other.toml", text.as_bytes());
            ["--policy", "other.toml"]
        };
        self.check_refusal("another_statement", &["--statement", "other.json"]);
        self.check_refusal("another_program", &["--program", &digest]);
        let pinned = |more: &str| format!("prover_sha256 = \"{pin}\"\n{more}\n");
        self.check_refusal("weaker_parameters", &policy(&pinned("proven_bits_min = 120")));
        self.check_refusal("weaker_parameters", &policy(&pinned("zero_knowledge = true")));
        self.check_refusal("mode", &policy(&pinned("modes = [\"aggregated\"]")));
        let of_another = pinned(&format!("[programs]\nsort = [\"{digest}\"]"));
        self.check_refusal("another_program", &policy(&of_another));
        self.check_refusal("another_prover", &policy(&format!("prover_sha256 = \"{digest}\"\n")));
        self.check_refusal("unpinned_prover", &policy(""));
    }

    /// What was proved differs: the file or the proof in it was changed.
    fn refuses_forgeries(&self, whole: &[u8], good: &[&str], program: &str) {
        let file = Parts::read(whole);
        let segments = |change: &dyn Fn(&mut Vec<Vec<u8>>)| {
            let mut body = Body::read(&file.body);
            change(&mut body.segments);
            file.with_body(&body.join())
        };
        let bytes = |place: usize| {
            let mut body = file.body.clone();
            body[place] ^= 1;
            file.with_body(&body)
        };
        let header = |from: &str, to: &str| file.with_header(from, to);
        for (name, forged) in [
            ("segments", segments(&|all| drop(all.pop()))),
            ("segments", segments(&|all| drop(all.remove(0)))),
            ("segments", segments(&|all| all.swap(0, 1))),
            ("segments", segments(&|all| all.push(all[0].clone()))),
            ("parameters", bytes(16)),
            ("another_program", bytes(HEAD_BYTES - 1)),
            ("malformed_proof", file.with_body(&file.body[..file.body.len() - 1])),
            ("another_program", header(program, &"cd".repeat(32))),
            ("header", header("\"zero_knowledge\":false", "\"zero_knowledge\":true")),
            ("header", header("\"proven_bits\":100", "\"proven_bits\":101")),
            ("another_backend", header("\"openvm\"", "\"sp1\"")),
            ("another_statement", header("\"claim\":\"sort\"", "\"claim\":\"sha256\"")),
        ] {
            fs::write(self.dir.join("proof"), forged).unwrap();
            // Whatever is expected next to it: the forgery itself is what is refused.
            self.check_refusal(name, &["--dangerous-any-statement"]);
        }
        // A changed public value: the file's statement is another one than the proof binds.
        let value = file.header.find("\",\"claim\"").unwrap();
        let mut changed = file.header.clone().into_bytes();
        changed[value - 1] = if changed[value - 1] == b'0' { b'1' } else { b'0' };
        let changed = String::from_utf8(changed).unwrap();
        fs::write(self.dir.join("proof"), frame(&changed, &file.body)).unwrap();
        self.check_refusal("public_values", &["--dangerous-any-statement"]);
        self.check_refusal("another_statement", good);
        // Any byte of the proof itself, wherever it is, under a good expectation.
        for place in (HEAD_BYTES + 8..file.body.len()).step_by(file.body.len() / 6) {
            fs::write(self.dir.join("proof"), bytes(place)).unwrap();
            let (answer, status) = self.verify(good);
            assert_eq!(status, 1, "byte {place}: {answer}");
        }
    }

    fn check_refusal(&self, name: &str, more: &[&str]) {
        let (answer, status) = self.verify(more);
        assert_eq!((status, &answer["reason"]), (1, &json!(name)), "{more:?}: {answer}");
    }

    fn verify(&self, more: &[&str]) -> (Value, i32) {
        self.run(&[&["verify", "proof", "proof", "--json"], more].concat())
    }

    fn run(&self, words: &[&str]) -> (Value, i32) {
        let output = Command::new(env!("CARGO_BIN_EXE_confide"))
            .args(words)
            .arg("--prover")
            .arg(&self.prover)
            .current_dir(&self.dir)
            .output()
            .unwrap();
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

/// A proof file cut open.
struct Parts {
    header: String,
    body: Vec<u8>,
}

impl Parts {
    fn read(bytes: &[u8]) -> Self {
        let rest = bytes.strip_prefix(MAGIC).unwrap();
        let (length, rest) = rest.split_first_chunk::<4>().unwrap();
        let (header, rest) = rest.split_at(u32::from_be_bytes(*length) as usize);
        Self { header: String::from_utf8(header.to_vec()).unwrap(), body: rest[8..].to_vec() }
    }

    fn with_body(&self, body: &[u8]) -> Vec<u8> {
        frame(&self.header, body)
    }

    fn with_header(&self, from: &str, to: &str) -> Vec<u8> {
        assert!(self.header.contains(from), "{from}: {}", self.header);
        frame(&self.header.replacen(from, to, 1), &self.body)
    }
}

fn frame(header: &str, body: &[u8]) -> Vec<u8> {
    let lengths = ((header.len() as u32).to_be_bytes(), (body.len() as u64).to_be_bytes());
    [MAGIC, &lengths.0, header.as_bytes(), &lengths.1, body].concat()
}

/// A body of mode `app` cut at its lengths: head, segments, public values.
struct Body {
    head: Vec<u8>,
    segments: Vec<Vec<u8>>,
    rest: Vec<u8>,
}

impl Body {
    fn read(bytes: &[u8]) -> Self {
        let (head, mut rest) = bytes.split_at(HEAD_BYTES);
        let (count, left) = rest.split_first_chunk::<4>().unwrap();
        rest = left;
        let mut segments = Vec::new();
        for _ in 0..u32::from_le_bytes(*count) {
            let (length, left) = rest.split_first_chunk::<4>().unwrap();
            let (segment, left) = left.split_at(u32::from_le_bytes(*length) as usize);
            segments.push(segment.to_vec());
            rest = left;
        }
        Self { head: head.to_vec(), segments, rest: rest.to_vec() }
    }

    fn join(&self) -> Vec<u8> {
        let mut bytes = self.head.clone();
        bytes.extend((self.segments.len() as u32).to_le_bytes());
        for segment in &self.segments {
            bytes.extend((segment.len() as u32).to_le_bytes());
            bytes.extend(segment);
        }
        bytes.extend(&self.rest);
        bytes
    }
}
