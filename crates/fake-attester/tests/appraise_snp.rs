//! Simulated SEV-SNP evidence before this project's own verifier, both ways: all signatures each
//! time, and with a chip key that was verified before.

use std::{sync::LazyLock, time::Duration};

use confide_evidence::{ReportData, snp_endorsements::SnpEndorsements};
use confide_fake_attester::{
    FakeAttester, FakeAttesterOptions, FakeEndorsements, Fault, Mode, Product, ReportVersion,
    SimulatedPlatform, SnpSigner, Tee,
};
use confide_verifier::{
    Appraised, AwsLc, Evidence, Expect, Outcome, Policy, Reason, Rejection, Roots, Scope,
    SnpWorkload, UnixTime, snp,
};

/// 2026-06-01.
const NOW: u64 = 1_780_272_000;
const SEED: [u8; 32] = [1; 32];

/// RSA keys take a while: one set of vendors for the whole file.
static VENDORS: LazyLock<FakeEndorsements> =
    LazyLock::new(|| FakeEndorsements::new(SEED, NOW).unwrap());

#[test]
fn every_product_signer_and_version_is_accepted_under_its_own_policy() {
    for product in Product::ALL {
        for signer in [SnpSigner::Vcek, SnpSigner::Vlek] {
            for report_version in [ReportVersion::V2, ReportVersion::V3, ReportVersion::V5] {
                let variant = SimulatedPlatform {
                    product,
                    signer,
                    report_version,
                    ..SimulatedPlatform::default()
                };
                let made = attester(variant, None);
                let yes = ask(&made, &policy(&made), NOW)
                    .unwrap_or_else(|no| panic!("{variant:?}: {no}"));
                assert_eq!(yes.scope(), Scope::Workload, "{variant:?}");
                let amd = yes.platform().amd().unwrap();
                assert_eq!(amd.product.as_str(), product.name());
                assert_eq!(amd.chip_key, signer == SnpSigner::Vcek);
                assert!(amd.crl.is_some());
            }
        }
    }
}

#[test]
fn every_fault_is_refused_by_the_check_that_is_for_it() {
    for (fault, wanted) in [
        (Fault::ExpiredCrl, "revocation"),
        (Fault::FutureCrl, "revocation"),
        (Fault::RevokedPck, "revocation"),
        (Fault::RevokedPlatformCa, "revocation"),
        (Fault::WrongChip, "chip_id"),
        (Fault::WrongTcb, "tcb_version"),
        (Fault::LowPrivilege, "vmpl"),
        (Fault::MigrationAgent, "guest_policy"),
        (Fault::Debug, "debug"),
        (Fault::EmptyQuote, "report_format"),
        (Fault::TrailingByte, "report_format"),
    ] {
        let made = attester(SimulatedPlatform::default(), Some(fault));
        let no = ask(&made, &policy(&made), NOW).unwrap_err();
        assert_eq!(failed_check(&no), Some(wanted), "{fault:?}: {no}");
    }
    let revoked = attester(SimulatedPlatform::default(), Some(Fault::RevokedPlatformCa));
    let no = ask(&revoked, &policy(&revoked), NOW).unwrap_err();
    assert_eq!(*no.reason(), Reason::CertificateRevoked { subject: "ASK certificate" });
}

#[test]
fn a_policy_that_skips_revocation_does_without_a_list_and_not_against_one() {
    let mut skipping = None;
    for (fault, wanted) in [
        (None, None),
        (Some(Fault::RevokedPck), Some("revocation")),
        (Some(Fault::RevokedPlatformCa), Some("revocation")),
        (Some(Fault::ExpiredCrl), Some("revocation")),
    ] {
        let made = attester(SimulatedPlatform::default(), fault);
        let policy = Policy { dangerous_skip_revocation: true, ..policy(&made) };
        let failed = ask(&made, &policy, NOW).map_err(|no| failed_check(&no)).map(|_| None);
        assert_eq!(failed.unwrap_or_else(|failed| failed), wanted, "{fault:?}");
        let without = SnpEndorsements { crl: None, ..endorsements(&made) };
        let yes = judge(&quote(&made), without, &policy, NOW).unwrap();
        let check = yes.checks().iter().find(|check| check.name == "revocation").unwrap();
        assert_eq!(check.outcome, Outcome::NotEvaluated);
        skipping = Some((made, policy));
    }
    let (made, mut policy) = skipping.unwrap();
    policy.dangerous_skip_revocation = false;
    let without = SnpEndorsements { crl: None, ..endorsements(&made) };
    let no = judge(&quote(&made), without, &policy, NOW).unwrap_err();
    assert_eq!(*no.reason(), Reason::NoRevocationList);
}

