//! A signature proved and checked through the command line, with what openssl made.

use std::{
    fs,
    process::{Command, Output},
};

use confide_tests::Folder;
use serde_json::Value;

/// A folder with a key, its certificate, a message and a signature; `None` without openssl.
struct Signer(Folder);

impl Signer {
    fn new(name: &str, parameter: &str) -> Option<Self> {
        if Command::new("openssl").arg("version").output().is_err() {
            eprintln!("skipped: no openssl");
            return None;
        }
        let folder = Self(Folder::new(&format!("prove-{name}")));
        let algorithm = if parameter.starts_with("rsa") { "RSA" } else { "EC" };
        folder.openssl(&["genpkey", "-algorithm", algorithm, "-pkeyopt", parameter, "-out", "key"]);
        folder.openssl(&["req", "-new", "-x509", "-key", "key", "-subj", "/CN=s", "-out", "pem"]);
        fs::write(folder.0.join("message"), b"the signed text").unwrap();
        folder.openssl(&["dgst", "-sha256", "-sign", "key", "-out", "signature", "message"]);
        Some(folder)
    }

    fn openssl(&self, arguments: &[&str]) -> String {
        let output =
            Command::new("openssl").args(arguments).current_dir(self.0.path()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn confide(&self, line: &str) -> Output {
        let program = env!("CARGO_BIN_EXE_confide");
        Command::new(program).args(line.split(' ')).current_dir(self.0.path()).output().unwrap()
    }
}

const PROVE: &str =
    "prove signature --certificate pem --message message --signature signature --out proof";
const VERIFY: &str = "verify proof proof --certificate pem --message message";

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_signature_is_proved_and_the_proof_accepted_for_what_it_says_only() {
    for parameter in ["rsa_keygen_bits:2048", "ec_paramgen_curve:P-256"] {
        let Some(folder) = Signer::new("walk", parameter) else { return };
        let made = folder.confide(&format!("{PROVE} --context 0badcafe --json"));
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let facts = json(&made);
        assert_eq!(facts["zero_knowledge"], true);
        assert!(facts["proof_bytes"].as_u64().unwrap() < 2200);
        let yes = folder.confide(&format!("{VERIFY} --context 0badcafe --json"));
        assert_eq!(yes.status.code(), Some(0));
        assert_eq!(json(&yes)["outcome"], "accepted");
        let text = folder.confide(&format!("{VERIFY} --context 0badcafe"));
        let text = String::from_utf8(text.stdout).unwrap();
        for wanted in ["zero-knowledge     yes", "hidden ", "back end ", "accepted           yes"] {
            assert!(text.contains(wanted), "{wanted} is not in {text}");
        }
        fs::write(folder.0.join("other"), b"another text").unwrap();
        let refused = [
            (VERIFY.to_string(), "other_context"),
            (VERIFY.replace("--message message", "--message other"), "other_message"),
        ];
        for (line, reason) in refused {
            let no = folder.confide(&format!("{line} --json"));
            assert_eq!(no.status.code(), Some(1), "{line}");
            assert_eq!(json(&no)["reason"], reason);
        }
    }
}

#[test]
fn another_key_and_a_changed_proof_are_refused_by_name() {
    let Some(folder) = Signer::new("changed", "ec_paramgen_curve:P-256") else { return };
    assert!(folder.confide(PROVE).status.success());
    let mut proof = fs::read(folder.0.join("proof")).unwrap();
    *proof.last_mut().unwrap() ^= 1;
    fs::write(folder.0.join("proof"), proof).unwrap();
    let no = folder.confide(&format!("{VERIFY} --json"));
    assert_eq!((no.status.code(), &json(&no)["reason"]), (Some(1), &"proof_does_not_hold".into()));
    let Some(other) = Signer::new("other", "ec_paramgen_curve:P-256") else { return };
    fs::copy(other.0.join("pem"), folder.0.join("pem")).unwrap();
    let no = folder.confide(&format!("{VERIFY} --json"));
    assert_eq!((no.status.code(), &json(&no)["reason"]), (Some(1), &"other_key".into()));
}

#[test]
fn what_cannot_be_judged_is_no_yes() {
    let Some(folder) = Signer::new("unjudged", "ec_paramgen_curve:P-256") else { return };
    assert!(folder.confide(PROVE).status.success());
    for (line, reason) in [
        ("verify proof proof --message message --json", "missing_input"),
        ("verify proof proof --certificate pem --json", "missing_input"),
        ("verify proof signature --certificate pem --message message --json", "malformed_file"),
        (&format!("{VERIFY} --at 7 --json"), "option_of_another_kind"),
    ] {
        let output = folder.confide(line);
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert_eq!(json(&output)["reason"], reason, "{line}");
    }
}

#[test]
fn what_is_no_signature_is_not_proved_and_a_public_one_is_called_pointless() {
    let Some(folder) = Signer::new("pointless", "rsa_keygen_bits:2048") else { return };
    let wrong = PROVE.replace("--message message", "--message key");
    assert_eq!(folder.confide(&wrong).status.code(), Some(2));
    assert!(!folder.0.join("proof").exists());
    let plain = folder.confide(&format!("{PROVE} --json"));
    assert!(json(&plain)["pointless"].is_null());
    // A certificate's own signature, which everybody has who has the certificate.
    let list = folder.openssl(&["asn1parse", "-in", "pem"]);
    let last = list.lines().rfind(|line| line.contains("BIT STRING")).unwrap();
    let at = last.split(':').next().unwrap().trim();
    folder.openssl(&["asn1parse", "-in", "pem", "-strparse", at, "-out", "signature", "-noout"]);
    folder.openssl(&["asn1parse", "-in", "pem", "-strparse", "4", "-out", "message", "-noout"]);
    let pointless = folder.confide(&format!("{PROVE} --json"));
    assert!(pointless.status.success(), "{}", String::from_utf8_lossy(&pointless.stderr));
    assert!(json(&pointless)["pointless"].as_str().unwrap().starts_with("pem holds"));
}
