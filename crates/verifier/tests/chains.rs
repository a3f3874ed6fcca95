//! What a chain verifier leaves to its caller, one spoiled thing at a time.

mod own_pki;
mod ways;

use std::time::Duration;

use confide_evidence::tcb_info::TcbStatus;
use confide_verifier::{
    Appraised, AwsLc, Endorsements, Evidence, Outcome, Policy, Reason, Rejection, Roots, UnixTime,
};
use own_pki::{BuiltEvidence, NOW, Recipe};
use rcgen::KeyUsagePurpose;
use ways::appraise;

#[test]
fn evidence_with_nothing_spoiled_is_accepted() {
    judge(&Recipe::default()).unwrap();
}

#[test]
fn a_really_revoked_certificate_is_refused_wherever_it_stands() {
    for role in ["pck", "ca", "signer", "root"] {
        let reason = rejection_reason(&Recipe { revoke: vec![role], ..Recipe::default() });
        assert!(matches!(reason, Reason::CertificateRevoked { .. }), "{role}: {reason}");
    }
}

#[test]
fn an_expired_certificate_is_refused_wherever_it_stands() {
    for role in ["pck", "ca", "signer", "root"] {
        let reason = rejection_reason(&Recipe { expire: role, ..Recipe::default() });
        assert!(matches!(reason, Reason::OutsideWindow { .. }), "{role}: {reason}");
    }
}

#[test]
fn a_revocation_list_from_the_future_or_the_past_is_refused() {
    for crl_life in [((2026, 6, 2), (2026, 7, 2)), ((2026, 4, 1), (2026, 5, 1))] {
        let reason = rejection_reason(&Recipe { crl_life, ..Recipe::default() });
        assert!(matches!(reason, Reason::OutsideWindow { subject: "root CRL", .. }), "{reason}");
    }
}

#[test]
fn revocation_lists_in_each_others_place_are_refused() {
    let reason = rejection_reason(&Recipe { swap_crls: true, ..Recipe::default() });
    assert!(matches!(reason, Reason::Chain { .. }), "{reason}");
}

#[test]
fn a_revocation_list_does_not_pass_before_its_signature_is_verified() {
    let swapped = judge(&Recipe { swap_crls: true, ..Recipe::default() }).unwrap_err();
    assert_eq!(outcome(&swapped, "root_crl"), Outcome::NotEvaluated);

    let made = Recipe::default().make();
    let mut collateral: serde_json::Value = serde_json::from_slice(&made.collateral).unwrap();
    let mut forged = hex::decode(collateral["pck_crl"].as_str().unwrap()).unwrap();
    let last = forged.len() - 1;
    forged[last] ^= 1;
    collateral["pck_crl"] = hex::encode(forged).into();
    let endorsements = Endorsements::parse(collateral.to_string().as_bytes()).unwrap();
    // What an unverified list says of itself is not compared either.
    let mut policy = policy(&made);
    policy.pck_crl.number_min = u64::MAX;
    let no =
        appraise(&evidence(&made), &endorsements, &policy, unix_time(NOW), &AwsLc).unwrap_err();
    assert_eq!(outcome(&no, "root_crl"), Outcome::Passed);
    assert_eq!(outcome(&no, "pck_crl"), Outcome::NotEvaluated);
    assert_eq!(outcome(&no, "pck_chain"), Outcome::Failed);
}

#[test]
fn absurd_times_are_outside_every_window() {
    let made = Recipe::default().make();
    let endorsements = Endorsements::parse(&made.collateral).unwrap();
    for now in [0, 1, u64::from(u32::MAX), i64::MAX as u64, u64::MAX] {
        let no = appraise(&evidence(&made), &endorsements, &policy(&made), unix_time(now), &AwsLc);
        let no = no.unwrap_err();
        assert!(matches!(no.reason(), Reason::OutsideWindow { .. }), "{now}: {no}");
    }
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
        let reason = rejection_reason(&Recipe { rename, ..Recipe::default() });
        assert!(matches!(reason, Reason::CertificateName { .. }), "{rename:?}: {reason}");
    }
}

