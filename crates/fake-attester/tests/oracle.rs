//! Simulated evidence before a verifier that knows nothing of the simulation: dcap-qvl 0.7.1
//! with the simulated root in place of Intel's.

use confide_evidence::{Attest, ReportData};
use confide_fake_attester::{
    EndorsementEdition, FakeAttester, FakeAttesterOptions, Fault, Mode, PckCa, SimulatedPlatform,
    TdBody, Tee,
};
use dcap_qvl::{
    QuoteCollateralV3,
    policy::{QuoteClaims, QuotePolicy},
    quote::{Quote, Report},
    verify::{QuoteVerifier, VerifiedReport},
};

/// 2026-06-01.
const NOW: u64 = 1_780_272_000;
const ALL: [Tee; 3] = [Tee::Tdx, Tee::TdxV5, Tee::Sgx];

#[test]
fn honest_evidence_is_accepted_as_up_to_date() {
    for tee in ALL {
        for now in [NOW, NOW + 29 * 86_400] {
            let report = verify(&honest(tee), now).unwrap();
            assert_eq!(report.status, "UpToDate", "{tee:?}");
            assert!(report.advisory_ids.is_empty());
        }
    }
}

#[test]
fn both_bodies_of_version_5_and_both_cas_are_accepted() {
    for (td_body, pck_ca) in [(TdBody::Td10, PckCa::Platform), (TdBody::Td15, PckCa::Processor)] {
        let variant =
            SimulatedPlatform { td_body, pck_ca, platform: 3, ..SimulatedPlatform::default() };
        let attester = FakeAttester::with_variant(options(Tee::TdxV5), variant, None).unwrap();
        assert_eq!(verify(&attester, NOW).unwrap().status, "UpToDate", "{variant:?}");
    }
}

#[test]
fn a_bound_service_td_is_rejected() {
    assert!(verify(&faulty(Tee::TdxV5, Fault::ServiceTdBound), NOW).is_err());
}

#[test]
fn an_edition_is_accepted_beside_the_quote_of_another() {
    for tee in ALL {
        let attester = honest(tee);
        let later = NOW + 40 * 86_400;
        let mut edition = EndorsementEdition::issued_at(later);
        edition.evaluation_number += 1;
        let intel = attester.endorsements().issue_intel(&edition).unwrap();
        let collateral = intel.collateral_json(tee, PckCa::Platform).unwrap();
        let collateral: QuoteCollateralV3 = serde_json::from_str(&collateral).unwrap();
        let quote = attester.quote(&ReportData::ZERO);
        let verifier = QuoteVerifier::new(attester.root_der().to_vec());
        assert!(verifier.verify(&quote, &collateral, later).is_ok(), "{tee:?}");
        assert!(verifier.verify(&quote, &collateral, NOW).is_err(), "{tee:?}");
        let pck = attester.endorsements().pck_certificate(&attester.variant()).unwrap();
        edition.revoked_pck = vec![pck.serial];
        let intel = attester.endorsements().issue_intel(&edition).unwrap();
        let collateral = intel.collateral_json(tee, PckCa::Platform).unwrap();
        let collateral: QuoteCollateralV3 = serde_json::from_str(&collateral).unwrap();
        assert!(verifier.verify(&quote, &collateral, later).is_err(), "{tee:?}");
    }
}

#[test]
fn honest_evidence_passes_the_strictest_policy() {
    for tee in ALL {
        let claims = claims(&honest(tee), NOW).unwrap();
        assert_eq!(claims.platform.pck_crl_num, NOW as u32);
        assert_eq!(claims.platform.root_ca_crl_num, NOW as u32);
        assert_eq!(claims.platform.pck.ppid.len(), 16);
        assert_eq!(claims.platform.pck.fmspc, *b"SIM\0\0\0");
    }
}

#[test]
fn evidence_of_a_simulation_is_rejected_under_the_production_root() {
    for tee in ALL {
        let attester = honest(tee);
        let verifier = QuoteVerifier::new_prod();
        let quote = attester.quote(&ReportData::ZERO);
        assert!(verifier.verify(&quote, &collateral(&attester), NOW).is_err());
    }
}

#[test]
fn evidence_under_another_seed_is_rejected() {
    let other =
        FakeAttester::new(FakeAttesterOptions { seed: [9; 32], ..options(Tee::Tdx) }).unwrap();
    let verifier = QuoteVerifier::new(honest(Tee::Tdx).root_der().to_vec());
    let quote = other.quote(&ReportData::ZERO);
    assert!(verifier.verify(&quote, &collateral(&other), NOW).is_err());
}

#[test]
fn collateral_that_has_ended_is_rejected() {
    for tee in ALL {
        assert!(verify(&honest(tee), NOW + 31 * 86_400).is_err());
        assert!(verify(&honest(tee), NOW - 1).is_err());
    }
}

#[test]
fn faults_that_no_policy_can_allow_are_rejected() {
    for tee in ALL {
        for fault in [
            Fault::ExpiredCollateral,
            Fault::ExpiredCrl,
            Fault::RevokedPck,
            Fault::RevokedPlatformCa,
            Fault::RevokedTcb,
            Fault::ForeignFmspc,
            Fault::ForeignQuotingEnclave,
            Fault::UnboundAttestationKey,
        ] {
            assert!(verify(&faulty(tee, fault), NOW).is_err(), "{tee:?} {fault:?}");
        }
    }
    assert!(verify(&faulty(Tee::Tdx, Fault::SeptVeEnabled), NOW).is_err());
}

