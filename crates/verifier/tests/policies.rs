//! What a policy can say, and what its yes then speaks of.

mod own_pki;
mod ways;

use std::time::Duration;

use confide_evidence::{ReportData, claims::Claims};
use confide_verifier::{
    Appraised, AwsLc, Endorsements, Evidence, Expect, Outcome, Policy, PolicyError, Reason, Roots,
    Scope, TdxWorkload, UnixTime,
};
use own_pki::{NOW, Recipe};
use ways::appraise;

#[test]
fn an_empty_policy_is_the_default_and_speaks_of_the_platform() {
    assert_eq!(Policy::from_toml("").unwrap(), Policy::default());
    assert_eq!(judge(&Policy::default()).unwrap().scope(), Scope::Platform);
}

#[test]
fn unknown_keys_are_errors_at_every_depth() {
    for text in [
        "mrtd = \"00\"",
        "[workload]\nmrtd = \"00\"",
        "[workload.snp]\nmeasurement = \"00\"",
        "[workload.snp]\nsmt = true",
        "[snp]\ntcb_min = 3",
        "[snp]\nvmpl_max = 3",
        "[root_crl]\nnumber = 1",
        "tcb_status = \"Fine\"",
        "tcb_status = 3",
        "roots = []",
        "roots = [\"intel\"]",
        "roots = [\"44a0196b2b99f889b8e149e95b807a350e7424964399e885a7cbb8ccfab674d3\"]",
        "roots = [\"sha256:44a0\"]",
        "config_digest = \"00\"",
        "advisories = [\"CVE-2024-1\"]",
        "[workload.tdx]\nmrtd = \"dangerous-any\"",
    ] {
        let error = Policy::from_toml(text).unwrap_err();
        assert!(matches!(error, PolicyError::Toml { .. }), "{text}: {error}");
    }
    let long = "#".repeat(70_000);
    assert!(matches!(Policy::from_toml(&long), Err(PolicyError::TooLong { .. })));
}

#[test]
fn the_example_of_the_documentation_is_a_policy() {
    let page = include_str!("../../../docs/policy.md");
    let example = page.split("```toml").nth(1).unwrap().split("```").next().unwrap();
    let filled = example
        .lines()
        .map(|line| match line.split_once('…') {
            Some((start, end)) if line.starts_with("config_digest") => {
                format!("{start}{}{end}\n", "0".repeat(60))
            }
            Some((start, end)) => format!("{start}{}{end}\n", "0".repeat(92)),
            None => format!("{line}\n"),
        })
        .collect::<String>();
    let policy = Policy::from_toml(&filled).unwrap();
    assert_eq!(policy.root_crl.issued_min, 1_742_469_717);
    assert_eq!(policy.workload.unwrap().tdx.unwrap().rtmr3, Expect::DangerousAny);
}

#[test]
fn a_workload_is_named_only_with_measurements_and_report_data() {
    let mut policy = Policy::from_toml(&workload("aa")).unwrap();
    assert_eq!(judge(&policy).unwrap().scope(), Scope::Platform);
    policy.report_data = Some(Expect::Exactly([0; 64]));
    assert_eq!(judge(&policy).unwrap().scope(), Scope::Workload);
    policy.report_data = Some(Expect::DangerousAny);
    assert_eq!(judge(&policy).unwrap().scope(), Scope::Platform);
    policy.report_data = Some(Expect::Exactly([1; 64]));
    assert!(matches!(judge(&policy), Err(Reason::Value { field: "report data", .. })));
    let any = workload("aa")
        .replace(&format!("mrtd = \"{}\"", "aa".repeat(48)), "mrtd = \"dangerous-any\"");
    let mut any = Policy::from_toml(&any).unwrap();
    any.report_data = Some(Expect::Exactly([0; 64]));
    assert_eq!(judge(&any).unwrap().scope(), Scope::Platform);
}