#[test]
fn a_self_made_chain_and_the_root_of_another_product_are_refused() {
    let made = attester(SimulatedPlatform::default(), None);
    let no = ask(&made, &Policy { roots: Roots::production(), ..policy(&made) }, NOW);
    assert!(matches!(no.unwrap_err().reason(), Reason::UntrustedRoot { .. }));
    let genoa = attester(
        SimulatedPlatform { product: Product::Genoa, ..SimulatedPlatform::default() },
        None,
    );
    let mixed = SnpEndorsements::new(key(&made), chain(&genoa), crl(&genoa)).unwrap();
    let no = judge(&quote(&made), mixed, &policy(&genoa), NOW).unwrap_err();
    assert_eq!(failed_check(&no), Some("chain"), "{no}");
}

#[test]
fn a_loaded_key_under_the_chain_of_chip_keys_is_refused() {
    let vcek = attester(SimulatedPlatform::default(), None);
    let vlek = attester(
        SimulatedPlatform { signer: SnpSigner::Vlek, ..SimulatedPlatform::default() },
        None,
    );
    for (report, signer, above) in [(&vlek, &vlek, &vcek), (&vcek, &vcek, &vlek)] {
        let mixed = SnpEndorsements::new(key(signer), chain(above), crl(above)).unwrap();
        let no = judge(&quote(report), mixed, &policy(report), NOW).unwrap_err();
        assert_eq!(failed_check(&no), Some("chain"), "{no}");
    }
    // A report that names the other key, under a chain that is whole.
    let whole = SnpEndorsements::new(key(&vlek), chain(&vlek), crl(&vlek)).unwrap();
    let no = judge(&quote(&vcek), whole, &policy(&vcek), NOW).unwrap_err();
    assert_eq!(failed_check(&no), Some("signing_key"), "{no}");
}

#[test]
fn bits_of_a_report_are_refused_by_name() {
    let made = attester(SimulatedPlatform::default(), None);
    let good = quote(&made);
    for (at, mask, wanted) in [
        (0x50, 1, "report_signature"),
        (0x90, 1, "report_signature"),
        (0x188, 3, "product"),
        (0x48, 2, "signing_key"),
        (0x48, 4, "signing_key"),
        (0x48, 0x1c, "signing_key"),
        (0x1a0, 1, "chip_id"),
        (0x180, 1, "tcb_version"),
        (0x2a0, 1, "report_signature"),
        // Above the 48 bytes that r and s have.
        (0x2d0, 1, "report_signature"),
        (0x32f, 1, "report_signature"),
        (0x330, 1, "report_format"),
    ] {
        let mut report = good.clone();
        report[at] ^= mask;
        let no = judge(&report, endorsements(&made), &policy(&made), NOW).unwrap_err();
        assert_eq!(failed_check(&no), Some(wanted), "{at:#x}: {no}");
    }
}

#[test]
fn a_masked_chip_is_refused_unless_the_policy_accepts_it() {
    let made = attester(SimulatedPlatform::default(), None);
    let mut report = quote(&made);
    report[0x1a0..0x1e0].fill(0);
    let ask = |policy: &Policy| judge(&report, endorsements(&made), policy, NOW).unwrap_err();
    let mut policy = policy(&made);
    assert_eq!(failed_check(&ask(&policy)), Some("chip_id"));
    policy.snp.accept_masked_chip_id = true;
    // It then goes on to the signature, which covered the chip.
    assert_eq!(failed_check(&ask(&policy)), Some("report_signature"));
}

#[test]
fn a_policy_may_list_chips_and_the_oldest_list() {
    let made = attester(SimulatedPlatform::default(), None);
    let mut policy = policy(&made);
    let seen = ask(&made, &policy, NOW).unwrap().platform().amd().unwrap().clone();
    let listed = |chip: &[u8; 64]| {
        let text = format!("[snp]\nchip_ids = [\"{}\"]", hex::encode(chip));
        Policy::from_toml(&text).unwrap().snp.chip_ids
    };
    policy.snp.chip_ids = listed(&seen.chip_id.unwrap());
    ask(&made, &policy, NOW).unwrap();
    policy.snp.chip_ids = listed(&[1; 64]);
    assert_eq!(failed_check(&ask(&made, &policy, NOW).unwrap_err()), Some("chip_id"));
    policy.snp.chip_ids = None;
    policy.snp.crl.issued_min = seen.crl.unwrap().issued;
    ask(&made, &policy, NOW).unwrap();
    policy.snp.crl.issued_min += 1;
    let no = ask(&made, &policy, NOW).unwrap_err();
    assert!(matches!(no.reason(), Reason::RolledBack { .. }), "{no}");
}

