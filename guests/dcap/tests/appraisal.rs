//! The program next to the verifier: what it states, what it leaves out, and that it never states
//! more than the verifier says.

#[path = "../../../crates/verifier/tests/foreign/mod.rs"]
mod foreign;
mod host;
mod inputs;

use confide_fake_attester::{FakeAttester, FakeAttesterOptions, Fault, Tee};
use confide_guest_dcap::{DcapError, DcapInput, run};
use confide_statement::{Dcap, Measurements, Statement, Verdict};
use confide_verifier::{
    Anchor, Appraised, AwsLc, Crypto, Endorsements, Expect, INTEL_ROOT_SHA256, Policy, Reason,
    Roots,
};
use foreign::{Case, all_cases, unix_time};
use host::CRYPTO;
use inputs::{NOW, attester, changed_copies, input, options, real, simulated_inputs};

/// The way in which the foreign cases' reader appraises.
mod ways {
    pub(crate) use confide_verifier::appraise;
}

#[test]
fn every_foreign_case_is_stated_as_the_verifier_says_or_not_at_all() {
    let Some(cases) = all_cases() else { return };
    let mut stated = 0;
    for case in &cases {
        let input = DcapInput::new(&case.quote, &case.collateral, case.now);
        let got = input.and_then(|input| run(&input.encode(), &AwsLc));
        let wanted = foreign::appraise(case, &policy_of(case));
        match (&got, &wanted) {
            (Ok(Statement::Dcap(dcap)), Ok(appraised)) => {
                stated += 1;
                assert_same(dcap, appraised, &case.name);
            }
            (Err(_), Err(_)) => {}
            // Which root is trusted is for the statement's reader.
            (Ok(Statement::Dcap(dcap)), Err(rejection))
                if matches!(rejection.reason(), Reason::UntrustedRoot { .. }) =>
            {
                assert!(policy_of(case).roots.find(Anchor::Intel, &dcap.root_sha256).is_none());
            }
            _ => panic!("{}: stated {got:?}, wanted {wanted:?}", case.name),
        }
    }
    assert!(stated >= 20, "stated {stated} of {}", cases.len());
}

#[test]
fn a_real_quote_and_every_kind_of_simulated_one_is_stated_by_the_guests_arithmetic_too() {
    for input in simulated_inputs().into_iter().chain(real()) {
        let native = run(&input, &AwsLc).unwrap();
        assert_eq!(native, run(&input, &CRYPTO).unwrap());
        assert_eq!(Statement::decode(&native.encode()), Ok(native));
    }
}

#[test]
fn changed_inputs_end_alike_natively_and_by_the_guests_arithmetic() {
    for (nth, input) in simulated_inputs().into_iter().enumerate() {
        for (place, changed) in changed_copies(&input, 37, nth).iter().enumerate() {
            let [native, guest] = [&AwsLc as &dyn Crypto, &CRYPTO].map(|it| run(changed, it));
            match (native, guest) {
                (Ok(native), Ok(guest)) => assert_eq!(native, guest),
                (Err(native), Err(guest)) => assert_eq!(native.to_string(), guest.to_string()),
                (native, guest) => panic!("change {place}: {native:?}, {guest:?}"),
            }
        }
    }
}

#[test]
fn the_statement_is_the_same_at_both_ends_of_its_time_and_there_is_none_beyond() {
    for tee in [Tee::Tdx, Tee::TdxV5, Tee::Sgx] {
        let attester = attester(tee, None);
        let stated = state(&attester, NOW).unwrap();
        for instant in [stated.valid_from, stated.valid_until] {
            assert_eq!(state(&attester, instant).unwrap(), stated);
        }
        for instant in [stated.valid_from - 1, stated.valid_until + 1, 0, u64::MAX] {
            assert!(matches!(state(&attester, instant), Err(DcapError::Rejected(_))));
        }
    }
}

