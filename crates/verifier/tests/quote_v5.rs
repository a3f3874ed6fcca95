//! Quotes of version 5: three lengths of TD report, and what the longer ones add.

mod own_pki;

use std::time::Duration;

use confide_evidence::{ParseError, quote::Quote, tcb_info::TcbStatus};
use confide_verifier::{
    Appraised, AwsLc, Endorsements, Evidence, Expect, Policy, Reason, Rejection, Roots, UnixTime,
    appraise,
};
use own_pki::{NOW, Recipe};

#[test]
fn each_length_of_report_is_accepted_in_version_5() {
    for length in [0, 64, 301] {
        let recipe = v5(vec![0; length]);
        ask(&recipe, |_| {}).unwrap();
        let made = recipe.make();
        let quote = Quote::parse(&made.quote).unwrap();
        // Type and length of the body are signed as well.
        assert_eq!(quote.signed.len(), 48 + 6 + 584 + length);
        assert_eq!(quote.header.version(), 5);
    }
}

#[test]
fn body_type_and_length_are_signed_and_have_to_agree() {
    let good = v5(vec![0; 64]);
    for wrong in [(1, 0), (0, 0), (2, 0), (4, 0), (5, 0), (3, 1), (3, u32::MAX)] {
        let recipe = Recipe { wrong_body: Some(wrong), ..good.clone() };
        let error = Quote::parse(&recipe.make().quote).unwrap_err();
        let named = matches!(
            error,
            ParseError::Unsupported { subject: "quote body type", .. }
                | ParseError::Length { subject: "quote body", .. }
        );
        assert!(named, "{wrong:?}: {error}");
    }
}

#[test]
fn a_bound_service_td_is_refused_unless_the_policy_names_it() {
    let mut tail = vec![0; 64];
    tail[16..].fill(7);
    let recipe = v5(tail);
    let refused = ask(&recipe, |_| {}).unwrap_err();
    assert!(matches!(refused.reason(), Reason::Value { field: "mr_service_td", .. }));
    let named = |hash: &str| {
        let any = r#"= "dangerous-any""#;
        format!(
            "[workload.tdx]\nmrtd {any}\nrtmr0 {any}\nrtmr1 {any}\nrtmr2 {any}\nrtmr3 {any}\n{hash}"
        )
    };
    let workload = |text: &str| Policy::from_toml(text).unwrap().workload;
    let with = |hash: &str| {
        let workload = workload(&named(hash));
        ask(&recipe, |policy| policy.workload = workload.clone())
    };
    assert!(with("").is_err());
    assert!(with(&format!("mr_service_td = \"{}\"", "08".repeat(48))).is_err());
    with(&format!("mr_service_td = \"{}\"", "07".repeat(48))).unwrap();
    with("mr_service_td = \"dangerous-any\"").unwrap();
}

#[test]
fn a_report_that_names_no_service_td_is_not_taken_for_one_that_the_policy_names() {
    let any = r#"= "dangerous-any""#;
    let with = |hash: &str| {
        let text = format!(
            "[workload.tdx]\nmrtd {any}\nrtmr0 {any}\nrtmr1 {any}\nrtmr2 {any}\nrtmr3 {any}\n\
             mr_service_td = {hash}"
        );
        let workload = Policy::from_toml(&text).unwrap().workload;
        ask(&v5(vec![]), |policy| policy.workload = workload)
    };
    // A body of TDX 1.0 has no such field: a policy that demands a service TD gets a reason that says so.
    let refused = with(&format!("\"{}\"", "07".repeat(48))).unwrap_err();
    assert!(matches!(refused.reason(), Reason::Value { field: "mr_service_td", .. }));
    with(&format!("\"{}\"", "00".repeat(48))).unwrap();
    with(&format!("[\"{}\", \"{}\"]", "00".repeat(48), "07".repeat(48))).unwrap();
    with("\"dangerous-any\"").unwrap();
}

