//! Evidence of every kind at the command line: accepted, refused, or not readable.

use std::fs;

use clap::Parser;
use confide_evidence::{claims::Claims, tagged_evidence::TaggedEvidence};
use confide_fake_attester::{
    FakeAttester, FakeAttesterOptions, FakeGpu, Fault, GpuOptions, Mode, Tee,
};
use confide_verifier::{AwsLc, Outcome, POLICY_LENGTH_MAX, Reason};

use super::*;

#[test]
fn a_quote_of_each_version_and_a_report_are_found_out_and_judged() {
    for tee in [Tee::Sgx, Tee::Tdx, Tee::TdxV5, Tee::Snp] {
        let case = Case::new(&format!("each-{tee:?}"), tee, None);
        let AcceptedEvidence::Cpu(accepted) = case.judge(&[]).unwrap().unwrap() else {
            panic!("no CPU")
        };
        assert!(accepted.to_json()["claims"]["tee"].is_string());
        let answer = case.report(&[]);
        assert!(answer.text.contains("accepted") && !answer.json.to_string().contains('\n'));
        assert_eq!(answer.status, 0);
    }
}

#[test]
fn a_self_made_chain_is_refused_without_its_root() {
    for tee in [Tee::Tdx, Tee::Snp] {
        let case = Case::new(&format!("self-made-{tee:?}"), tee, None);
        let rejection = case.run(&case.options()).unwrap().unwrap_err();
        assert!(matches!(rejection.reason(), Reason::UntrustedRoot { .. }), "{rejection}");
        assert_eq!(describe_rejection(&rejection).1, REJECTED);
        assert_eq!(rejection.to_json()["outcome"], "rejected");
    }
}

#[test]
fn a_root_may_come_as_pem() {
    let case = Case::new("pem", Tee::Snp, None);
    let chain = case.attester.chain_pem().unwrap();
    let ark = chain.rfind("-----BEGIN").unwrap();
    fs::write(case.dir.join("ark.pem"), &chain[ark..]).unwrap();
    let with_root = |file: &str| {
        let mut options = case.options();
        options.extend(["--root".into(), case.path(file)]);
        case.run(&options)
    };
    with_root("ark.pem").unwrap().unwrap();
    // A whole chain is not one root.
    assert!(with_root("chain.pem").unwrap_err().message().contains("too many"));
}

#[test]
fn an_option_of_another_kind_is_refused_with_a_hint() {
    let snp = Case::new("options-snp", Tee::Snp, None);
    let nonce = "00".repeat(32);
    let error = snp.judge(&["--nonce", &nonce]).unwrap_err();
    assert!(error.message().contains("an SEV-SNP report"), "{}", error.message());
    let quote = Case::new("options-quote", Tee::Tdx, None);
    let error = quote.judge(&["--dangerous-skip-revocation"]).unwrap_err();
    assert!(
        error.message().contains("a TDX quote") && error.hint_text().is_some(),
        "{}",
        error.message()
    );
    let bare = [snp.path("evidence.bin"), "--at".into(), NOW.to_string()];
    let error = snp.run(&bare).unwrap_err();
    assert!(error.hint_text().unwrap().contains("--endorsement-key"));
    fs::write(snp.dir.join("evidence.bin"), b"neither").unwrap();
    assert!(snp.judge(&[]).unwrap_err().message().contains("not a known kind"));
}

#[test]
fn a_missing_revocation_list_is_refused_unless_it_is_skipped_explicitly() {
    let case = Case::new("no-crl", Tee::Snp, None);
    let without: Vec<String> = case.options().into_iter().take(7).collect();
    assert!(!without.contains(&"--crl".to_string()));
    let ask = |more: &[&str]| {
        let mut options = without.clone();
        options.extend(["--root".into(), case.path("root.der")]);
        options.extend(more.iter().map(ToString::to_string));
        case.run(&options).unwrap()
    };
    let any = "--dangerous-accept-any-tcb-status";
    assert_eq!(*ask(&[any]).unwrap_err().reason(), Reason::NoRevocationList);
    let AcceptedEvidence::Cpu(accepted) = ask(&[any, "--dangerous-skip-revocation"]).unwrap()
    else {
        panic!()
    };
    let check = accepted.checks().iter().find(|check| check.name == "revocation").unwrap();
    assert_eq!(check.outcome, Outcome::NotEvaluated);
}

