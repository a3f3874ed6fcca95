//! Simulated evidence before the project's own verifier, under the policy that comes with it.

use confide_evidence::{ReportData, tcb_info::TcbStatus};
use confide_fake_attester::{
    FakeAttester, FakeAttesterOptions, Fault, Mode, PckCa, SimulatedPlatform, TdBody, Tee,
};
use confide_verifier::{
    Appraised, Endorsements, Evidence, Expect, Policy, Reason, RootKind, Scope, SgxWorkload,
    UnixTime, appraise,
};

/// 2026-06-01.
const NOW: u64 = 1_780_272_000;
const ALL: [Tee; 3] = [Tee::Tdx, Tee::TdxV5, Tee::Sgx];

#[test]
fn honest_evidence_is_accepted_under_its_own_policy() {
    for tee in ALL {
        let attester = honest(tee);
        let yes = ask(&attester, &policy(&attester), NOW).unwrap();
        assert_eq!(yes.scope(), Scope::Workload);
        assert_eq!(yes.root().kind, RootKind::Custom);
        assert_eq!(yes.tcb_status(), Some(TcbStatus::UpToDate));
        assert!(yes.advisories().is_empty() && !yes.is_debug());
    }
}

#[test]
fn collateral_issued_later_is_accepted_under_the_same_policy() {
    let policy = policy(&honest(Tee::Tdx));
    let later = FakeAttesterOptions { issued_at: NOW + 90 * 86_400, ..options(Tee::Tdx) };
    assert!(ask(&FakeAttester::new(later).unwrap(), &policy, NOW + 91 * 86_400).is_ok());
}

#[test]
fn collateral_holds_until_its_last_second() {
    for tee in ALL {
        let attester = honest(tee);
        let (policy, last) = (policy(&attester), attester.collateral_valid_until());
        let yes = ask(&attester, &policy, last).unwrap();
        assert_eq!(yes.platform().valid_until, last);
        let late = ask(&attester, &policy, last + 1).unwrap_err();
        assert!(matches!(late, Reason::OutsideWindow { .. }), "{late}");
    }
}

#[test]
fn a_production_policy_refuses_a_simulated_root() {
    for tee in ALL {
        let reason = ask(&honest(tee), &Policy::default(), NOW).unwrap_err();
        assert!(matches!(reason, Reason::UntrustedRoot { .. }), "{reason}");
    }
}

#[test]
fn the_policy_of_one_seed_refuses_another() {
    let other =
        FakeAttester::new(FakeAttesterOptions { seed: [9; 32], ..options(Tee::Tdx) }).unwrap();
    let reason = ask(&other, &policy(&honest(Tee::Tdx)), NOW).unwrap_err();
    assert!(matches!(reason, Reason::UntrustedRoot { .. }), "{reason}");
}

#[test]
fn debug_is_accepted_by_the_policy_of_a_debug_attester_only() {
    for tee in ALL {
        let debug = FakeAttester::new(FakeAttesterOptions { debug: true, ..options(tee) }).unwrap();
        assert!(ask(&debug, &policy(&debug), NOW).unwrap().is_debug());
        let reason = ask(&debug, &policy(&honest(tee)), NOW).unwrap_err();
        assert!(matches!(reason, Reason::Debug(_)), "{reason}");
    }
}

#[test]
fn every_fault_is_refused_for_its_own_reason() {
    type ReasonPredicate = fn(&Reason) -> bool;
    let faults: [(Fault, ReasonPredicate); 20] = [
        (Fault::ExpiredCollateral, |r| matches!(r, Reason::OutsideWindow { .. })),
        (Fault::ExpiredCrl, |r| matches!(r, Reason::OutsideWindow { .. })),
        (Fault::FutureCrl, |r| matches!(r, Reason::OutsideWindow { .. })),
        (Fault::RolledBackCrl, |r| matches!(r, Reason::RolledBack { .. })),
        (Fault::RevokedPck, |r| matches!(r, Reason::CertificateRevoked { .. })),
        (Fault::RevokedPlatformCa, |r| matches!(r, Reason::CertificateRevoked { .. })),
        (Fault::SwHardeningNeeded, |r| matches!(r, Reason::TcbStatus { .. })),
        (Fault::OutOfDate, |r| matches!(r, Reason::TcbStatus { .. })),
        (Fault::RevokedTcb, |r| matches!(r, Reason::TcbStatus { .. })),
        (Fault::OutOfDateModule, |r| matches!(r, Reason::TcbStatus { .. })),
        (Fault::ForeignFmspc, |r| matches!(r, Reason::Value { .. })),
        (Fault::ForeignQuotingEnclave, |r| matches!(r, Reason::Value { .. })),
        (Fault::UnboundAttestationKey, |r| matches!(r, Reason::AttestationKey)),
        (Fault::SeptVeEnabled, |r| matches!(r, Reason::TdAttributes { .. })),
        (Fault::Debug, |r| matches!(r, Reason::Debug(_))),
        (Fault::ServiceTdBound, |r| matches!(r, Reason::Value { .. })),
        (Fault::EmptyQuote, |r| matches!(r, Reason::Malformed(_))),
        (Fault::TrailingByte, |r| matches!(r, Reason::Malformed(_))),
        (Fault::OtherPckChain, |r| matches!(r, Reason::Differs { .. })),
        (Fault::UnknownTcbStatus, |r| matches!(r, Reason::Malformed(_))),
    ];
    for tee in ALL {
        let mut policy = policy(&honest(tee));
        policy.pck_crl.number_min = NOW;
        assert!(ask(&honest(tee), &policy, NOW).is_ok());
        for (fault, wanted) in faults {
            let concerns_tds = matches!(fault, Fault::SeptVeEnabled | Fault::ServiceTdBound);
            let concerns_15 = fault == Fault::ServiceTdBound;
            if tee == Tee::Sgx && concerns_tds || tee == Tee::Tdx && concerns_15 {
                continue;
            }
            let faulty = FakeAttester::with_fault(options(tee), fault).unwrap();
            let reason = ask(&faulty, &policy, NOW).unwrap_err();
            assert!(wanted(&reason), "{tee:?} {fault:?}: {reason}");
        }
    }
}