#[test]
fn partitions_devices_and_service_tds_of_the_extended_report_are_refused() {
    for (at, wanted) in [
        (64, "TD partition"),
        (64 + 33, "device information"),
        (64 + 80, "device information"),
        (64 + 81, "initial service TD"),
        (64 + 136, "initial service TD"),
        (64 + 181, "current service TD"),
        (64 + 236, "current service TD"),
    ] {
        let mut tail = vec![0; 301];
        tail[at] = 1;
        let refused = ask(&v5(tail), |_| {}).unwrap_err();
        let field = match refused.reason() {
            Reason::Value { field, .. } => *field,
            other => panic!("{at}: {other}"),
        };
        assert_eq!(field, wanted, "{at}");
    }
    // An identifier, and what the platform was when the trust domain was created.
    for at in [64 + 1, 64 + 32, 64 + 137, 64 + 180] {
        let mut tail = vec![0; 301];
        tail[at] = 1;
        ask(&v5(tail), |_| {}).unwrap();
    }
}

#[test]
fn the_module_that_runs_now_is_judged_beside_the_one_at_launch() {
    let judge = |launch: [u8; 2], now: [u8; 2]| {
        let mut tail = vec![0; 64];
        tail[..2].copy_from_slice(&now);
        let recipe = Recipe { tee_tcb_svn: launch, tcb_info: with_identity, ..v5(tail) };
        ask(&recipe, |policy| {
            policy.tcb_status = Expect::DangerousAny;
            policy.advisories = Expect::DangerousAny;
        })
    };
    let (new, old, bad) = ([5, 3], [4, 3], [3, 3]);
    for (launch, now, wanted) in [
        (new, new, TcbStatus::UpToDate),
        (old, new, TcbStatus::TdRelaunchAdvised),
        (old, old, TcbStatus::OutOfDate),
        (new, old, TcbStatus::OutOfDate),
    ] {
        assert_eq!(judge(launch, now).unwrap().tcb_status(), Some(wanted), "{launch:?} {now:?}");
    }
    for (launch, now) in [(bad, new), (new, bad), (bad, bad)] {
        let refused = judge(launch, now).unwrap_err();
        assert!(matches!(refused.reason(), Reason::TcbStatus { got: TcbStatus::Revoked, .. }));
    }
    for now in [[2, 3], [5, 4]] {
        assert!(judge(new, now).is_err(), "{now:?} has no level");
    }
}

#[test]
fn a_relaunch_that_is_advised_passes_only_where_the_policy_names_it() {
    let mut tail = vec![0; 64];
    tail[..2].copy_from_slice(&[5, 3]);
    let recipe = Recipe { tee_tcb_svn: [4, 3], tcb_info: with_identity, ..v5(tail) };
    let refused = ask(&recipe, |_| {}).unwrap_err();
    let wanted = TcbStatus::TdRelaunchAdvised;
    assert!(matches!(refused.reason(), Reason::TcbStatus { got, .. } if *got == wanted));
    let named = Policy::from_toml("tcb_status = \"TDRelaunchAdvised\"").unwrap();
    ask(&recipe, |policy| policy.tcb_status = named.tcb_status.clone()).unwrap();
}

fn v5(body_tail: Vec<u8>) -> Recipe {
    Recipe { quote_version: 5, body_tail, ..Recipe::default() }
}

/// Gives TCB info an identity of module 3: up to date from 5, out of date at 4, revoked at 3.
fn with_identity(tcb_info: String) -> String {
    let level = |svn: u8, status: &str| {
        format!(
            r#"{{"tcb":{{"isvsvn":{svn}}},"tcbDate":"2026-01-01T00:00:00Z","tcbStatus":"{status}"}}"#
        )
    };
    let levels = [level(5, "UpToDate"), level(4, "OutOfDate"), level(3, "Revoked")].join(",");
    let module = format!(
        concat!(
            r#""tdxModuleIdentities":[{{"id":"TDX_03","mrsigner":"{}","attributes":"{}","#,
            r#""attributesMask":"{}","tcbLevels":[{}]}}],"tcbLevels""#
        ),
        "00".repeat(48),
        "00".repeat(8),
        "FF".repeat(8),
        levels,
    );
    tcb_info.replacen("\"tcbLevels\"", &module, 1)
}

fn ask(recipe: &Recipe, change: impl FnOnce(&mut Policy)) -> Result<Appraised, Rejection> {
    let made = recipe.make();
    let mut policy = Policy { roots: Roots::from_der(&made.root_der), ..Policy::default() };
    change(&mut policy);
    let endorsements = Endorsements::parse(&made.collateral).unwrap();
    let evidence = Evidence { quote: &made.quote, ..Evidence::default() };
    let now = UnixTime::since_unix_epoch(Duration::from_secs(NOW));
    appraise(&evidence, &endorsements, &policy, now, &AwsLc)
}