#[test]
fn firmware_alone_names_no_program() {
    for (register, scope) in [
        ("rtmr0", Scope::Workload),
        ("rtmr1", Scope::Platform),
        ("rtmr2", Scope::Platform),
        ("rtmr3", Scope::Workload),
    ] {
        let mut policy = Policy::from_toml(&workload("aa")).unwrap();
        policy.report_data = Some(Expect::Exactly([0; 64]));
        let tdx = policy.workload.as_mut().unwrap().tdx.as_mut().unwrap();
        match register {
            "rtmr0" => tdx.rtmr0 = Expect::DangerousAny,
            "rtmr1" => tdx.rtmr1 = Expect::DangerousAny,
            "rtmr2" => tdx.rtmr2 = Expect::DangerousAny,
            _ => tdx.rtmr3 = Expect::DangerousAny,
        }
        assert_eq!(judge(&policy).unwrap().scope(), scope, "{register}");
    }
}

#[test]
fn a_program_whose_memory_the_host_can_change_is_not_the_one_that_was_measured() {
    let made = Recipe { td_attributes: 1 << 28 | 1, ..Recipe::default() }.make();
    let mut policy = Policy::from_toml(&workload("aa")).unwrap();
    policy.report_data = Some(Expect::Exactly([0; 64]));
    policy.dangerous_accept_debug = true;
    policy.roots = Roots::from_der(&made.root_der);
    let endorsements = Endorsements::parse(&made.collateral).unwrap();
    let evidence =
        Evidence { quote: &made.quote, claims: None, report_data: None, gpu: None, binding: None };
    let yes = appraise(&evidence, &endorsements, &policy, unix_time(NOW), &AwsLc).unwrap();
    assert!(yes.is_debug());
    assert_eq!(yes.scope(), Scope::Platform);
}

#[test]
fn an_empty_list_of_reference_values_accepts_nothing() {
    for text in ["tcb_status = []", "report_data = []"] {
        judge(&Policy::from_toml(text).unwrap()).unwrap_err();
    }
    let empty = workload("aa").replace(&format!("\"{}\"", "aa".repeat(48)), "[]");
    let refused = judge(&Policy::from_toml(&empty).unwrap()).unwrap_err();
    assert!(matches!(refused, Reason::Value { field: "mrtd", .. }), "{refused}");
    let upper = Policy::from_toml(&workload("AA")).unwrap();
    judge(&upper).unwrap();
}

#[test]
fn another_measurement_and_another_tee_are_refused() {
    let policy = Policy::from_toml(&workload("ab")).unwrap();
    assert!(matches!(judge(&policy), Err(Reason::Value { field: "mrtd", .. })));
    let sgx = "[workload.sgx]\nmrenclave = \"dangerous-any\"\nmrsigner = \"dangerous-any\"\n\
               isv_prod_id = 1\nisv_svn_min = 0\n";
    let policy = Policy::from_toml(sgx).unwrap();
    assert!(matches!(judge(&policy), Err(Reason::NoReferenceValues(_))));
}

#[test]
fn every_measurement_of_a_trust_domain_is_compared() {
    let differs = || Expect::Exactly([0x77; 48]);
    for (field, change) in [
        ("rtmr0", (|tdx, it| tdx.rtmr0 = it) as fn(&mut TdxWorkload, Expect<[u8; 48]>)),
        ("rtmr1", |tdx, it| tdx.rtmr1 = it),
        ("rtmr2", |tdx, it| tdx.rtmr2 = it),
        ("rtmr3", |tdx, it| tdx.rtmr3 = it),
        ("mrconfigid", |tdx, it| tdx.mrconfigid = it),
        ("mrowner", |tdx, it| tdx.mrowner = it),
        ("mrownerconfig", |tdx, it| tdx.mrownerconfig = it),
        ("mrseam", |tdx, it| tdx.mrseam = Some(it)),
    ] {
        let mut policy = Policy::from_toml(&workload("aa")).unwrap();
        change(policy.workload.as_mut().unwrap().tdx.as_mut().unwrap(), differs());
        let reason = judge(&policy).unwrap_err();
        assert!(matches!(reason, Reason::Value { field: got, .. } if got == field), "{reason}");
    }
}