#[test]
fn evidence_that_cannot_be_read_fails_the_first_check_of_its_own_kind() {
    let case = Case::new("unreadable-quote", Tee::Tdx, Some(Fault::TrailingByte));
    let refused = case.judge(&[]).unwrap().unwrap_err();
    let first = &refused.checks()[0];
    assert_eq!((first.name, first.outcome), ("quote_format", Outcome::Failed));
    assert_eq!(describe_rejection(&refused).1, REJECTED);
    let case = Case::new("unreadable-gpu", Tee::Tdx, None);
    let gpu = FakeGpu::new(GpuOptions::new([3; 32], NOW)).unwrap().evidence(&[0; 32]);
    fs::write(case.dir.join("chain.pem"), "-----BEGIN CERTIFICATE-----").unwrap();
    let (nonce, chain) = ("00".repeat(32), case.path("chain.pem"));
    for (bytes, chain) in [(&gpu[..gpu.len() - 1], None), (&b"11e0zz"[..], Some(&chain))] {
        fs::write(case.dir.join("evidence.bin"), bytes).unwrap();
        let mut options = [case.path("evidence.bin"), "--at".into(), NOW.to_string()].to_vec();
        options.extend(["--nonce".into(), nonce.clone()]);
        options.extend(chain.iter().flat_map(|chain| ["--chain".into(), chain.to_string()]));
        let refused = case.run(&options).unwrap().unwrap_err();
        assert_eq!(describe_rejection(&refused).1, NOT_JUDGED);
        let first = &refused.checks()[0];
        assert_eq!((first.name, first.outcome), ("gpu_report_format", Outcome::Failed));
    }
}

#[test]
fn debug_is_accepted_only_explicitly() {
    let case = Case::new("debug", Tee::Snp, Some(Fault::Debug));
    let refused = case.judge(&[]).unwrap().unwrap_err();
    assert!(matches!(refused.reason(), Reason::Debug(_)), "{refused}");
    case.judge(&["--dangerous-accept-debug"]).unwrap().unwrap();
}

#[test]
fn a_certificate_that_carries_a_quote_is_judged_with_its_key() {
    let case = Case::new("certificate", Tee::Tdx, None);
    let key = CertificateKey::new();
    let certificate = |report_data| {
        // The form of older versions of Gramine, whose report data is the hash of the key.
        let quote = case.attester.quote(&ReportData::from_digest(report_data));
        key.certify(GRAMINE, quote)
    };
    let own = certificate(key.hash);
    for file in [own.der().to_vec(), own.pem().replace("\r\n", "\n").into_bytes()] {
        case.write("evidence.bin", &file);
        let AcceptedEvidence::Cpu(accepted) = case.judge(&[]).unwrap().unwrap() else { panic!() };
        let check = accepted.checks().iter().find(|check| check.name == "report_data").unwrap();
        assert_eq!(check.outcome, Outcome::Passed);
        let data = "00".repeat(64);
        let error = case.judge(&["--report-data", &data]).unwrap_err();
        assert!(error.message().contains("a certificate itself says"));
    }
    case.write("evidence.bin", certificate([7; 32]).der());
    let rejection = case.judge(&[]).unwrap().unwrap_err();
    assert!(rejection.to_string().contains("report data"), "{rejection}");
}

#[test]
fn the_claims_of_a_certificate_of_this_project_are_judged_by_the_policy() {
    let case = Case::new("certificate-claims", Tee::Tdx, None);
    let key = CertificateKey::new();
    let own = Claims { pubkey_hash: key.hash, ..claims(7) };
    let show = |claims: &Claims| {
        let claims = claims.encode();
        let bound = ReportData::from_digest(hash(&claims));
        let quote = case.attester.quote(&bound);
        let content = TaggedEvidence { quote: &quote, claims: &claims }.encode();
        case.write("evidence.bin", key.certify(TAGGED, content).der());
    };
    let path = case.path("policy.toml");
    let policy = ["--policy", &path];

    show(&own);
    case.write("policy.toml", case.attester.policy_toml().as_bytes());
    let report = case.report(&policy);
    assert_eq!(report.json["scope"], "platform", "the configuration was not compared");
    assert_eq!(report.json["claims"]["config_digest"], hex::encode([7; 32]));
    case.write("policy.toml", case.attester.policy_toml_pinning([7; 32]).as_bytes());
    let report = case.report(&policy);
    assert_eq!((&report.json["scope"], report.status), (&json!("workload"), 0));
    assert_eq!(report.json["certificate"]["form"], "confide");
    assert_eq!(report.json["certificate"]["spki_sha256"], hex::encode(key.hash));
    case.write("policy.toml", case.attester.policy_toml_pinning([8; 32]).as_bytes());
    let report = case.report(&policy);
    assert_eq!(report.status, REJECTED, "{}", report.text);
    assert_eq!(report.json["certificate"]["form"], "confide");
    case.write("policy.toml", case.attester.policy_toml().as_bytes());
    show(&Claims { not_before: NOW - 100, not_after: NOW - 1, ..own });
    assert_eq!(case.report(&policy).status, REJECTED, "the claims have expired");
}