#[test]
fn both_bodies_of_version_5_and_both_cas_are_accepted() {
    for (td_body, pck_ca) in [(TdBody::Td10, PckCa::Platform), (TdBody::Td15, PckCa::Processor)] {
        let variant =
            SimulatedPlatform { td_body, pck_ca, platform: 3, ..SimulatedPlatform::default() };
        let attester = FakeAttester::with_variant(options(Tee::TdxV5), variant, None).unwrap();
        let yes = ask(&attester, &policy(&attester), NOW).unwrap();
        assert_eq!(yes.scope(), Scope::Workload, "{variant:?}");
    }
}

#[test]
fn every_measurement_of_an_enclave_is_compared() {
    let attester = honest(Tee::Sgx);
    for (field, change) in [
        ("mrenclave", (|sgx| sgx.mrenclave = Expect::Exactly([7; 32])) as fn(&mut SgxWorkload)),
        ("mrsigner", |sgx| sgx.mrsigner = Expect::Exactly([7; 32])),
        ("isv_prod_id", |sgx| sgx.isv_prod_id = Expect::Exactly(2)),
        ("isv_svn", |sgx| sgx.isv_svn_min = 2),
        ("config_id", |sgx| sgx.config_id = Expect::Exactly([7; 64])),
    ] {
        let mut policy = policy(&attester);
        change(policy.workload.as_mut().unwrap().sgx.as_mut().unwrap());
        let reason = ask(&attester, &policy, NOW).unwrap_err();
        assert!(matches!(reason, Reason::Value { field: got, .. } if got == field), "{reason}");
    }
}

#[test]
fn a_policy_may_accept_a_level_with_its_advisories() {
    let faulty = FakeAttester::with_fault(options(Tee::Tdx), Fault::OutOfDate).unwrap();
    let text = faulty.policy_toml().replace("\"UpToDate\"", "[\"UpToDate\", \"OutOfDate\"]");
    let advisories = r#"["INTEL-SA-SIMULATED-00003", "INTEL-SA-SIMULATED-00004"]"#;
    let text = text.replace("advisories = []", &format!("advisories = {advisories}"));
    let yes = ask(&faulty, &Policy::from_toml(&text).unwrap(), NOW).unwrap();
    assert_eq!(yes.tcb_status(), Some(TcbStatus::OutOfDate));
    assert_eq!(yes.advisories().len(), 2);
}

fn options(tee: Tee) -> FakeAttesterOptions {
    FakeAttesterOptions { seed: [1; 32], tee, debug: false, issued_at: NOW, mode: Mode::Raw }
}

fn honest(tee: Tee) -> FakeAttester {
    FakeAttester::new(options(tee)).unwrap()
}

fn policy(attester: &FakeAttester) -> Policy {
    Policy::from_toml(&attester.policy_toml()).unwrap()
}

fn ask(attester: &FakeAttester, policy: &Policy, now: u64) -> Result<Appraised, Reason> {
    let wanted = ReportData([7; 64]);
    let quote = attester.quote(&wanted);
    let evidence = Evidence {
        quote: &quote,
        claims: None,
        report_data: Some(wanted),
        gpu: None,
        binding: None,
    };
    let endorsements = Endorsements::parse(attester.collateral_json().as_bytes())?;
    let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(now));
    appraise(&evidence, &endorsements, policy, now, &confide_verifier::AwsLc)
        .map_err(|rejection| rejection.reason().clone())
}
