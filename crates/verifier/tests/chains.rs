//! What a chain verifier leaves to its caller, one spoiled thing at a time.

mod own_pki;

use std::time::Duration;

use confide_verifier::{
    Appraised, Endorsements, Evidence, Policy, Reason, Rejection, Roots, UnixTime, appraise,
};
use confide_verifier_aws_lc::AwsLc;
use own_pki::{Made, NOW, Recipe};
use rcgen::KeyUsagePurpose;

#[test]
fn evidence_with_nothing_spoiled_is_accepted() {
    judge(&Recipe::default()).unwrap();
}

#[test]
fn a_really_revoked_certificate_is_refused_wherever_it_stands() {
    for role in ["pck", "ca", "signer", "root"] {
        let reason = refused(&Recipe { revoke: vec![role], ..Recipe::default() });
        assert!(matches!(reason, Reason::CertificateRevoked { .. }), "{role}: {reason}");
    }
}

#[test]
fn an_expired_certificate_is_refused_wherever_it_stands() {
    for role in ["pck", "ca", "signer", "root"] {
        let reason = refused(&Recipe { expire: role, ..Recipe::default() });
        assert!(matches!(reason, Reason::OutsideWindow { .. }), "{role}: {reason}");
    }
}

#[test]
fn a_revocation_list_from_the_future_or_the_past_is_refused() {
    for crl_life in [((2026, 6, 2), (2026, 7, 2)), ((2026, 4, 1), (2026, 5, 1))] {
        let reason = refused(&Recipe { crl_life, ..Recipe::default() });
        assert!(matches!(reason, Reason::OutsideWindow { subject: "root CRL", .. }), "{reason}");
    }
}

#[test]
fn revocation_lists_in_each_others_place_are_refused() {
    let reason = refused(&Recipe { swap_crls: true, ..Recipe::default() });
    assert!(matches!(reason, Reason::Chain { .. }), "{reason}");
}

#[test]
fn a_certificate_with_the_name_of_another_role_is_refused() {
    for rename in [
        ("signer", "Intel SGX PCK Certificate"),
        ("pck", "Intel SGX TCB Signing"),
        ("ca", "Intel SGX Root CA"),
        ("root", "Intel SGX PCK Platform CA"),
        ("signer", "NotIntel SGX TCB Signing CA"),
    ] {
        let reason = refused(&Recipe { rename, ..Recipe::default() });
        assert!(matches!(reason, Reason::CertificateName { .. }), "{rename:?}: {reason}");
    }
}

#[test]
fn a_certificate_used_against_its_key_usage_is_refused() {
    use KeyUsagePurpose::{CrlSign, DigitalSignature, KeyCertSign};
    for (role, usages) in [
        ("pck", vec![]),
        ("pck", vec![KeyCertSign]),
        ("pck", vec![DigitalSignature, KeyCertSign]),
        ("signer", vec![CrlSign]),
        ("ca", vec![KeyCertSign]),
        ("ca", vec![CrlSign]),
        ("root", vec![DigitalSignature]),
    ] {
        let recipe = Recipe { usages: Some((role, usages.clone())), ..Recipe::default() };
        let reason = refused(&recipe);
        assert!(matches!(reason, Reason::CertificateUse { .. }), "{role} {usages:?}: {reason}");
    }
}

#[test]
fn an_intermediate_that_is_no_ca_is_refused() {
    for not_a_ca in ["ca", "root"] {
        let reason = refused(&Recipe { not_a_ca, ..Recipe::default() });
        assert!(matches!(reason, Reason::CertificateUse { .. }), "{not_a_ca}: {reason}");
    }
}

#[test]
fn an_unknown_critical_extension_is_refused_even_on_the_root() {
    for role in ["pck", "ca", "signer", "root"] {
        let reason = refused(&Recipe { critical_extension_on: role, ..Recipe::default() });
        assert!(matches!(reason, Reason::CertificateUse { .. }), "{role}: {reason}");
    }
}

#[test]
fn a_quote_whose_chain_has_another_shape_is_refused() {
    let shapes: [&'static [&'static str]; 6] = [
        &["pck", "ca"],
        &["pck", "root"],
        &["pck", "ca", "root", "root"],
        &["pck", "ca", "ca", "root"],
        &["ca", "root"],
        &[],
    ];
    for quote_chain in shapes {
        let reason = refused(&Recipe { quote_chain, ..Recipe::default() });
        assert!(matches!(reason, Reason::ChainShape { .. }), "{quote_chain:?}: {reason}");
    }
    let orders: [&'static [&'static str]; 4] = [
        &["ca", "pck", "root"],
        &["root", "ca", "pck"],
        &["pck", "root", "ca"],
        &["pck", "pck", "root"],
    ];
    for quote_chain in orders {
        let reason = refused(&Recipe { quote_chain, ..Recipe::default() });
        assert!(matches!(reason, Reason::Differs { .. }), "{quote_chain:?}: {reason}");
    }
}

#[test]
fn collateral_whose_chains_have_another_shape_is_refused() {
    let shapes: [&'static [&'static str]; 4] =
        [&["signer"], &["signer", "signer", "root"], &["root", "signer"], &["root", "root"]];
    for chain in shapes {
        refused(&Recipe { tcb_chain: chain, ..Recipe::default() });
        refused(&Recipe { qe_chain: chain, ..Recipe::default() });
    }
    let shapes: [&'static [&'static str]; 4] =
        [&["ca"], &["root", "ca"], &["signer", "root"], &["ca", "ca", "root"]];
    for crl_chain in shapes {
        refused(&Recipe { crl_chain, ..Recipe::default() });
    }
}

