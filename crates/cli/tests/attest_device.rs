//! The real program on a machine whose configfs-tsm tree is *simulated*: one process serves the
//! tree, others attest through it.

#[path = "../../attester/tests/namespace/mod.rs"]
mod namespace;

use std::{
    path::Path,
    process::Output,
    time::{SystemTime, UNIX_EPOCH},
};

use confide_tests::{Program, text};
use namespace::with_private_mounts;
use serde_json::Value;

const CONFIDE: Program = Program(env!("CARGO_BIN_EXE_confide"));

#[test]
fn evidence_comes_through_the_served_tree_and_is_verified() {
    with_private_mounts("evidence_comes_through_the_served_tree_and_is_verified", |folder| {
        let report_data = "abcd".repeat(32);
        let tree = folder.with_extension("tree");
        let (sim, dev) = (folder.with_extension("sim"), folder.with_extension("dev"));
        let serve = CONFIDE.start(&[
            "attest",
            "--simulate",
            "tdx",
            "--tsm",
            text(&tree),
            "--out",
            text(&sim),
        ]);
        assert_eq!(serve.ready["simulated"], true);
        // Not before the endorsements were issued: that is at their program's start.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs().to_string();
        let attest = run(&[
            "attest",
            "--tsm-root",
            text(&tree),
            "--report-data",
            &report_data,
            "--out",
            text(&dev),
        ]);
        assert!(attest.status.success(), "{}", all_output(&attest));
        assert!(all_output(&attest).contains("simulated"), "{}", all_output(&attest));
        let (evidence, policy) = (dev.join("evidence.bin"), sim.join("policy.toml"));
        let verified = run(&[
            "verify",
            "quote",
            text(&evidence),
            "--policy",
            text(&policy),
            "--collateral",
            text(&sim.join("collateral.json")),
            "--report-data",
            &report_data,
            "--at",
            &now,
        ]);
        assert_eq!(verified.status.code(), Some(0), "{}", all_output(&verified));
        let detected = run(&["attest", "--detect", "--json", "--tsm-root", text(&tree)]);
        let detected: Value = serde_json::from_slice(&detected.stdout).unwrap();
        assert_eq!(detected["devices"][0]["device"], "configfs-tsm");
        assert_eq!(detected["devices"][0]["present"], true);
        servers_attest_with_the_tree(&tree, &sim);
        assert!(serve.terminate().success());
        assert!(!tree.join("report").exists(), "the tree was left mounted");
        for folder in [tree, sim, dev] {
            std::fs::remove_dir_all(folder).unwrap();
        }
    });
}

/// The gateway and the appraisal service, each with the tree as its device.
fn servers_attest_with_the_tree(tree: &Path, sim: &Path) {
    let gateway = CONFIDE.start(&[
        "gateway",
        "--listen",
        "127.0.0.1:0",
        "--upstream",
        "http://127.0.0.1:9",
        "--upstream-wait-s",
        "0",
        "--attester",
        "device",
        "--tsm-root",
        text(tree),
        "--collateral",
        text(&sim.join("collateral.json")),
    ]);
    assert_eq!(gateway.ready["guarantee"], "none (simulated)");
    assert!(gateway.terminate().success());
    let service = CONFIDE.start(&[
        "verify",
        "serve",
        "--policy",
        &format!("fleet={}", text(&sim.join("policy.toml"))),
        "--audience",
        "test",
        "--attester",
        "device",
        "--tsm-root",
        text(tree),
    ]);
    assert_eq!(service.ready["guarantee"], "none (simulated)");
    assert_eq!(service.ready["own_evidence"], "simulated");
    assert!(service.terminate().success());
}

#[test]
fn a_machine_without_a_device_is_told_what_to_try() {
    let nowhere = std::env::temp_dir().join("confide-nowhere");
    let attest = run(&["attest", "--tsm-root", text(&nowhere), "--out", text(&nowhere)]);
    assert_eq!(attest.status.code(), Some(2));
    let output = all_output(&attest);
    assert!(output.contains("no device") && output.contains("hint: "), "{output}");
    let detected = run(&["attest", "--detect", "--tsm-root", text(&nowhere)]);
    assert!(detected.status.success());
    let text = String::from_utf8(detected.stdout).unwrap();
    assert!(text.starts_with("configfs-tsm   absent\n"), "{text}");
}

fn run(arguments: &[&str]) -> Output {
    CONFIDE.command(arguments).output().expect("it runs")
}

fn all_output(output: &Output) -> String {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}