#[test]
fn what_the_workload_leaves_out_is_refused() {
    let made = attester(SimulatedPlatform::default(), None);
    let change = |change: fn(&mut SnpWorkload)| {
        let mut policy = policy(&made);
        change(policy.workload.as_mut().unwrap().snp.as_mut().unwrap());
        failed_check(&ask(&made, &policy, NOW).unwrap_err())
    };
    assert_eq!(change(|guest| guest.smt = false), Some("guest_policy"));
    assert_eq!(change(|guest| guest.guest_svn_min = 1), Some("measurements"));
    let zero = |guest: &mut SnpWorkload| guest.family_id = Expect::Exactly([0; 16]);
    assert_eq!(change(zero), Some("measurements"));
    assert_eq!(change(|guest| guest.platform_info.0 = 1 << 5), Some("measurements"));
}

#[test]
fn every_certificate_and_the_list_end_for_a_prepared_key_too() {
    let made = attester(SimulatedPlatform::default(), None);
    let policy = policy(&made);
    let held = parse_endorsements(&made).prepare(&policy.roots, unix_time(NOW), &AwsLc).unwrap();
    let (from, until) = held.validity();
    let quote = quote(&made);
    let evidence = Evidence { quote: &quote, ..Evidence::default() };
    held.appraise(&evidence, &policy, unix_time(until), &AwsLc).unwrap();
    for outside in [from - 1, until + 1] {
        let no = held.appraise(&evidence, &policy, unix_time(outside), &AwsLc).unwrap_err();
        assert!(matches!(no.reason(), Reason::OutsideWindow { .. }), "{no}");
    }
    let no = held.appraise(&evidence, &Policy::default(), unix_time(NOW), &AwsLc).unwrap_err();
    assert_eq!(failed_check(&no), Some("root"));
}

fn attester(variant: SimulatedPlatform, fault: Option<Fault>) -> FakeAttester {
    let options = FakeAttesterOptions {
        seed: SEED,
        tee: Tee::Snp,
        debug: false,
        issued_at: NOW,
        mode: Mode::Raw,
    };
    FakeAttester::with_vendors(&VENDORS, options, variant, fault).unwrap()
}

fn policy(made: &FakeAttester) -> Policy {
    Policy::from_toml(&made.policy_toml()).unwrap()
}

fn quote(made: &FakeAttester) -> Vec<u8> {
    made.quote(&ReportData([7; 64]))
}

fn key(made: &FakeAttester) -> Vec<u8> {
    made.endorsement_key_der().unwrap().to_vec()
}

fn chain(made: &FakeAttester) -> String {
    made.chain_pem().unwrap().to_string()
}

fn crl(made: &FakeAttester) -> Option<Vec<u8>> {
    made.crl_der().map(<[u8]>::to_vec)
}

/// The endorsements that the attester staples.
fn endorsements(made: &FakeAttester) -> SnpEndorsements {
    let stapled = SnpEndorsements::parse(made.collateral_json().as_bytes()).unwrap();
    assert_eq!(stapled.endorsement_key, key(made));
    stapled
}

fn parse_endorsements(made: &FakeAttester) -> snp::Endorsements {
    snp::Endorsements::from_parts(endorsements(made)).unwrap()
}

fn ask(made: &FakeAttester, policy: &Policy, now: u64) -> Result<Appraised, Rejection> {
    judge(&quote(made), endorsements(made), policy, now)
}

/// Appraises in both ways, which have to agree.
fn judge(
    quote: &[u8],
    parts: SnpEndorsements,
    policy: &Policy,
    now: u64,
) -> Result<Appraised, Rejection> {
    let endorsements = snp::Endorsements::from_parts(parts).unwrap();
    let report_data = Some(ReportData([7; 64]));
    let evidence = Evidence { quote, report_data, ..Evidence::default() };
    let slow = snp::appraise(&evidence, &endorsements, policy, unix_time(now), &AwsLc);
    let fast = endorsements
        .prepare(&policy.roots, unix_time(now), &AwsLc)
        .and_then(|held| held.appraise(&evidence, policy, unix_time(now), &AwsLc));
    match (&slow, &fast) {
        (Ok(slow), Ok(fast)) => {
            assert_eq!(slow.checks(), fast.checks());
            assert_eq!(slow.platform(), fast.platform());
        }
        // Preparing comes before the report is read.
        (Err(slow), Err(fast)) if failed_check(slow) != Some("report_format") => {
            assert_eq!(slow.reason(), fast.reason());
        }
        (Err(_), Err(_)) => {}
        _ => panic!("{slow:?} {fast:?}"),
    }
    slow
}

fn failed_check(no: &Rejection) -> Option<&'static str> {
    no.checks().iter().find(|check| check.outcome == Outcome::Failed).map(|check| check.name)
}

fn unix_time(unix: u64) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(unix))
}
