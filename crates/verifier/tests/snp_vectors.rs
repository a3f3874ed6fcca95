//! Real SEV-SNP reports with AMD's certificates (`../shared/vectors/cases-snp.json`).

use std::{path::PathBuf, time::Duration};

use confide_evidence::snp_endorsements::SnpEndorsements;
use confide_verifier::{
    AMD_ROOTS_SHA256, Appraised, AwsLc, Crypto, Evidence, Outcome, Policy, Reason, Rejection,
    RootKind, Scope, TcbMinimum, UnixTime, snp,
};
use serde_json::Value;
use sev::certs::snp::builtin;

/// 2025-01-04, when all certificates of the vectors hold.
const NOW: u64 = 1_736_000_000;

#[test]
fn every_case_comes_out_as_expected_both_ways() {
    let Some(cases) = cases() else { return };
    for case in &cases {
        let policy = lenient();
        let slow = appraise(case, &policy);
        assert_eq!(slow.is_ok(), case.accepted, "{}: {:?}", case.name, slow.err());
        let fast = case.endorsements().prepare(&policy.roots, unix_time(NOW), &AwsLc);
        let evidence = Evidence { quote: &case.report, ..Evidence::default() };
        let fast = fast.and_then(|held| held.appraise(&evidence, &policy, unix_time(NOW), &AwsLc));
        match (appraise(case, &policy), fast) {
            (Ok(slow), Ok(fast)) => {
                assert_eq!(slow.checks(), fast.checks(), "{}", case.name);
                assert_eq!(slow.platform(), fast.platform(), "{}", case.name);
            }
            (Err(slow), Err(fast)) => assert_eq!(slow.reason(), fast.reason(), "{}", case.name),
            (slow, fast) => panic!("{}: {slow:?} {fast:?}", case.name),
        }
    }
    assert_eq!(cases.len(), 20);
    assert!(cases.iter().filter(|case| case.accepted).count() >= 3);
}

#[test]
fn each_kind_of_spoiling_is_refused_by_the_check_that_is_for_it() {
    let Some(cases) = cases() else { return };
    for (name, wanted) in [
        ("bad/vlek-with-vcek-chain", "chain"),
        ("bad/other-chip", "chip_id"),
        ("bad/genoa-chain", "chain"),
        ("mut-a/guest-svn", "report_signature"),
        ("mut-a/vmpl", "report_signature"),
    ] {
        let case = cases.iter().find(|case| case.name == name).unwrap();
        let rejection = appraise(case, &lenient()).unwrap_err();
        assert_eq!(failed_check(&rejection), Some(wanted), "{name}: {rejection}");
    }
}

#[test]
fn the_default_policy_wants_a_revocation_list_then_a_minimum_and_refuses_debug() {
    let Some(cases) = cases() else { return };
    let (debug, plain) = (find(&cases, "ok/milan-a"), find(&cases, "ok/milan-b"));
    let mut policy = Policy::default();
    let refused = |case: &Case, policy: &Policy| appraise(case, policy).unwrap_err();
    assert_eq!(*refused(plain, &policy).reason(), Reason::NoRevocationList);
    policy.dangerous_skip_revocation = true;
    assert_eq!(*refused(plain, &policy).reason(), Reason::NoTcbMinimum);
    policy.snp.tcb_min = Some(TcbMinimum::DangerousAny);
    let yes = appraise(plain, &policy).unwrap();
    assert_eq!((yes.scope(), yes.root().kind), (Scope::Platform, RootKind::Production));
    assert_eq!(yes.tcb_status(), None);
    assert_eq!(outcome(&yes, "revocation"), Outcome::NotEvaluated);
    assert_eq!(outcome(&yes, "tcb_minimum"), Outcome::NotEvaluated);
    assert!(matches!(refused(debug, &policy).reason(), Reason::Debug(_)));
    policy.dangerous_accept_debug = true;
    assert!(appraise(debug, &policy).unwrap().is_debug());
}

#[test]
fn a_minimum_is_compared_version_by_version() {
    let Some(cases) = cases() else { return };
    let case = find(&cases, "ok/milan-b");
    // Reported, committed and at launch: bootloader 3, tee 0, snp 8, microcode 115.
    let with = |versions: &str| {
        let text = format!("dangerous_skip_revocation = true\n[snp]\ntcb_min = {{ {versions} }}");
        appraise(case, &Policy::from_toml(&text).unwrap())
    };
    with("bootloader = 3, tee = 0, snp = 8, microcode = 115").unwrap();
    for above in [
        "bootloader = 4, tee = 0, snp = 8, microcode = 115",
        "bootloader = 3, tee = 1, snp = 8, microcode = 115",
        "bootloader = 3, tee = 0, snp = 9, microcode = 115",
        "bootloader = 3, tee = 0, snp = 8, microcode = 116",
        "bootloader = 3, tee = 0, snp = 8, microcode = 115, fmc = 1",
    ] {
        let rejection = with(above).unwrap_err();
        assert_eq!(failed_check(&rejection), Some("tcb_minimum"), "{above}");
    }
    for wrong in ["bootloader = 3", "bootloader = 3, tee = 0, snp = 8, microcode = 300"] {
        assert!(Policy::from_toml(&format!("[snp]\ntcb_min = {{ {wrong} }}")).is_err());
    }
    assert!(Policy::from_toml("[snp]\ntcb_min = \"any\"").is_err());
}

