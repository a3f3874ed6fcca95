//! `confide verify evidence` over a published report of a real GPU, and a simulated one.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use confide_fake_attester::{FakeGpu, GpuOptions};
use serde_json::Value;

/// 2026-01-01.
const NOW_S: &str = "1767225600";

#[test]
fn a_published_report_gets_the_verdict_of_its_vectors() {
    let folder = std::env::var_os("CONFIDE_SHARED")
        .map(PathBuf::from)
        .unwrap_or_else(|| concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared").into());
    let gpu = folder.join("vectors/gpu");
    let report = gpu.join("hopper-report.hex.txt");
    let Ok(text) = fs::read_to_string(&report) else {
        return println!("skipped: no foreign vectors");
    };
    let nonce = &text.trim()[8..72];
    let chain = gpu.join("hopper-cert-chain.pem");
    let (json, status) = verify(&report, &chain, nonce, &[]);
    assert_eq!((json["outcome"].as_str(), status), (Some("accepted"), 0), "{json}");
    assert_eq!(json["claims"]["driver"], "550.90.07");
    let other_nonce = "00".repeat(32);
    for (chain, nonce) in [
        ("bad-chain-gap.txt", nonce),
        ("bad-chain-root-only.txt", nonce),
        ("hopper-cert-chain.pem", &other_nonce),
    ] {
        let (json, status) = verify(&report, &gpu.join(chain), nonce, &[]);
        assert_eq!((json["outcome"].as_str(), status), (Some("rejected"), 1), "{chain}: {json}");
    }
    let raw = temporary("raw.bin");
    fs::write(&raw, hex::decode(text.trim()).expect("hexadecimal")).expect("a file");
    assert_eq!(verify(&raw, &chain, nonce, &[]).1, 0);
}

#[test]
fn a_simulated_container_needs_its_root_and_a_nonce() {
    let now_s = NOW_S.parse().expect("a number");
    let gpu =
        FakeGpu::new(GpuOptions { rims: false, ocsp: false, ..GpuOptions::new([5; 32], now_s) });
    let gpu = gpu.expect("a simulated GPU");
    let (file, root) = (temporary("gpu.bin"), temporary("gpu-root.der"));
    fs::write(&file, gpu.evidence(&[0x5a; 32])).expect("a file");
    fs::write(&root, gpu.root_ders()[0]).expect("a file");
    let (file, root) = (file.display().to_string(), root.display().to_string());
    let nonce = "5a".repeat(32);
    let run = |extra: &[&str]| {
        let args = ["verify", "evidence", &file, "--at", NOW_S, "--json"];
        read(confide().args(args).args(extra).output().expect("it runs"))
    };
    assert_eq!(run(&["--nonce", &nonce, "--root", &root]).1, 0);
    assert_eq!(run(&["--nonce", &nonce]).1, 1);
    assert_eq!(run(&["--root", &root]).1, 2);
    assert_eq!(run(&["--nonce", &nonce, "--root", &file]).1, 2);
}

fn verify(report: &Path, chain: &Path, nonce: &str, extra: &[&str]) -> (Value, i32) {
    let mut command = confide();
    command.args(["verify", "evidence"]).arg(report).arg("--chain").arg(chain);
    command.args(["--nonce", nonce, "--at", NOW_S, "--json"]).args(extra);
    read(command.output().expect("it runs"))
}

fn read(output: Output) -> (Value, i32) {
    let json = serde_json::from_slice(&output.stdout).expect("one JSON object");
    (json, output.status.code().expect("an exit status"))
}

fn confide() -> Command {
    Command::new(env!("CARGO_BIN_EXE_confide"))
}

fn temporary(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}
