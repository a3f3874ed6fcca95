use std::fs;

use clap::Parser;
use confide_fake_attester::{
    FakeAttester, FakeAttesterOptions, FakeGpu, Fault, GpuOptions, Mode, Tee,
};
use confide_verifier::Outcome;

use super::*;

#[test]
fn a_quote_of_each_version_and_a_report_are_found_out_and_judged() {
    for tee in [Tee::Sgx, Tee::Tdx, Tee::TdxV5, Tee::Snp] {
        let case = Case::new(&format!("each-{tee:?}"), tee, None);
        let Yes::Cpu(yes) = case.judge(&[]).unwrap().unwrap() else { panic!("no CPU") };
        assert!(yes.to_json()["claims"]["tee"].is_string());
        let json = Yes::Cpu(yes).shown(true);
        assert!(json.starts_with('{') && !json.trim_end().contains('\n'));
    }
}

#[test]
fn a_self_made_chain_is_refused_without_its_root() {
    for tee in [Tee::Tdx, Tee::Snp] {
        let case = Case::new(&format!("self-made-{tee:?}"), tee, None);
        let rejection = case.run(&case.options()).unwrap().unwrap_err();
        assert!(matches!(rejection.reason(), Reason::UntrustedRoot { .. }), "{rejection}");
        assert_eq!(refusal(&rejection), ExitCode::from(1));
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
    assert!(with_root("chain.pem").unwrap_err().reason.contains("too many"));
}

#[test]
fn an_option_of_another_kind_is_refused_with_a_hint() {
    let snp = Case::new("options-snp", Tee::Snp, None);
    let nonce = "00".repeat(32);
    let error = snp.judge(&["--nonce", &nonce]).unwrap_err();
    assert!(error.reason.contains("an SEV-SNP report"), "{}", error.reason);
    let quote = Case::new("options-quote", Tee::Tdx, None);
    let error = quote.judge(&["--dangerous-skip-revocation"]).unwrap_err();
    assert!(error.reason.contains("a TDX quote") && error.hint.is_some(), "{}", error.reason);
    let bare = [snp.path("evidence.bin"), "--at".into(), NOW.to_string()];
    let error = snp.run(&bare).unwrap_err();
    assert!(error.hint.unwrap().contains("--endorsement-key"));
    fs::write(snp.dir.join("evidence.bin"), b"neither").unwrap();
    assert!(snp.judge(&[]).unwrap_err().reason.contains("no kind of evidence"));
}

#[test]
fn a_missing_revocation_list_is_refused_unless_it_is_skipped_in_so_many_words() {
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
    let Yes::Cpu(yes) = ask(&[any, "--dangerous-skip-revocation"]).unwrap() else { panic!() };
    let check = yes.checks().iter().find(|check| check.name == "revocation").unwrap();
    assert_eq!(check.outcome, Outcome::NotEvaluated);
}

#[test]
fn evidence_that_cannot_be_read_fails_the_first_check_of_its_own_kind() {
    let case = Case::new("unreadable-quote", Tee::Tdx, Some(Fault::TrailingByte));
    let refused = case.judge(&[]).unwrap().unwrap_err();
    let first = &refused.checks()[0];
    assert_eq!((first.name, first.outcome), ("quote_format", Outcome::Failed));
    assert_eq!(refusal(&refused), ExitCode::from(1));
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
        assert_eq!(refusal(&refused), ExitCode::from(2));
        let first = &refused.checks()[0];
        assert_eq!((first.name, first.outcome), ("gpu_report_format", Outcome::Failed));
    }
}

#[test]
fn debug_is_accepted_only_in_so_many_words() {
    let case = Case::new("debug", Tee::Snp, Some(Fault::Debug));
    let refused = case.judge(&[]).unwrap().unwrap_err();
    assert!(matches!(refused.reason(), Reason::Debug(_)), "{refused}");
    case.judge(&["--dangerous-accept-debug"]).unwrap().unwrap();
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

    fn judge(&self, more: &[&str]) -> Result<Result<Yes, Rejection>, Unreadable> {
        let mut options = self.options();
        options.extend(["--root".into(), self.path("root.der")]);
        options.extend(more.iter().map(ToString::to_string));
        self.run(&options)
    }

    fn run(&self, options: &[String]) -> Result<Result<Yes, Rejection>, Unreadable> {
        let all = [&["t".to_string()], options].concat();
        judge(&Test::try_parse_from(all).unwrap().args)
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