#[test]
fn what_an_unverified_certificate_calls_itself_cannot_command_a_terminal() {
    let rename = ("signer", "\u{1b}[2J\u{1b}[31mpassed\r\n");
    let reason = rejection_reason(&Recipe { rename, ..Recipe::default() });
    assert!(matches!(reason, Reason::CertificateName { .. }), "{reason}");
    assert!(!reason.to_string().contains(char::is_control), "{reason:?}");
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
        let reason = rejection_reason(&recipe);
        assert!(matches!(reason, Reason::CertificateUse { .. }), "{role} {usages:?}: {reason}");
    }
}

#[test]
fn an_intermediate_that_is_no_ca_is_refused() {
    for not_a_ca in ["ca", "root"] {
        let reason = rejection_reason(&Recipe { not_a_ca, ..Recipe::default() });
        assert!(matches!(reason, Reason::CertificateUse { .. }), "{not_a_ca}: {reason}");
    }
}

#[test]
fn an_unknown_critical_extension_is_refused_even_on_the_root() {
    for role in ["pck", "ca", "signer", "root"] {
        let reason = rejection_reason(&Recipe { critical_extension_on: role, ..Recipe::default() });
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
        let reason = rejection_reason(&Recipe { quote_chain, ..Recipe::default() });
        assert!(matches!(reason, Reason::ChainShape { .. }), "{quote_chain:?}: {reason}");
    }
    let orders: [&'static [&'static str]; 4] = [
        &["ca", "pck", "root"],
        &["root", "ca", "pck"],
        &["pck", "root", "ca"],
        &["pck", "pck", "root"],
    ];
    for quote_chain in orders {
        let reason = rejection_reason(&Recipe { quote_chain, ..Recipe::default() });
        assert!(matches!(reason, Reason::Differs { .. }), "{quote_chain:?}: {reason}");
    }
}

#[test]
fn collateral_whose_chains_have_another_shape_is_refused() {
    let shapes: [&'static [&'static str]; 4] =
        [&["signer"], &["signer", "signer", "root"], &["root", "signer"], &["root", "root"]];
    for chain in shapes {
        rejection_reason(&Recipe { tcb_chain: chain, ..Recipe::default() });
        rejection_reason(&Recipe { qe_chain: chain, ..Recipe::default() });
    }
    let shapes: [&'static [&'static str]; 4] =
        [&["ca"], &["root", "ca"], &["signer", "root"], &["ca", "ca", "root"]];
    for crl_chain in shapes {
        rejection_reason(&Recipe { crl_chain, ..Recipe::default() });
    }
}

#[test]
fn every_chain_of_the_collateral_ends_in_the_same_root() {
    for recipe in [
        Recipe { crl_chain: &["ca", "signer"], ..Recipe::default() },
        Recipe { qe_chain: &["signer", "ca"], ..Recipe::default() },
    ] {
        let reason = rejection_reason(&recipe);
        assert!(matches!(reason, Reason::Differs { other: "the trusted root", .. }), "{reason}");
    }
}