#[test]
fn a_certificate_of_another_program_is_accepted_for_its_platform_alone() {
    let case = Case::new("certificate-foreign", Tee::Tdx, None);
    let key = CertificateKey::new();
    let quote = case.attester.quote(&ReportData::from_digest(key.hash));
    case.write("evidence.bin", key.certify(GRAMINE, quote).der());
    case.write("policy.toml", case.attester.policy_toml().as_bytes());
    let report = case.report(&["--policy", &case.path("policy.toml")]);
    assert_eq!((&report.json["scope"], report.status), (&json!("platform"), 0));
    assert_eq!(report.json["certificate"]["form"], "Gramine before 1.8");
    let has_line = |start: &str, end: &str| {
        report.text.lines().any(|line| line.starts_with(start) && line.ends_with(end))
    };
    assert!(has_line("certificate form", "Gramine before 1.8"), "{}", report.text);
    assert!(has_line("certificate key", &hex::encode(key.hash)), "{}", report.text);
    assert!(report.text.contains(FOREIGN_CERTIFICATE), "{}", report.text);
}

#[test]
fn gpu_evidence_in_a_certificate_is_refused_by_its_name() {
    let case = Case::new("certificate-gpu", Tee::Tdx, None);
    let gpu = FakeGpu::new(GpuOptions::new([3; 32], NOW)).unwrap().report(&[0; 32]);
    case.write("evidence.bin", CertificateKey::new().certify(GRAMINE, gpu).der());
    let mut options = vec![case.path("evidence.bin"), "--at".into(), NOW.to_string()];
    options.extend(["--nonce".into(), "00".repeat(32)]);
    let error = case.run(&options).unwrap_err();
    assert!(error.message().contains("certificate holds GPU evidence"), "{}", error.message());
}

/// The extension of older versions of Gramine.
const GRAMINE: &[u64] = &[0, 6, 9, 42, 840, 113_741, 1337, 6];

/// The extension of key binding.
const TAGGED: &[u64] = &[2, 23, 133, 5, 4, 9];

fn hash(bytes: &[u8]) -> [u8; 32] {
    confide_verifier::Crypto::sha256(&AwsLc, &[bytes])
}

/// The key of a certificate, and the hash of its SubjectPublicKeyInfo.
struct CertificateKey {
    key: rcgen::KeyPair,
    hash: [u8; 32],
}

impl CertificateKey {
    fn new() -> Self {
        let key = rcgen::KeyPair::generate().unwrap();
        let spki = rcgen::PublicKeyData::subject_public_key_info(&key);
        Self { hash: hash(&spki), key }
    }

    /// A certificate of the key with one extension.
    fn certify(&self, id: &[u64], content: Vec<u8>) -> rcgen::Certificate {
        let mut params = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.custom_extensions = vec![rcgen::CustomExtension::from_oid_content(id, content)];
        params.self_signed(&self.key).unwrap()
    }
}

#[test]
fn claims_beside_a_report_data_of_ones_own_are_not_taken_for_signed() {
    let case = Case::new("claims", Tee::Tdx, None);
    let signed = claims(7).encode();
    let bound = ReportData::from_digest(confide_verifier::Crypto::sha256(&AwsLc, &[&signed]));
    case.write("claims", &signed);
    case.write("evidence.bin", &case.attester.quote(&bound));
    let path = case.path("claims");
    let accepted = case.judge(&["--claims", &path]).unwrap().unwrap();
    let AcceptedEvidence::Cpu(accepted) = accepted else { panic!("no CPU") };
    assert!(accepted.claims().is_some());
    // Claims that the quote does not cover, and the report data that it does hold.
    case.write("claims", &claims(8).encode());
    let rejection = case.judge(&["--claims", &path]).unwrap().unwrap_err();
    assert!(matches!(rejection.reason(), Reason::Value { .. }));
    let both = ["t", "f", "--claims", &path, "--report-data", &bound.to_string()];
    assert!(Test::try_parse_from(both).is_err());
}

#[test]
fn what_cannot_be_read_is_named_and_not_judged() {
    let case = Case::new("unreadable", Tee::Tdx, None);
    case.write("pem", b"-----BEGIN CERTIFICATE-----");
    case.write("long", &vec![0; POLICY_LENGTH_MAX + 1]);
    for (option, file, wanted) in [
        ("--root", "absent", "absent: No such file"),
        ("--root", "pem", "root certificate is malformed"),
        ("--policy", "absent", "absent: No such file"),
        ("--policy", "long", "wanted at most 65536 bytes"),
        ("--policy", "pem", "policy is not valid"),
        ("--claims", ".", "cannot read"),
        ("--claims", "long", "wanted at most 1024 bytes"),
    ] {
        let mut options = case.options();
        options.extend([option.to_string(), case.path(file)]);
        if option != "--root" {
            options.extend(["--root".into(), case.path("root.der")]);
        }
        let error = case.run(&options).unwrap_err();
        assert!(error.message().contains(wanted), "{option} {file}: {error:?}");
        let answer = explain_unreadable(&error);
        assert_eq!((answer.status, &answer.json["outcome"]), (NOT_JUDGED, &json!("error")));
        assert!(!answer.json.to_string().contains('\n'));
    }
}