#[test]
fn the_time_is_that_in_which_everything_holds() {
    let attester = attester(Tee::Tdx, None);
    let stated = state(&attester, NOW).unwrap();
    let endorsements = Endorsements::parse(attester.collateral_json().as_bytes()).unwrap();
    let roots = Roots::from_sha256(stated.root_sha256);
    let prepared = endorsements.prepare(&roots, unix_time(NOW), &AwsLc).unwrap();
    let (from, until) = prepared.validity();
    // The PCK certificate of the simulation holds for longer than its endorsements.
    assert_eq!((stated.valid_from, stated.valid_until), (from, until));
}

#[test]
fn a_prover_may_narrow_the_time_and_never_widen_it() {
    let attester = attester(Tee::Tdx, None);
    let whole = state(&attester, NOW).unwrap();
    let narrowed = |not_before, not_after| {
        let input = DcapInput { not_before, not_after, ..input(&attester, NOW) };
        run(&input.encode(), &AwsLc).map(unwrap)
    };
    let narrow = narrowed(NOW + 5, NOW + 7).unwrap();
    assert_eq!(narrow, Dcap { valid_from: NOW + 5, valid_until: NOW + 7, ..whole.clone() });
    assert_eq!(narrowed(0, u64::MAX).unwrap(), whole);
    assert_eq!(narrowed(whole.valid_from - 1, whole.valid_until + 1).unwrap(), whole);
    assert!(matches!(narrowed(NOW, NOW - 1), Err(DcapError::NoInstant { .. })));
    let beyond = narrowed(whole.valid_until + 1, u64::MAX);
    assert!(matches!(beyond, Err(DcapError::NoInstant { .. })));
}

#[test]
fn a_root_of_ones_own_is_stated_as_what_it_is() {
    let [one, other] = [[1; 32], [2; 32]].map(|seed| {
        let options = FakeAttesterOptions { seed, ..options(Tee::Tdx) };
        state(&FakeAttester::new(options).unwrap(), NOW).unwrap()
    });
    assert_ne!(one.root_sha256, other.root_sha256);
    assert!(![one.root_sha256, other.root_sha256].contains(&INTEL_ROOT_SHA256));
}

#[test]
fn faults_end_the_run_or_show_in_the_statement() {
    for fault in FAULTS {
        let outcome = state(&attester(Tee::Tdx, Some(fault)), NOW);
        match outcome {
            Err(DcapError::Rejected(_) | DcapError::Collateral(_)) => {}
            Ok(dcap) => assert_ne!(dcap.verdict, Verdict::Accepted, "{fault:?}"),
            Err(other) => panic!("{fault:?}: {other}"),
        }
    }
}

/// All that are about a quote of version 4. A rolled-back list shows in its issue date only.
const FAULTS: [Fault; 15] = [
    Fault::ExpiredCollateral,
    Fault::ExpiredCrl,
    Fault::FutureCrl,
    Fault::RevokedPck,
    Fault::RevokedPlatformCa,
    Fault::SwHardeningNeeded,
    Fault::OutOfDate,
    Fault::RevokedTcb,
    Fault::OutOfDateModule,
    Fault::ForeignFmspc,
    Fault::ForeignQuotingEnclave,
    Fault::UnboundAttestationKey,
    Fault::SeptVeEnabled,
    Fault::Debug,
    Fault::TrailingByte,
];

#[test]
fn two_platforms_of_one_kind_make_one_statement() {
    let Some(cases) = all_cases() else { return };
    let of = |name: &str| {
        let case = cases.iter().find(|case| case.name == name).unwrap();
        let input = DcapInput::new(&case.quote, &case.collateral, case.now).unwrap();
        unwrap(run(&input.encode(), &AwsLc).unwrap())
    };
    // Two machines of one family under the same endorsements.
    let (one, other) = (of("ok/gcp-a-eval19"), of("ok/gcp-b"));
    let blinded = |dcap: Dcap| {
        let (report_data, measurements) = ([0; 64], one.measurements.clone());
        Dcap { report_data, measurements, ..dcap }
    };
    assert_eq!(blinded(one.clone()), blinded(other));
}