#[test]
fn endorsements_of_another_platform_or_tee_are_refused() {
    for tcb_info in [
        (|text| text.replace(r#""pceId":"0000"#, r#""pceId":"0001"#)) as fn(String) -> String,
        |text| text.replace(r#""fmspc":"01"#, r#""fmspc":"02"#),
    ] {
        let reason = rejection_reason(&Recipe { tcb_info, ..Recipe::default() });
        assert!(matches!(reason, Reason::Value { field: "FMSPC" | "PCE-ID", .. }), "{reason}");
    }
    let qe_identity: fn(String) -> String = |text| text.replace("TD_QE", "QE");
    let reason = rejection_reason(&Recipe { qe_identity, ..Recipe::default() });
    assert!(matches!(reason, Reason::WrongTee { subject: "QE identity", .. }), "{reason}");
    let tcb_info: fn(String) -> String = |text| {
        let mut info: serde_json::Value = serde_json::from_str(&text).unwrap();
        info["id"] = "SGX".into();
        info.as_object_mut().unwrap().remove("tdxModule");
        info["tcbLevels"][0]["tcb"].as_object_mut().unwrap().remove("tdxtcbcomponents");
        info.to_string()
    };
    let reason = rejection_reason(&Recipe { tcb_info, ..Recipe::default() });
    assert!(matches!(reason, Reason::WrongTee { subject: "TCB info", .. }), "{reason}");
}

#[test]
fn another_tdx_module_is_refused() {
    const MASK: &str = r#""attributesMask":"FFFF"#;
    let signer: fn(String) -> String =
        |text| text.replace(r#""mrsigner":"00"#, r#""mrsigner":"01"#);
    let reason = rejection_reason(&Recipe { tcb_info: signer, ..Recipe::default() });
    assert!(matches!(reason, Reason::Value { field: "MRSIGNERSEAM", .. }), "{reason}");
    // A bit that the mask leaves out has to be zero all the same.
    let unmasked: fn(String) -> String = |text| text.replace(MASK, r#""attributesMask":"00FF"#);
    let same: fn(String) -> String = |text| text;
    for tcb_info in [same, unmasked] {
        let reason =
            rejection_reason(&Recipe { tcb_info, seam_attributes: 1, ..Recipe::default() });
        assert!(matches!(reason, Reason::Value { field: "SEAM attributes", .. }), "{reason}");
    }
    let wanted: fn(String) -> String =
        |text| text.replace(r#""attributes":"00"#, r#""attributes":"01"#);
    let reason = rejection_reason(&Recipe { tcb_info: wanted, ..Recipe::default() });
    assert!(matches!(reason, Reason::Value { field: "SEAM attributes", .. }), "{reason}");
}

#[test]
fn a_pck_chain_in_the_collateral_must_be_that_of_the_quote() {
    let same = Some(&["pck", "ca", "root"] as &'static [&'static str]);
    judge(&Recipe { pck_certificate_chain: same, ..Recipe::default() }).unwrap();
    let other = Some(&["signer", "ca", "root"] as &'static [&'static str]);
    let reason = rejection_reason(&Recipe { pck_certificate_chain: other, ..Recipe::default() });
    assert!(matches!(reason, Reason::Differs { .. }), "{reason}");
}

#[test]
fn documents_signed_by_the_pck_instead_of_the_tcb_signer_are_refused() {
    let reason = rejection_reason(&Recipe { tcb_chain: &["pck", "root"], ..Recipe::default() });
    assert!(matches!(reason, Reason::CertificateName { .. }), "{reason}");
    let reason = rejection_reason(&Recipe { qe_chain: &["pck", "root"], ..Recipe::default() });
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
        let reason = rejection_reason(&Recipe { tcb_info: change, ..Recipe::default() });
        assert!(matches!(reason, Reason::Malformed(_)), "{reason}");
        let reason = rejection_reason(&Recipe { qe_identity: change, ..Recipe::default() });
        assert!(matches!(reason, Reason::Malformed(_)), "{reason}");
    }
    let message =
        rejection_reason(&Recipe { tcb_info: changes[0], ..Recipe::default() }).to_string();
    assert!(message.contains("MostlyHarmless"), "the status is named: {message}");
}

#[test]
fn revoked_levels_are_refused_whatever_the_policy_accepts() {
    let revoke: fn(String) -> String = |text| text.replace("UpToDate", "Revoked");
    for recipe in [
        Recipe { tcb_info: revoke, ..Recipe::default() },
        Recipe { qe_identity: revoke, ..Recipe::default() },
    ] {
        let reason = rejection_reason(&recipe);
        assert!(matches!(reason, Reason::TcbStatus { .. }), "{reason}");
    }
}

#[test]
fn a_quoting_enclave_that_is_not_up_to_date_makes_the_platform_out_of_date() {
    for status in ["OutOfDate", "ConfigurationNeeded", "OutOfDateConfigurationNeeded"] {
        let qe_identity: fn(String) -> String = match status {
            "OutOfDate" => |text| text.replace("UpToDate", "OutOfDate"),
            "ConfigurationNeeded" => |text| text.replace("UpToDate", "ConfigurationNeeded"),
            _ => |text| text.replace("UpToDate", "OutOfDateConfigurationNeeded"),
        };
        let reason = rejection_reason(&Recipe { qe_identity, ..Recipe::default() });
        assert!(
            matches!(reason, Reason::TcbStatus { got: TcbStatus::OutOfDate, .. }),
            "{status}: {reason}"
        );
    }
}

#[test]
fn grace_makes_up_for_age_and_for_nothing_else() {
    let stale: fn(String) -> String = |text| text.replace("UpToDate", "OutOfDate");
    let hardening: fn(String) -> String = |text| text.replace("UpToDate", "SWHardeningNeeded");
    let both: fn(String) -> String =
        |text| text.replace("UpToDate", "ConfigurationAndSWHardeningNeeded");
    let unconfigured: fn(String) -> String = |text| text.replace("UpToDate", "ConfigurationNeeded");
    let stale_unconfigured: fn(String) -> String =
        |text| text.replace("UpToDate", "OutOfDateConfigurationNeeded");
    let same: fn(String) -> String = |text| text;
    for (tcb_info, qe_identity, accepted, passes) in [
        (same, stale, "UpToDate", true),
        (stale, same, "UpToDate", true),
        (stale, stale, "UpToDate", true),
        (hardening, stale, "UpToDate", false),
        (hardening, stale, "SWHardeningNeeded", true),
        (both, stale, "ConfigurationNeeded", false),
        (both, stale, "ConfigurationAndSWHardeningNeeded", true),
        (stale_unconfigured, same, "UpToDate", false),
        (stale_unconfigured, same, "ConfigurationNeeded", true),
        (same, unconfigured, "UpToDate", false),
        (stale, stale_unconfigured, "UpToDate", false),
        (same, stale_unconfigured, "ConfigurationNeeded", true),
    ] {
        let made = Recipe { tcb_info, qe_identity, ..Recipe::default() }.make();
        let text = format!("tcb_grace_s = 999999999\ntcb_status = \"{accepted}\"");
        let policy = Policy { roots: policy(&made).roots, ..Policy::from_toml(&text).unwrap() };
        let endorsements = Endorsements::parse(&made.collateral).unwrap();
        let outcome = appraise(&evidence(&made), &endorsements, &policy, unix_time(NOW), &AwsLc);
        let statuses = (tcb_info("UpToDate".into()), qe_identity("UpToDate".into()), accepted);
        match outcome {
            Ok(_) => assert!(passes, "{statuses:?}"),
            Err(refused) => {
                assert!(!passes, "{statuses:?}");
                assert!(matches!(refused.reason(), Reason::TcbStatus { .. }), "{statuses:?}");
            }
        }
    }
}

#[test]
fn a_quoting_enclave_must_match_its_identity_outside_the_mask_too() {
    // The wanted value has a bit that its mask clears: Intel's library then accepts nothing.
    for qe_identity in [
        (|text| text.replace(r#""attributes":"11"#, r#""attributes":"15"#)) as fn(String) -> String,
        |text| {
            text.replace(r#""miscselectMask":"FFFFFFFF"#, r#""miscselectMask":"FFFFFF00"#)
                .replace(r#""miscselect":"00000000"#, r#""miscselect":"00000001"#)
        },
        |text| text.replace(r#""attributes":"11"#, r#""attributes":"13"#),
        |text| text.replace(r#""isvprodid":2"#, r#""isvprodid":1"#),
        |text| text.replace(r#""isvsvn":4"#, r#""isvsvn":5"#),
    ] {
        let reason = rejection_reason(&Recipe { qe_identity, ..Recipe::default() });
        assert!(matches!(reason, Reason::Value { .. } | Reason::NoTcbLevel { .. }), "{reason}");
    }
}

#[test]
fn a_quoting_enclave_in_debug_mode_is_refused_even_where_its_identity_does_not_look() {
    let blind: fn(String) -> String = |text| text.replace("FBFFFFFF", "F9FFFFFF");
    judge(&Recipe { qe_identity: blind, ..Recipe::default() }).unwrap();
    let reason =
        rejection_reason(&Recipe { qe_identity: blind, qe_attributes: 0x13, ..Recipe::default() });
    assert!(matches!(reason, Reason::Value { field: "QE ATTRIBUTES", .. }), "{reason}");
}

#[test]
fn a_platform_below_a_level_in_any_one_component_does_not_reach_it() {
    for tcb_info in [
        (|text| text.replacen(r#"{"svn":1}]"#, r#"{"svn":2}]"#, 1)) as fn(String) -> String,
        |text| text.replacen(r#"[{"svn":1}"#, r#"[{"svn":2}"#, 1),
        |text| text.replacen(r#""pcesvn":1"#, r#""pcesvn":2"#, 1),
        |text| text.replacen(r#"[{"svn":0}"#, r#"[{"svn":1}"#, 1),
        |text| text.replacen(r#"[{"svn":0},{"svn":0}"#, r#"[{"svn":0},{"svn":1}"#, 1),
        |text| text.replacen(r#"{"svn":0}]"#, r#"{"svn":1}]"#, 1),
    ] {
        let reason = rejection_reason(&Recipe { tcb_info, ..Recipe::default() });
        assert!(matches!(reason, Reason::NoTcbLevel { .. }), "{reason}");
    }
}

#[test]
fn trust_domain_attributes_that_no_production_domain_has_are_refused() {
    const GOOD: u64 = 1 << 28;
    for td_attributes in [0, GOOD | 1 << 7, GOOD | 1 << 23, GOOD | 1 << 32, GOOD | 1 << 29] {
        let reason = rejection_reason(&Recipe { td_attributes, ..Recipe::default() });
        assert!(matches!(reason, Reason::TdAttributes { .. }), "{td_attributes:#x}: {reason}");
    }
    for td_attributes in [GOOD | 1, GOOD | 1 << 4] {
        let reason = rejection_reason(&Recipe { td_attributes, ..Recipe::default() });
        assert!(matches!(reason, Reason::Debug(_)), "{td_attributes:#x}: {reason}");
    }
    judge(&Recipe { td_attributes: GOOD | 1 << 30, ..Recipe::default() }).unwrap();
}

fn outcome(no: &Rejection, name: &str) -> Outcome {
    no.checks().iter().find(|check| check.name == name).unwrap().outcome
}

fn rejection_reason(recipe: &Recipe) -> Reason {
    judge(recipe).unwrap_err().reason().clone()
}

fn judge(recipe: &Recipe) -> Result<Appraised, Rejection> {
    let made = recipe.make();
    let endorsements = Endorsements::parse(&made.collateral)
        .map_err(|error| Rejection::before_checks(Reason::Malformed(error)))?;
    appraise(&evidence(&made), &endorsements, &policy(&made), unix_time(NOW), &AwsLc)
}

fn evidence(made: &BuiltEvidence) -> Evidence<'_> {
    Evidence { quote: &made.quote, claims: None, report_data: None, gpu: None, binding: None }
}

fn policy(made: &BuiltEvidence) -> Policy {
    Policy { roots: Roots::from_der(&made.root_der), ..Policy::default() }
}

fn unix_time(unix: u64) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(unix))
}
