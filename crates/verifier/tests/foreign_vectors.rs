//! Real quotes and collateral of other projects, with dcap-qvl's verdicts (`../shared/vectors`).

mod foreign;
mod ways;

use confide_evidence::tcb_info::TcbStatus;
use confide_verifier::{Appraised, Expect, INTEL_ROOT_DER, Outcome, Policy, Reason, Roots};
use foreign::{Case, all_cases, appraise};

#[test]
fn every_case_comes_out_as_dcap_qvl_says_or_stricter() {
    let Some(cases) = all_cases() else { return };
    let mut stricter = Vec::new();
    let mut wrong = Vec::new();
    for case in &cases {
        let got = appraise(case, &lenient(case));
        let right = match (&case.expected, &got) {
            (Ok(_), Ok(appraised)) => same_verdict(case, appraised),
            (Err(_), Err(_)) => true,
            (Ok(_), Err(_)) if case.policy_choice => {
                stricter.push(case.name.as_str());
                true
            }
            _ => false,
        };
        if !right {
            wrong.push((&case.name, &case.expected, got.map(|yes| yes.tcb_status())));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(stricter, ["mut-v4/trailing-bytes", "mut-v3/trailing-bytes"]);
    assert_eq!(cases.len(), 94);
}

#[test]
fn dcap_qvl_itself_agrees_on_every_case() {
    let Some(cases) = all_cases() else { return };
    for case in &cases {
        let verifier = dcap_qvl::verify::QuoteVerifier::new(
            case.root_der.clone().unwrap_or_else(|| INTEL_ROOT_DER.to_vec()),
        );
        let theirs = serde_json::from_slice(&case.collateral)
            .map_err(|error| error.to_string())
            .and_then(|collateral: serde_json::Value| dcap_qvl_collateral(&collateral))
            .and_then(|collateral| {
                let verdict = verifier.verify(&case.quote, &collateral, case.now);
                verdict.map_err(|error| error.to_string())
            });
        let ours = appraise(case, &lenient(case));
        if case.policy_choice && theirs.is_ok() {
            continue;
        }
        match (&theirs, &ours) {
            (Ok(theirs), Ok(ours)) => {
                assert_eq!(theirs.status, ours.tcb_status().unwrap().as_str(), "{}", case.name);
                assert_eq!(sort(&theirs.advisory_ids), sort(ours.advisories()), "{}", case.name);
            }
            (Err(_), Err(_)) => {}
            _ => panic!("{}: dcap-qvl {theirs:?}, ours {ours:?}", case.name),
        }
    }
}

#[test]
fn each_kind_of_spoiling_is_refused_by_the_check_that_is_for_it() {
    let Some(cases) = all_cases() else { return };
    let failed_by = [
        ("bad/fmspc-mismatch", "platform"),
        ("bad/sgx-debug", "debug"),
        ("bad/no-sept-ve-disable", "attributes"),
        ("bad/no-matching-tcb-level", "tcb_level"),
        ("bad/v5-service-td", "attributes"),
        ("bad/sgx-qe-identity-for-tdx", "qe_enclave"),
        ("bad/quote-newer-than-collateral", "pck_chain"),
        ("mut-v4/quote-version-6", "quote_format"),
        ("mut-v4/header-user-data-bit", "quote_signature"),
        ("mut-v4/report-data-bit", "quote_signature"),
        ("mut-v4/attestation-key-bit", "qe_report"),
        ("mut-v4/qe-report-isvsvn-bit", "qe_report"),
        ("mut-v4/trailing-bytes", "quote_format"),
        ("mut-v3/measurement-bit", "quote_signature"),
        ("mut-v3/qe-auth-data-bit", "qe_report"),
        ("col-v4/now-before-window", "qe_identity"),
        ("col-v4/now-after-window", "tcb_info"),
        ("col-v4/tcb-info-whitespace", "tcb_info"),
        ("col-v4/qe-identity-tampered-mrsigner", "qe_identity"),
        ("col-v4/pck-crl-signature-bit", "pck_chain"),
        ("col-v4/pck-crl-replaced-by-root-crl", "pck_chain"),
        ("col-v4/root-crl-signature-bit", "tcb_signer"),
        ("col-v4/tcb-chain-is-pck-ca", "tcb_signer"),
        ("col-v4/wrong-root-ca", "root"),
    ];
    for (name, wanted) in failed_by {
        let case = cases.iter().find(|case| case.name == name).unwrap();
        let rejection = appraise(case, &lenient(case)).unwrap_err();
        let failed = rejection.checks().iter().find(|check| check.outcome == Outcome::Failed);
        assert_eq!(failed.map(|check| check.name), Some(wanted), "{name}");
    }
}

#[test]
fn the_default_policy_refuses_an_out_of_date_platform() {
    let Some(case) = case("status/outofdate-eval17") else { return };
    let rejection = appraise(&case, &Policy::default()).unwrap_err();
    assert!(matches!(rejection.reason(), Reason::TcbStatus { got: TcbStatus::OutOfDate, .. }));
}

#[test]
fn the_report_data_of_the_anchor_vector_is_read_from_the_quote() {
    let Some(case) = case("anchor/fb-benchmark") else { return };
    let appraised = appraise(&case, &Policy::default()).unwrap();
    let report_data = hex::encode(appraised.platform().report_data);
    assert!(report_data.starts_with("74276a648f1fd491f474a2d52c72d850e3768157b43ec297"));
}

#[test]
fn a_simulated_or_foreign_root_is_not_trusted_by_a_production_policy() {
    let Some(case) = case("col-v4/wrong-root-ca") else { return };
    let rejection = appraise(&case, &lenient(&case)).unwrap_err();
    assert!(matches!(rejection.reason(), Reason::UntrustedRoot { .. }));
}

#[test]
fn a_revocation_list_older_than_the_held_one_is_refused() {
    let Some(case) = case("anchor/fb-benchmark") else { return };
    let seen = appraise(&case, &Policy::default()).unwrap().platform().intel().unwrap().pck_crl;
    let mut policy = Policy::default();
    policy.pck_crl.issued_min = seen.issued;
    appraise(&case, &policy).unwrap();
    policy.pck_crl.issued_min = seen.issued + 1;
    let rejection = appraise(&case, &policy).unwrap_err();
    assert!(matches!(rejection.reason(), Reason::RolledBack { .. }));
}

#[test]
fn the_committed_intel_root_is_the_one_others_ship() {
    let Some(root) = foreign::read("roots/intel-sgx-root-ca.der") else { return };
    assert_eq!(root, INTEL_ROOT_DER);
}

fn lenient(case: &Case) -> Policy {
    Policy {
        roots: case.root_der.as_deref().map_or_else(Roots::production, Roots::from_der),
        tcb_status: Expect::DangerousAny,
        advisories: Expect::DangerousAny,
        ..Policy::default()
    }
}

fn same_verdict(case: &Case, appraised: &Appraised) -> bool {
    let Ok((status, advisories)) = &case.expected else { return false };
    appraised.tcb_status().is_some_and(|it| it.as_str() == status)
        && sort(appraised.advisories()) == sort(advisories)
}

fn case(name: &str) -> Option<Case> {
    all_cases()?.into_iter().find(|case| case.name == name)
}

fn sort(list: &[String]) -> Vec<String> {
    let mut list = list.to_vec();
    list.sort();
    list
}

/// dcap-qvl wants byte fields as its serde has them; this builds its type field by field.
fn dcap_qvl_collateral(json: &serde_json::Value) -> Result<dcap_qvl::QuoteCollateralV3, String> {
    let text = |name: &str| json[name].as_str().unwrap_or_default().to_string();
    let bytes = |name: &str| hex::decode(text(name)).map_err(|error| error.to_string());
    Ok(dcap_qvl::QuoteCollateralV3 {
        pck_crl_issuer_chain: text("pck_crl_issuer_chain"),
        root_ca_crl: bytes("root_ca_crl")?,
        pck_crl: bytes("pck_crl")?,
        tcb_info_issuer_chain: text("tcb_info_issuer_chain"),
        tcb_info: text("tcb_info"),
        tcb_info_signature: bytes("tcb_info_signature")?,
        qe_identity_issuer_chain: text("qe_identity_issuer_chain"),
        qe_identity: text("qe_identity"),
        qe_identity_signature: bytes("qe_identity_signature")?,
        pck_certificate_chain: json["pck_certificate_chain"].as_str().map(str::to_string),
    })
}
