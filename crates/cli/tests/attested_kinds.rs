//! Every kind of evidence through the real program, gateway and connect each a process.
//!
//! All evidence here is simulated.

use std::path::{Path, PathBuf};

use confide_tests::{ANY_PORT, Folder, Process, Program, text};
use serde_json::Value;

const CONFIDE: Program = Program(env!("CARGO_BIN_EXE_confide"));
/// No test listens here (RFC 863 discard).
const NOBODY: &str = "http://127.0.0.1:9";
const SEED: &str = "0202020202020202020202020202020202020202020202020202020202020202";

#[test]
fn every_kind_of_evidence_is_accepted_by_its_own_policy_with_either_binding() {
    for tee in ["tdx", "tdx-v5", "sgx", "snp"] {
        let folder = Folder::new(tee);
        let attester = simulate(&folder, "attester", &["--simulate", tee]);
        for binding in ["key", "session"] {
            let gateway = gateway(&attester, binding);
            let connect = connect(&gateway, &attester.join("policy.toml"), binding);
            let ready =
                connect.unwrap_or_else(|error| panic!("{tee} {binding}: {error}")).ready.clone();
            assert_eq!(ready["guarantee"], "none (simulated)", "{tee} {binding}");
        }
    }
}

#[test]
fn evidence_of_one_kind_is_refused_by_the_policy_of_another() {
    let folder = Folder::new("other");
    let tdx = simulate(&folder, "tdx", &["--simulate", "tdx", "--seed", SEED]);
    let snp = simulate(&folder, "snp", &["--simulate", "snp", "--seed", SEED]);
    for (shown, wanted) in [(&tdx, &snp), (&snp, &tdx)] {
        let gateway = gateway(shown, "session");
        let refused = connect(&gateway, &wanted.join("policy.toml"), "session").map(drop);
        assert!(refused.unwrap_err().contains("is not accepted"));
    }
}

#[test]
fn a_required_gpu_is_accepted_over_this_session_and_missed_where_it_is_not_shown() {
    for tee in ["tdx", "snp"] {
        let folder = Folder::new(&format!("gpu-{tee}"));
        let with = ["--simulate", tee, "--seed", SEED, "--gpu"];
        let with = simulate(&folder, "with", &with);
        let without = simulate(&folder, "without", &["--simulate", tee, "--seed", SEED]);
        let policy = with.join("policy.toml");
        let accepted = connect(&gateway(&with, "session"), &policy, "session");
        let ready = accepted.unwrap_or_else(|error| panic!("{tee}: {error}")).ready.clone();
        assert!(is_passed(&ready, "gpu"), "{ready}");
        // The same machine without its GPU, and the GPU with a binding that carries none.
        for (attester, binding) in [(&without, "session"), (&with, "key")] {
            let refused = connect(&gateway(attester, binding), &policy, binding).map(drop);
            let error = refused.expect_err("a policy with a required GPU let it pass");
            assert!(error.contains("check `gpu` failed"), "{tee} {binding}: {error}");
        }
        // Another machine's GPU: its roots are not those of the policy.
        let other = simulate(&folder, "other", &["--simulate", tee, "--gpu"]);
        let refused = connect(&gateway(&other, "session"), &policy, "session").map(drop);
        assert!(refused.unwrap_err().contains("is not accepted"), "{tee}");
        // A policy that knows nothing of GPUs does not wave one through whose root it does not
        // trust.
        let shown = connect(&gateway(&with, "session"), &without.join("policy.toml"), "session");
        let error = shown.map(drop).expect_err("a GPU under an unknown root was accepted");
        assert!(error.contains("is not accepted"), "{tee}: {error}");
    }
}

#[test]
fn a_gpu_is_asked_for_with_session_binding_only() {
    let arguments = ["gateway", "--listen", ANY_PORT, "--upstream", NOBODY, "--gpu-index", "0"];
    let ended = CONFIDE.run(&arguments);
    assert_eq!(ended.status, Some(2));
    let stderr = ended.stderr;
    assert!(stderr.contains("session binding only") && stderr.contains("hint: "), "{stderr}");
}

fn is_passed(ready: &Value, name: &str) -> bool {
    let checks = ready["checks"].as_array().unwrap();
    checks.iter().any(|check| check["name"] == name && check["outcome"] == "passed")
}

fn gateway(attester: &Path, binding: &str) -> Process {
    let where_to = ["gateway", "--listen", ANY_PORT, "--upstream", NOBODY];
    let evidence = ["--upstream-wait-s", "0", "--simulate", text(attester), "--binding", binding];
    CONFIDE.start(&[&where_to[..], &evidence].concat())
}

/// What it says on its error output, where it does not become ready.
fn connect(gateway: &Process, policy: &Path, binding: &str) -> Result<Process, String> {
    let url = format!("https://{}", gateway.ready["listen"].as_str().unwrap());
    // A GPU's signature in a build without optimisation takes its time.
    let more = ["--listen", ANY_PORT, "--deadline-ms", "60000"];
    let arguments = ["connect", &url, "--policy", text(policy), "--binding", binding];
    Process::try_start(&mut CONFIDE.command(&[&arguments[..], &more].concat()))
}

fn simulate(folder: &Folder, name: &str, arguments: &[&str]) -> PathBuf {
    let out = folder.argument(name);
    let fixed = ["attest", "--dangerous-platform-scope", "--out", &out];
    let made = CONFIDE.run(&[&fixed[..], arguments].concat());
    assert_eq!(made.status, Some(0), "{}", made.stderr);
    out.into()
}