#[test]
fn empty_evidence_and_empty_collateral_are_not_judged() {
    let case = Case::new("empty", Tee::Tdx, None);
    let longest = EVIDENCE_BYTES_MAX;
    case.write("evidence.bin", &vec![0; longest + 1]);
    let wanted = format!("wanted at most {longest} bytes");
    assert!(case.judge(&[]).unwrap_err().message().contains(&wanted));
    case.write("evidence.bin", b"");
    assert!(case.judge(&[]).unwrap_err().message().contains("not a known kind"));
    case.write("evidence.bin", &case.attester.quote(&ReportData::ZERO));
    case.write("collateral.json", b"");
    let rejection = case.judge(&[]).unwrap().unwrap_err();
    assert!(rejection.reason().is_unreadable(), "{rejection}");
    assert_eq!(rejection.to_json()["outcome"], "error");
}

#[test]
fn report_data_is_64_bytes_in_hexadecimal_and_a_time_is_a_number() {
    let parse = |option: &str, value: &str| Test::try_parse_from(["t", "file", option, value]);
    for bad in ["", "00", &"0".repeat(127), &"0".repeat(130), &"g".repeat(128)] {
        assert!(parse("--report-data", bad).is_err(), "{bad}");
    }
    parse("--report-data", &"aB".repeat(64)).unwrap();
    for bad in ["-1", "1.5", "", "today", "18446744073709551616"] {
        assert!(parse("--at", bad).is_err(), "{bad}");
    }
}

fn claims(config: u8) -> Claims {
    Claims {
        config_digest: [config; 32],
        gpu_evidence_hash: None,
        guarantee: "operator is outside the TEE".into(),
        nonce: None,
        not_after: NOW + 60,
        not_before: NOW,
        pubkey_hash: [1; 32],
        weights: None,
    }
}

struct Case {
    dir: PathBuf,
    attester: FakeAttester,
}

#[derive(Parser)]
struct Test {
    #[command(flatten)]
    args: EvidenceArgs,
}

impl Case {
    fn new(name: &str, tee: Tee, fault: Option<Fault>) -> Self {
        let options = FakeAttesterOptions {
            seed: [3; 32],
            tee,
            debug: false,
            issued_at: NOW,
            mode: Mode::Raw,
        };
        let attester = match fault {
            None => FakeAttester::new(options),
            Some(fault) => FakeAttester::with_fault(options, fault),
        };
        let attester = attester.unwrap();
        let dir =
            std::env::temp_dir().join(format!("confide-evidence-{name}-{}", std::process::id()));
        attester.save(&dir).unwrap();
        fs::write(dir.join("evidence.bin"), attester.quote(&ReportData::ZERO)).unwrap();
        Self { dir, attester }
    }

    /// Everything but a root: file, time, and the endorsements of its kind.
    fn options(&self) -> Vec<String> {
        let mut options = vec![self.path("evidence.bin"), "--at".into(), NOW.to_string()];
        let files: &[_] = match self.attester.tee() {
            Tee::Snp => &[
                ("--endorsement-key", "endorsement-key.der"),
                ("--chain", "chain.pem"),
                ("--crl", "crl.der"),
            ],
            _ => &[("--collateral", "collateral.json")],
        };
        for (option, file) in files {
            options.extend([option.to_string(), self.path(file)]);
        }
        options.push("--dangerous-accept-any-tcb-status".into());
        options
    }

    fn judge(&self, more: &[&str]) -> Result<Result<AcceptedEvidence, Rejection>, CliError> {
        let mut options = self.options();
        options.extend(["--root".into(), self.path("root.der")]);
        options.extend(more.iter().map(ToString::to_string));
        self.run(&options)
    }

    fn run(&self, options: &[String]) -> Result<Result<AcceptedEvidence, Rejection>, CliError> {
        let all = [&["t".to_string()], options].concat();
        judge_evidence(&Test::try_parse_from(all).unwrap().args).map(|verdict| verdict.result)
    }

    /// The whole answer, with the root trusted.
    fn report(&self, more: &[&str]) -> CommandReport {
        let mut options = [&["t".to_string()], &self.options()[..]].concat();
        options.extend(["--root".into(), self.path("root.der")]);
        options.extend(more.iter().map(ToString::to_string));
        judge_evidence(&Test::try_parse_from(options).unwrap().args)
            .map(|verdict| describe_verdict(&verdict))
            .unwrap()
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.dir.join(name), bytes).unwrap();
    }

    fn path(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }
}

impl Drop for Case {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// 2026-06-01.
const NOW: u64 = 1_780_272_000;