#[test]
fn a_pck_chain_in_the_collateral_must_be_that_of_the_quote() {
    let same = Some(&["pck", "ca", "root"] as &'static [&'static str]);
    judge(&Recipe { pck_certificate_chain: same, ..Recipe::default() }).unwrap();
    let other = Some(&["signer", "ca", "root"] as &'static [&'static str]);
    let reason = refused(&Recipe { pck_certificate_chain: other, ..Recipe::default() });
    assert!(matches!(reason, Reason::Differs { .. }), "{reason}");
}

#[test]
fn documents_signed_by_the_pck_instead_of_the_tcb_signer_are_refused() {
    let reason = refused(&Recipe { tcb_chain: &["pck", "root"], ..Recipe::default() });
    assert!(matches!(reason, Reason::CertificateName { .. }), "{reason}");
    let reason = refused(&Recipe { qe_chain: &["pck", "root"], ..Recipe::default() });
    assert!(matches!(reason, Reason::CertificateName { .. }), "{reason}");
}

#[test]
fn a_signed_document_with_an_unknown_status_key_or_shape_is_refused() {
    const NUMBER: &str = r#""tcbEvaluationDataNumber":19"#;
    let changes: [fn(String) -> String; 6] = [
        |text| text.replace("UpToDate", "MostlyHarmless"),
        |text| text.replace(r#""version""#, r#""verison""#),
        |text| text.replacen('{', r#"{"surprise":1,"#, 1),
        |text| text.replacen(NUMBER, &format!("{NUMBER},{NUMBER}"), 1),
        |text| text.replacen("2026-05-20T00:00:00Z", "2026-05-20", 1),
        |text| text.replacen("2026-05-20T00:00:00Z", "2026-02-30T00:00:00Z", 1),
    ];
    for change in changes {
        let reason = refused(&Recipe { tcb_info: change, ..Recipe::default() });
        assert!(matches!(reason, Reason::Malformed(_)), "{reason}");
        let reason = refused(&Recipe { qe_identity: change, ..Recipe::default() });
        assert!(matches!(reason, Reason::Malformed(_)), "{reason}");
    }
    let message = refused(&Recipe { tcb_info: changes[0], ..Recipe::default() }).to_string();
    assert!(message.contains("MostlyHarmless"), "the status is named: {message}");
}

#[test]
fn revoked_levels_are_refused_whatever_the_policy_accepts() {
    let revoke: fn(String) -> String = |text| text.replace("UpToDate", "Revoked");
    for recipe in [
        Recipe { tcb_info: revoke, ..Recipe::default() },
        Recipe { qe_identity: revoke, ..Recipe::default() },
    ] {
        let reason = refused(&recipe);
        assert!(matches!(reason, Reason::TcbStatus { .. }), "{reason}");
    }
}

#[test]
fn trust_domain_attributes_that_no_production_domain_has_are_refused() {
    const GOOD: u64 = 1 << 28;
    for td_attributes in [0, GOOD | 1 << 7, GOOD | 1 << 23, GOOD | 1 << 32, GOOD | 1 << 29] {
        let reason = refused(&Recipe { td_attributes, ..Recipe::default() });
        assert!(matches!(reason, Reason::TdAttributes { .. }), "{td_attributes:#x}: {reason}");
    }
    for td_attributes in [GOOD | 1, GOOD | 1 << 4] {
        let reason = refused(&Recipe { td_attributes, ..Recipe::default() });
        assert!(matches!(reason, Reason::Debug(_)), "{td_attributes:#x}: {reason}");
    }
    judge(&Recipe { td_attributes: GOOD | 1 << 30, ..Recipe::default() }).unwrap();
}

#[test]
fn endorsements_verified_once_judge_as_those_verified_each_time() {
    let made = Recipe::default().make();
    let endorsements = Endorsements::parse(&made.collateral).unwrap();
    let policy = policy(&made);
    let verified = endorsements.verify(&policy.roots, at(NOW), &AwsLc).unwrap();
    let evidence = evidence(&made);
    let one = verified.appraise(&evidence, &policy, at(NOW), &AwsLc).unwrap();
    let other = appraise(&evidence, &endorsements, &policy, at(NOW), &AwsLc).unwrap();
    assert_eq!(one.checks(), other.checks());
    let end = verified.valid_until();
    verified.appraise(&evidence, &policy, at(end), &AwsLc).unwrap_err();
    let late = verified.appraise(&evidence, &policy, at(end + 1), &AwsLc).unwrap_err();
    assert!(matches!(late.reason(), Reason::OutsideWindow { .. }));
    let production = verified.appraise(&evidence, &Policy::default(), at(NOW), &AwsLc);
    assert!(matches!(production.unwrap_err().reason(), Reason::UntrustedRoot { .. }));
}

fn refused(recipe: &Recipe) -> Reason {
    judge(recipe).unwrap_err().reason().clone()
}

fn judge(recipe: &Recipe) -> Result<Appraised, Rejection> {
    let made = recipe.make();
    let endorsements = Endorsements::parse(&made.collateral)
        .map_err(|error| Rejection::unchecked(Reason::Malformed(error)))?;
    appraise(&evidence(&made), &endorsements, &policy(&made), at(NOW), &AwsLc)
}

fn evidence(made: &Made) -> Evidence<'_> {
    Evidence { quote: &made.quote, claims: None, report_data: None }
}

fn policy(made: &Made) -> Policy {
    Policy { roots: Roots::custom(&made.root_der), ..Policy::default() }
}

fn at(unix: u64) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(unix))
}
