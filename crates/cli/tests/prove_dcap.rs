//! `confide prove dcap` on a real quote as people type it, and what `confide verify proof` compares.
//!
//! Native run and emulation are the real `confide-prover`'s; the proof is the stand-in's, since a real
//! one takes a minute (the ignored test makes it: `make long`). Skipped by name where `confide-prover`
//! was not built, where the foreign vectors are absent, or where there is no python3.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use confide_tests::Folder;
use serde_json::{Value, json};

/// An instant at which quote and collateral hold together.
const AT: &str = "1784102583";

/// Where a TDX quote of version 4 has them: header, then the body's offsets (Intel, DCAP).
const MRTD: std::ops::Range<usize> = 48 + 136..48 + 184;
const REPORT_DATA: std::ops::Range<usize> = 48 + 520..48 + 584;

#[test]
fn a_real_quote_is_emulated_and_its_statement_is_compared_with_what_is_expected() {
    let Some(case) = Case::new("emulated") else { return };
    let proved = case.prove(&stand_in(), &[]);
    let statement = &proved["statement"];
    let hex = |range: std::ops::Range<usize>| json!(hex::encode(&case.quote[range]));
    assert_eq!(statement["claim"], "dcap");
    assert_eq!(statement["measurements"]["tee"], "tdx");
    assert_eq!(statement["measurements"]["mrtd"], hex(MRTD));
    assert_eq!(statement["report_data"], hex(REPORT_DATA));
    assert_eq!(
        (&statement["tcb_status"], &statement["verdict"]),
        (&json!("UpToDate"), &json!("accepted"))
    );
    assert!(proved["cycles"].as_u64().unwrap() < 3_000_000, "{proved}");
    // The same quote, judged without any proof.
    let judged = case.confide(&[
        "verify",
        "quote",
        &case.quote_path,
        "--collateral",
        &case.collateral_path,
        "--at",
        AT,
        "--json",
    ]);
    assert_eq!(judged.1, 0, "{}", judged.0);
    case.compares(&stand_in(), statement);
}

#[test]
#[ignore = "a proof of a quote takes a minute of two cores and 4 GB"]
fn a_real_quote_is_proved() {
    let Some(case) = Case::new("proved") else { return };
    let prover = case.real.clone();
    let proved = case.prove(&prover, &[]);
    assert_eq!(proved["backend"], "openvm");
    case.compares(&prover, &proved["statement"]);
}

struct Case {
    dir: Folder,
    vectors: PathBuf,
    real: PathBuf,
    quote: Vec<u8>,
    quote_path: String,
    collateral_path: String,
}

impl Case {
    fn new(name: &str) -> Option<Self> {
        let beside = Path::new(env!("CARGO_BIN_EXE_confide")).with_file_name("confide-prover");
        let real = env::var_os("CONFIDE_PROVER").map_or(beside, PathBuf::from);
        let vectors = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/vectors");
        let quote_path = vectors.join("quotes/tdx-v4-gcp-a.bin");
        let collateral_path = vectors.join("collateral/00806f-2026-06-eval19.json");
        let python = Command::new("python3").arg("--version").output();
        let lacks = [
            (real.is_file(), "no confide-prover (make prover)"),
            (quote_path.is_file(), "no foreign vectors"),
            (python.is_ok(), "no python3"),
        ];
        if let Some((_, what)) = lacks.iter().find(|(there, _)| !there) {
            println!("skipped: {what}");
            return None;
        }
        let dir = Folder::new(&format!("prove-dcap-{name}"));
        let text = |path: &Path| path.display().to_string();
        let (quote, collateral_path) = (fs::read(&quote_path).unwrap(), text(&collateral_path));
        Some(Self { dir, vectors, real, quote, quote_path: text(&quote_path), collateral_path })
    }

    fn prove(&self, prover: &Path, more: &[&str]) -> Value {
        let prover = prover.display().to_string();
        let words = [
            "prove",
            "dcap",
            "--quote",
            &self.quote_path,
            "--collateral",
            &self.collateral_path,
            "--at",
            AT,
            "--out",
            "proof",
            "--json",
            "--prover",
            &prover,
        ];
        let (answer, status) = self.confide(&[&words[..], more].concat());
        assert_eq!(status, 0, "{answer}");
        answer
    }

    /// A yes under what the quote is, and a no by name under each other expectation.
    fn compares(&self, prover: &Path, statement: &Value) {
        let text = |value: &Value| value.as_str().unwrap().to_string();
        let (data, mrtd) =
            (text(&statement["report_data"]), text(&statement["measurements"]["mrtd"]));
        let policy = |mrtd: &str| {
            let any: String =
                ["rtmr0", "rtmr1", "rtmr2", "rtmr3", "mrconfigid", "mrowner", "mrownerconfig"]
                    .iter()
                    .map(|name| format!("{name} = \"dangerous-any\"\n"))
                    .collect();
            format!("[workload.tdx]\nmrtd = \"{mrtd}\"\n{any}")
        };
        fs::write(self.dir.join("good.toml"), policy(&mrtd)).unwrap();
        fs::write(self.dir.join("other.toml"), policy(&"ab".repeat(48))).unwrap();
        let late = "tcb_evaluation_data_number_min = 1000\n";
        fs::write(self.dir.join("late.toml"), late).unwrap();
        fs::write(self.dir.join("statement.json"), statement.to_string()).unwrap();
        let mut changed = statement.clone();
        changed["report_data"] = json!("ab".repeat(64));
        fs::write(self.dir.join("changed.json"), changed.to_string()).unwrap();
        let beside = |path: &str| self.vectors.join(path).display().to_string();
        let intel = beside("roots/intel-sgx-root-ca.der");
        let another = beside("snp/milan-a-vcek.der");
        let until = (statement["valid_until"].as_u64().unwrap() + 1).to_string();
        let from = (statement["valid_from"].as_u64().unwrap() - 1).to_string();
        let other_data = "ab".repeat(64);
        let (at, any) = (["--at", AT], "--dangerous-any-statement");
        let good = ["--at", AT, "--report-data", &data, "--evidence-policy", "good.toml"];
        for (wanted, words) in [
            (Value::Null, [&good[..], &["--statement", "statement.json"]].concat()),
            (Value::Null, [&at[..], &["--root", &intel]].concat()),
            (json!("another_statement"), [&at[..], &["--statement", "changed.json"]].concat()),
            (json!("root"), [&at[..], &["--root", &another]].concat()),
            (json!("validity"), vec!["--at", &until, any]),
            (json!("validity"), vec!["--at", &from, any]),
            (json!("report_data"), [&at[..], &["--report-data", &other_data]].concat()),
            (json!("measurements"), [&at[..], &["--evidence-policy", "other.toml"]].concat()),
            (json!("evaluation_number"), [&at[..], &["--evidence-policy", "late.toml"]].concat()),
        ] {
            let prover = prover.display().to_string();
            let first = ["verify", "proof", "proof", "--json", "--prover", &prover];
            let (answer, status) = self.confide(&[&first[..], &words].concat());
            let no = i32::from(!wanted.is_null());
            assert_eq!((status, &answer["reason"]), (no, &wanted), "{words:?}: {answer}");
        }
    }

    fn confide(&self, words: &[&str]) -> (Value, i32) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_confide"));
        command.args(words).current_dir(self.dir.path()).env("STAND_IN_REAL", &self.real);
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let answer = serde_json::from_slice(&output.stdout).unwrap_or(Value::String(text));
        (answer, output.status.code().unwrap_or(-1))
    }
}

fn stand_in() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/stand_in/confide-prover")
}