#[test]
fn levels_below_the_best_come_with_their_status_and_advisories() {
    let module = ["INTEL-SA-SIMULATED-00001"].as_slice();
    let enclave = ["INTEL-SA-SIMULATED-00006"].as_slice();
    for (tee, fault, status, advisories) in [
        (
            Tee::Tdx,
            Fault::SwHardeningNeeded,
            "SWHardeningNeeded",
            ["INTEL-SA-SIMULATED-00002"].as_slice(),
        ),
        (Tee::Sgx, Fault::SwHardeningNeeded, "SWHardeningNeeded", &["INTEL-SA-SIMULATED-00002"]),
        (
            Tee::Tdx,
            Fault::OutOfDate,
            "OutOfDate",
            &["INTEL-SA-SIMULATED-00003", "INTEL-SA-SIMULATED-00004"],
        ),
        (
            Tee::Sgx,
            Fault::OutOfDate,
            "OutOfDate",
            &["INTEL-SA-SIMULATED-00003", "INTEL-SA-SIMULATED-00004"],
        ),
        (Tee::Tdx, Fault::OutOfDateModule, "OutOfDate", module),
        (Tee::Sgx, Fault::OutOfDateModule, "OutOfDate", enclave),
    ] {
        let attester = faulty(tee, fault);
        let report = verify(&attester, NOW).unwrap();
        assert_eq!(report.status, status, "{tee:?} {fault:?}");
        assert_eq!(report.advisory_ids, advisories, "{tee:?} {fault:?}");
        assert!(claims(&attester, NOW).is_err(), "{tee:?} {fault:?}");
    }
}

/// webpki, which dcap-qvl uses, does not look at thisUpdate: a verifier has to do so itself.
#[test]
fn the_crl_faults_that_dcap_qvl_lets_pass_are_visible_in_its_claims() {
    for tee in ALL {
        let future = claims(&faulty(tee, Fault::FutureCrl), NOW).unwrap();
        assert!(future.latest_issue_date > NOW);
        let rolled_back = claims(&faulty(tee, Fault::RolledBackCrl), NOW).unwrap();
        assert!(rolled_back.platform.pck_crl_num < NOW as u32);
        assert!(rolled_back.platform.root_ca_crl_num < NOW as u32);
    }
}

#[test]
fn debug_mode_shows_in_the_evidence() {
    for tee in ALL {
        let attester =
            FakeAttester::new(FakeAttesterOptions { debug: true, ..options(tee) }).unwrap();
        assert!(verify(&attester, NOW).is_err());
        let verifier = QuoteVerifier::new(attester.root_der().to_vec()).allow_debug(true);
        let quote = attester.quote(&ReportData::ZERO);
        assert!(verifier.verify(&quote, &collateral(&attester), NOW).is_ok());
        let debug_bit = match Quote::parse(&quote).unwrap().report {
            Report::SgxEnclave(report) => report.attributes[0] >> 1 & 1,
            report => report.as_td10().unwrap().td_attributes[0] & 1,
        };
        assert_eq!(debug_bit, 1);
    }
}

#[test]
fn the_report_data_asked_for_is_in_the_quote() {
    let wanted = ReportData(std::array::from_fn(|i| i as u8 ^ 0xa5));
    for tee in ALL {
        let attester = honest(tee);
        let quote = attester.attest(&wanted).unwrap();
        let verifier = QuoteVerifier::new(attester.root_der().to_vec());
        let report = verifier.verify(&quote, &collateral(&attester), NOW).unwrap().report;
        let found = match &report {
            Report::SgxEnclave(report) => report.report_data,
            report => report.as_td10().unwrap().report_data,
        };
        assert_eq!(found, wanted.0);
        assert!(attester.is_simulated());
    }
}

#[test]
fn a_flipped_bit_in_the_signed_part_is_rejected() {
    for tee in ALL {
        let attester = honest(tee);
        let verifier = QuoteVerifier::new(attester.root_der().to_vec());
        for offset in [30, 60, 200, 400] {
            let mut quote = attester.quote(&ReportData::ZERO);
            quote[offset] ^= 1;
            assert!(verifier.verify(&quote, &collateral(&attester), NOW).is_err(), "{offset}");
        }
    }
}

fn options(tee: Tee) -> FakeAttesterOptions {
    FakeAttesterOptions { seed: [1; 32], tee, debug: false, issued_at: NOW, mode: Mode::Raw }
}

fn honest(tee: Tee) -> FakeAttester {
    FakeAttester::new(options(tee)).unwrap()
}

fn faulty(tee: Tee, fault: Fault) -> FakeAttester {
    FakeAttester::with_fault(options(tee), fault).unwrap()
}

fn collateral(attester: &FakeAttester) -> QuoteCollateralV3 {
    serde_json::from_str(&attester.collateral_json()).unwrap()
}

fn verify(attester: &FakeAttester, now: u64) -> Result<VerifiedReport, String> {
    let quote = attester.quote(&ReportData::ZERO);
    QuoteVerifier::new(attester.root_der().to_vec())
        .verify(&quote, &collateral(attester), now)
        .map_err(|error| format!("{error:#}"))
}

fn claims(attester: &FakeAttester, now: u64) -> Result<QuoteClaims, String> {
    let quote = attester.quote(&ReportData::ZERO);
    QuoteVerifier::new(attester.root_der().to_vec())
        .verify_with_policy(&quote, collateral(attester), now, &QuotePolicy::strict(now))
        .map_err(|error| format!("{error:#}"))
}