#[test]
fn no_input_but_the_one_encoding_is_read() {
    let input = input(&attester(Tee::Sgx, None), NOW).encode();
    assert_eq!(DcapInput::decode(&input).unwrap().encode(), input);
    for length in (0..input.len()).step_by(97) {
        assert!(DcapInput::decode(&input[..length]).is_err());
    }
    assert!(DcapInput::decode(&[&input[..], &[0; 4]].concat()).is_err());
    let long = vec![0; confide_guest_dcap::INPUT_LENGTH_MAX + 1];
    assert!(matches!(DcapInput::decode(&long), Err(DcapError::TooLong { .. })));
}

fn assert_same(dcap: &Dcap, appraised: &Appraised, name: &str) {
    let platform = appraised.platform();
    let intel = platform.intel().unwrap();
    assert_eq!(dcap.root_sha256, appraised.root().sha256, "{name}");
    assert_eq!(dcap.report_data, platform.report_data.0, "{name}");
    assert_eq!(dcap.debug, appraised.is_debug(), "{name}");
    assert_eq!(dcap.tcb_status, appraised.tcb_status().unwrap().as_str(), "{name}");
    let mut advisories = appraised.advisories().to_vec();
    advisories.sort();
    assert_eq!(dcap.advisories, advisories, "{name}");
    assert_eq!(dcap.tcb_evaluation_data_number, intel.tcb_evaluation_data_number, "{name}");
    assert_eq!(dcap.root_crl_issued, intel.root_crl.issued, "{name}");
    assert_eq!(dcap.pck_crl_issued, intel.pck_crl.issued, "{name}");
    assert_eq!((dcap.valid_from, dcap.valid_until), (platform.valid_from, platform.valid_until));
    match (&dcap.measurements, &platform.measurements) {
        (Measurements::Tdx(ours), confide_verifier::Measurements::Tdx(theirs)) => {
            let rtmrs = [ours.rtmr0, ours.rtmr1, ours.rtmr2, ours.rtmr3];
            assert_eq!((ours.mrtd, rtmrs), (theirs.mrtd, theirs.rtmrs), "{name}");
            let owner = (ours.mrconfigid, ours.mrowner, ours.mrownerconfig);
            assert_eq!(owner, (theirs.mrconfigid, theirs.mrowner, theirs.mrownerconfig), "{name}");
        }
        (Measurements::Sgx(ours), confide_verifier::Measurements::Sgx(theirs)) => {
            assert_eq!((ours.mrenclave, ours.mrsigner), (theirs.mrenclave, theirs.mrsigner));
            assert_eq!((ours.isv_prod_id, ours.isv_svn), (theirs.isv_prod_id, theirs.isv_svn));
            assert_eq!(ours.config_id, theirs.config_id, "{name}");
        }
        (ours, theirs) => panic!("{name}: {ours:?}, {theirs:?}"),
    }
}

fn policy_of(case: &Case) -> Policy {
    let roots = case.root_der.as_deref().map(Roots::from_der);
    Policy {
        roots: roots.unwrap_or_else(|| Roots::from_sha256(INTEL_ROOT_SHA256)),
        tcb_status: Expect::DangerousAny,
        advisories: Expect::DangerousAny,
        dangerous_accept_debug: true,
        ..Policy::default()
    }
}

fn state(attester: &FakeAttester, now: u64) -> Result<Dcap, DcapError> {
    run(&input(attester, now).encode(), &AwsLc).map(unwrap)
}

fn unwrap(statement: Statement) -> Dcap {
    match statement {
        Statement::Dcap(dcap) => dcap,
        other => panic!("{other:?}"),
    }
}