#[test]
fn the_lower_evaluation_number_of_both_documents_counts() {
    let older: fn(String) -> String = |text| text.replace(r#"DataNumber":19"#, r#"DataNumber":18"#);
    for recipe in [
        Recipe { tcb_info: older, ..Recipe::default() },
        Recipe { qe_identity: older, ..Recipe::default() },
    ] {
        let made = recipe.make();
        let endorsements = Endorsements::parse(&made.collateral).unwrap();
        let evidence = Evidence {
            quote: &made.quote,
            claims: None,
            report_data: None,
            gpu: None,
            binding: None,
        };
        let mut policy = Policy { roots: Roots::from_der(&made.root_der), ..Policy::default() };
        policy.tcb_evaluation_data_number_min = 18;
        let yes = appraise(&evidence, &endorsements, &policy, unix_time(NOW), &AwsLc).unwrap();
        assert_eq!(yes.platform().intel().unwrap().tcb_evaluation_data_number, 18);
        policy.tcb_evaluation_data_number_min = 19;
        appraise(&evidence, &endorsements, &policy, unix_time(NOW), &AwsLc).unwrap_err();
    }
}

#[test]
fn minimums_refuse_what_is_older() {
    let policy = |text: &str| Policy::from_toml(text).unwrap();
    judge(&policy("tcb_evaluation_data_number_min = 19")).unwrap();
    assert!(judge(&policy("tcb_evaluation_data_number_min = 20")).is_err());
    judge(&policy("root_crl.number_min = 1")).unwrap();
    let refused = judge(&policy("root_crl.number_min = 2")).unwrap_err();
    assert!(matches!(refused, Reason::RolledBack { subject: "root CRL", .. }));
    let refused = judge(&policy("pck_crl.issued_min = 1780000000")).unwrap_err();
    assert!(matches!(refused, Reason::RolledBack { subject: "PCK CRL", .. }));
}

#[test]
fn a_policy_that_speaks_of_claims_refuses_evidence_without_them() {
    let policy = Policy { config_digest: Some(Expect::Exactly([7; 32])), ..Policy::default() };
    assert!(matches!(judge(&policy), Err(Reason::NoClaims { field: "config_digest" })));
    let policy = Policy { evidence_age_s_max: Some(60), ..Policy::default() };
    assert!(matches!(judge(&policy), Err(Reason::NoClaims { field: "evidence_age_s_max" })));
}

#[test]
fn claims_that_the_report_data_does_not_cover_are_refused() {
    let claims = Claims {
        config_digest: [7; 32],
        gpu_evidence_hash: None,
        guarantee: "operator is outside the TEE".into(),
        nonce: None,
        not_after: NOW + 60,
        not_before: NOW - 60,
        pubkey_hash: [1; 32],
        weights: None,
    };
    let bytes = claims.encode();
    let made = Recipe::default().make();
    let policy = Policy { roots: Roots::from_der(&made.root_der), ..Policy::default() };
    let endorsements = Endorsements::parse(&made.collateral).unwrap();
    let ask = |report_data, policy: &Policy| {
        let evidence = Evidence {
            quote: &made.quote,
            claims: Some(&bytes),
            report_data,
            gpu: None,
            binding: None,
        };
        appraise(&evidence, &endorsements, policy, unix_time(NOW), &AwsLc)
    };
    let unbound = ask(None, &policy).unwrap_err();
    assert!(matches!(unbound.reason(), Reason::Value { field: "report data", .. }));
    // A channel that binds otherwise says itself what the report data has to be.
    let zero = Some(ReportData::ZERO);
    let yes = ask(zero, &policy).unwrap();
    assert_eq!(yes.claims(), Some(&claims));
    let digest = |digest| Policy { config_digest: Some(digest), ..policy.clone() };
    ask(zero, &digest(Expect::Exactly([7; 32]))).unwrap();
    let swapped = ask(zero, &digest(Expect::Exactly([8; 32]))).unwrap_err();
    assert!(matches!(swapped.reason(), Reason::Value { field: "configuration digest", .. }));
    let long_lived = ask(zero, &Policy { key_validity_s_max: 119, ..policy.clone() }).unwrap_err();
    assert!(matches!(long_lived.reason(), Reason::TooOld { got: 120, .. }));
    for now in [NOW - 61, NOW + 61] {
        let evidence = Evidence {
            quote: &made.quote,
            claims: Some(&bytes),
            report_data: zero,
            gpu: None,
            binding: None,
        };
        let no = appraise(&evidence, &endorsements, &policy, unix_time(now), &AwsLc).unwrap_err();
        assert!(matches!(no.reason(), Reason::OutsideWindow { subject: "bound key", .. }), "{no}");
    }
    let stale = ask(zero, &Policy { evidence_age_s_max: Some(59), ..policy.clone() }).unwrap_err();
    assert!(matches!(stale.reason(), Reason::TooOld { got: 60, .. }));
}

#[test]
fn dangerous_any_is_not_evaluated_rather_than_passed() {
    let policy = Policy {
        tcb_status: Expect::DangerousAny,
        advisories: Expect::DangerousAny,
        ..Policy::default()
    };
    let yes = judge(&policy).unwrap();
    let outcome = |name| yes.checks().iter().find(|check| check.name == name).unwrap().outcome;
    assert_eq!(outcome("tcb_status"), Outcome::NotEvaluated);
    assert_eq!(outcome("advisories"), Outcome::NotEvaluated);
    assert_eq!(outcome("tcb_level"), Outcome::Passed);
}

#[test]
fn a_rejection_lists_the_failed_check_and_what_was_not_reached() {
    let made = Recipe { td_attributes: 0, ..Recipe::default() }.make();
    let policy = Policy { roots: Roots::from_der(&made.root_der), ..Policy::default() };
    let endorsements = Endorsements::parse(&made.collateral).unwrap();
    let evidence =
        Evidence { quote: &made.quote, claims: None, report_data: None, gpu: None, binding: None };
    let no = appraise(&evidence, &endorsements, &policy, unix_time(NOW), &AwsLc).unwrap_err();
    let failed: Vec<_> =
        no.checks().iter().filter(|check| check.outcome == Outcome::Failed).collect();
    assert_eq!(failed.len(), 1);
    assert_eq!(failed[0].name, "attributes");
    let after = no.checks().iter().skip_while(|check| check.name != "attributes").skip(1);
    assert!(after.into_iter().all(|check| check.outcome == Outcome::NotEvaluated));
    assert_eq!(no.to_json()["outcome"], "rejected");
    assert_eq!(no.to_json()["claims"], serde_json::json!({}));
}

fn workload(byte: &str) -> String {
    let mrtd = byte.repeat(48);
    let zero = "00".repeat(48);
    format!(
        "[workload.tdx]\nmrtd = \"{mrtd}\"\nrtmr0 = \"{zero}\"\nrtmr1 = \"{zero}\"\n\
         rtmr2 = [\"{zero}\"]\nrtmr3 = \"dangerous-any\"\n"
    )
}

fn judge(policy: &Policy) -> Result<Appraised, Reason> {
    let made = Recipe::default().make();
    let policy = Policy { roots: Roots::from_der(&made.root_der), ..policy.clone() };
    let endorsements = Endorsements::parse(&made.collateral).unwrap();
    let evidence =
        Evidence { quote: &made.quote, claims: None, report_data: None, gpu: None, binding: None };
    appraise(&evidence, &endorsements, &policy, unix_time(NOW), &AwsLc)
        .map_err(|rejection| rejection.reason().clone())
}

fn unix_time(unix: u64) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(unix))
}
