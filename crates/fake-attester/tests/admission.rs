//! Policy fields that decide who may come at all, against simulated quotes.

use confide_evidence::certificate::Certificate;
use confide_evidence::{BindingKind, ReportData, pck::PckExtension, pem, quote::Quote};
use confide_fake_attester::{FakeAttester, FakeAttesterOptions, Fault, Mode, Tee};
use confide_verifier::{
    Appraised, AwsLc, BindingLevel, Endorsements, Evidence, Outcome, Policy, Reason, UnixTime,
    appraise,
};

/// 2026-06-01.
const NOW: u64 = 1_780_272_000;
const WANTED: ReportData = ReportData([7; 64]);

#[test]
fn a_kind_of_evidence_that_the_policy_leaves_out_is_refused() {
    let tdx = honest();
    let with = |formats: &str| tdx.policy_toml() + formats;
    assert!(ask(&tdx, &at_top(&with(""), "formats = [\"tdx\"]"), None).is_ok());
    let reason = ask(&tdx, &at_top(&with(""), "formats = [\"snp\", \"sgx\"]"), None).unwrap_err();
    assert!(matches!(reason, Reason::Value { field: "kind of evidence", .. }), "{reason}");
    for bad in ["[]", "[\"tdx\", \"tdx\"]", "[\"sev\"]", "\"tdx\""] {
        assert!(Policy::from_toml(&format!("formats = {bad}")).is_err(), "{bad}");
    }
}

#[test]
fn only_the_platforms_that_the_policy_names_are_accepted() {
    let attester = honest();
    let ppid = hex::encode(ppid(&attester));
    let policy = at_top(&attester.policy_toml(), &format!("ppids = [\"{ppid}\"]"));
    let yes = ask(&attester, &policy, None).unwrap();
    assert!(outcome(&yes, "chip") == Outcome::Passed);
    let other = at_top(&attester.policy_toml(), &format!("ppids = \"{}\"", "ab".repeat(16)));
    let reason = ask(&attester, &other, None).unwrap_err();
    assert!(matches!(reason, Reason::Value { field: "PPID", .. }), "{reason}");
    let unnamed = Policy::from_toml(&attester.policy_toml()).unwrap();
    assert!(outcome(&ask(&attester, &unnamed, None).unwrap(), "chip") == Outcome::NotEvaluated);
    for bad in ["00".repeat(17), "00".repeat(15), "zz".repeat(16)] {
        assert!(Policy::from_toml(&format!("ppids = \"{bad}\"")).is_err(), "{bad}");
    }
}

#[test]
fn a_policy_that_wants_a_binding_refuses_a_weaker_one() {
    use BindingKind::{TlsExporter, TlsSpki};
    let attester = honest();
    for (level, binding, accepted) in [
        (None, None, true),
        (None, Some(TlsSpki), true),
        (Some(BindingLevel::Key), None, false),
        (Some(BindingLevel::Key), Some(TlsSpki), true),
        (Some(BindingLevel::Key), Some(TlsExporter), true),
        (Some(BindingLevel::Session), None, false),
        (Some(BindingLevel::Session), Some(TlsSpki), false),
        (Some(BindingLevel::Session), Some(TlsExporter), true),
    ] {
        let mut policy = Policy::from_toml(&attester.policy_toml()).unwrap();
        policy.binding = level;
        let outcome = ask(&attester, &policy, binding);
        assert_eq!(outcome.is_ok(), accepted, "{level:?} {binding:?} {outcome:?}");
    }
    assert!(Policy::from_toml("binding = \"none\"").is_err());
}

#[test]
fn an_out_of_date_level_passes_within_its_grace_and_not_a_second_longer() {
    let attester = FakeAttester::with_fault(options(), Fault::OutOfDate).unwrap();
    let advisories = "advisories = \"dangerous-any\"";
    let text = attester.policy_toml().replace("advisories = []", advisories);
    let since = level_date(&attester);
    let grace = NOW - since;
    let accepted = ask(&attester, &at_top(&text, &format!("tcb_grace_s = {grace}")), None);
    assert_eq!(accepted.unwrap().tcb_status().unwrap().as_str(), "OutOfDate");
    for short in [0, 1, grace - 1] {
        let policy = at_top(&text, &format!("tcb_grace_s = {short}"));
        let reason = ask(&attester, &policy, None).unwrap_err();
        assert!(matches!(reason, Reason::TcbStatus { .. }), "{short}: {reason}");
    }
    // Grace makes up for age only: the advisories of that level still have to be accepted.
    let strict = at_top(&attester.policy_toml(), &format!("tcb_grace_s = {grace}"));
    assert!(matches!(ask(&attester, &strict, None).unwrap_err(), Reason::Advisory { .. }));
    let revoked = FakeAttester::with_fault(options(), Fault::RevokedTcb).unwrap();
    let policy = at_top(&text, &format!("tcb_grace_s = {}", u64::MAX >> 1));
    assert!(matches!(ask(&revoked, &policy, None).unwrap_err(), Reason::TcbStatus { .. }));
}

fn options() -> FakeAttesterOptions {
    FakeAttesterOptions {
        seed: [1; 32],
        tee: Tee::Tdx,
        debug: false,
        issued_at: NOW,
        mode: Mode::Raw,
    }
}

fn honest() -> FakeAttester {
    FakeAttester::new(options()).unwrap()
}

/// Top-level keys have to stand before the first table.
fn at_top(text: &str, line: &str) -> Policy {
    Policy::from_toml(&format!("{line}\n{text}")).unwrap()
}

fn ask(
    attester: &FakeAttester,
    policy: &Policy,
    binding: Option<BindingKind>,
) -> Result<Appraised, Reason> {
    let quote = attester.quote(&WANTED);
    let evidence =
        Evidence { quote: &quote, report_data: Some(WANTED), binding, ..Evidence::default() };
    let endorsements = Endorsements::parse(attester.collateral_json().as_bytes())?;
    let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(NOW));
    appraise(&evidence, &endorsements, policy, now, &AwsLc)
        .map_err(|rejection| rejection.reason().clone())
}

fn outcome(appraised: &Appraised, name: &str) -> Outcome {
    let mut checks = appraised.checks().iter();
    checks.find(|check| check.name == name).unwrap().outcome
}

fn ppid(attester: &FakeAttester) -> [u8; 16] {
    let quote = attester.quote(&WANTED);
    let quote = Quote::parse(&quote).unwrap();
    let chain = pem::decode_chain("PCK chain", quote.pck_chain).unwrap();
    let leaf = Certificate::parse("PCK", &chain[0]).unwrap();
    PckExtension::parse(leaf.sgx_extension.unwrap()).unwrap().ppid
}

/// The date of the one level of the simulated TCB info that is out of date.
fn level_date(attester: &FakeAttester) -> u64 {
    let collateral = attester.collateral_json();
    let collateral =
        confide_evidence::collateral::Collateral::parse(collateral.as_bytes()).unwrap();
    let info = confide_evidence::tcb_info::TcbInfo::parse(&collateral.tcb_info).unwrap();
    let mut levels = info.tcb_levels.iter();
    levels.find(|level| level.tcb_status.as_str() == "OutOfDate").unwrap().tcb_date
}