#[test]
fn a_loaded_key_names_its_provider_and_is_bound_to_no_chip() {
    let Some(cases) = cases() else { return };
    let yes = appraise(find(&cases, "ok/milan-c-vlek"), &lenient()).unwrap();
    assert_eq!(outcome(&yes, "chip_id"), Outcome::NotEvaluated);
    assert_eq!(outcome(&yes, "product"), Outcome::Passed);
    let amd = yes.platform().amd().unwrap();
    assert_eq!(amd.csp_id.as_deref(), Some("CN=cc-us-east-2.amazonaws.com"));
    assert_eq!((amd.chip_key, amd.chip_id, amd.vmpl), (false, None, 1));
}

#[test]
fn amds_roots_are_those_that_two_libraries_ship() {
    let shipped = [builtin::milan::ark(), builtin::genoa::ark(), builtin::turin::ark()];
    for (wanted, ark) in AMD_ROOTS_SHA256.iter().zip(shipped) {
        assert_eq!(AwsLc.sha256(&[&ark.unwrap().to_der().unwrap()]), *wanted);
    }
    for (name, wanted) in [("milan", AMD_ROOTS_SHA256[0]), ("genoa", AMD_ROOTS_SHA256[1])] {
        let Some(chain) = read(&format!("snp/{name}-ask-ark.pem")) else { return };
        let chain = confide_evidence::pem::decode_chain("chain", &chain).unwrap();
        assert_eq!(AwsLc.sha256(&[&chain[1]]), wanted, "{name}");
    }
}

struct Case {
    name: String,
    report: Vec<u8>,
    key: Vec<u8>,
    chain: String,
    accepted: bool,
}

impl Case {
    fn endorsements(&self) -> snp::Endorsements {
        let parts = SnpEndorsements::new(self.key.clone(), self.chain.clone(), None).unwrap();
        snp::Endorsements::from_parts(parts).unwrap()
    }
}

fn appraise(case: &Case, policy: &Policy) -> Result<Appraised, Rejection> {
    let evidence = Evidence { quote: &case.report, ..Evidence::default() };
    snp::appraise(&evidence, &case.endorsements(), policy, unix_time(NOW), &AwsLc)
}

fn lenient() -> Policy {
    let mut policy = Policy {
        dangerous_accept_debug: true,
        dangerous_skip_revocation: true,
        ..Policy::default()
    };
    policy.snp.tcb_min = Some(TcbMinimum::DangerousAny);
    policy
}

fn failed_check(rejection: &Rejection) -> Option<&'static str> {
    let mut checks = rejection.checks().iter();
    checks.find(|check| check.outcome == Outcome::Failed).map(|check| check.name)
}

fn outcome(yes: &Appraised, name: &str) -> Outcome {
    yes.checks().iter().find(|check| check.name == name).unwrap().outcome
}

fn find<'a>(cases: &'a [Case], name: &str) -> &'a Case {
    cases.iter().find(|case| case.name == name).unwrap()
}

fn cases() -> Option<Vec<Case>> {
    let cases: Value = serde_json::from_slice(&read("cases-snp.json")?).unwrap();
    let load = |case: &Value| {
        let text = |name: &str| case[name].as_str().unwrap();
        let mut report = read(text("report")).unwrap();
        let number = |value: &Value| value.as_u64().unwrap() as usize;
        for pair in case["mutate_report"]["xor"].as_array().into_iter().flatten() {
            report[number(&pair[0])] ^= number(&pair[1]) as u8;
        }
        if let Some(length) = case["mutate_report"]["truncate"].as_u64() {
            report.truncate(length as usize);
        }
        Case {
            name: text("name").to_string(),
            report,
            key: read(text("endorsement_key_cert")).unwrap(),
            chain: String::from_utf8(read(text("chain")).unwrap()).unwrap(),
            accepted: case["expect"]["result"] == "accept",
        }
    };
    Some(cases.as_array().unwrap().iter().map(load).collect())
}

fn read(name: &str) -> Option<Vec<u8>> {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/vectors"));
    let bytes = std::fs::read(root.join(name)).ok();
    if bytes.is_none() {
        println!("skipped: no foreign vectors");
    }
    bytes
}

fn unix_time(unix: u64) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(unix))
}
