//! Statements of `dcap` against every expectation that a policy can have.

use confide_verifier::{AMD_ROOTS_SHA256, INTEL_ROOT_SHA256, Roots};

use super::*;

const FROM: u64 = 1_780_000_000;
const UNTIL: u64 = 1_790_000_000;
const NOW: u64 = 1_785_000_000;

/// The empty policy: what holds without a policy holds under it.
const NONE: &str = "";

const DOMAIN: &str = "[workload.tdx]\n";
const ENCLAVE: &str = "[workload.sgx]\n";

#[test]
fn a_good_statement_is_accepted_and_what_nobody_compared_is_not_called_passed() {
    let checks = compare(NONE, None, &claim()).unwrap();
    let outcome = |name| checks.iter().find(|check| check.name == name).unwrap().outcome;
    for name in ["verdict", "root", "validity", "tcb_status", "advisories", "debug"] {
        assert_eq!(outcome(name), Outcome::Passed, "{name}");
    }
    for name in ["formats", "evaluation_number", "root_crl", "report_data", "measurements"] {
        assert_eq!(outcome(name), Outcome::NotEvaluated, "{name}");
    }
}

#[test]
fn another_root_is_refused_whoever_made_it() {
    check_refusal("root", NONE, |claim| claim.root_sha256[0] ^= 1);
    // A vendor's root is trusted for that vendor's evidence only.
    check_refusal("root", NONE, |claim| claim.root_sha256 = AMD_ROOTS_SHA256[0]);
    let own = format!("roots = [\"sha256:{}\"]\n", "ab".repeat(32));
    let mut custom = claim();
    assert_eq!(compare(&own, None, &custom).unwrap_err().name, "root", "Intel's is not named");
    custom.root_sha256 = [0xab; 32];
    compare(&own, None, &custom).unwrap();
    assert_eq!(compare(NONE, None, &custom).unwrap_err().name, "root");
    // A root as `--root` gives it.
    let beyond = EvidenceExpectation {
        policy: Policy { roots: Roots::from_der(b"der"), ..policy(NONE) },
        ..expectation_at(NOW)
    };
    assert_eq!(beyond.compare(&claim(), &mut Vec::new()).unwrap_err().name, "root");
}

#[test]
fn a_time_outside_the_intersection_is_refused_and_both_ends_are_inside() {
    for (now, wanted) in [
        (FROM, None),
        (UNTIL, None),
        (FROM - 1, Some("validity")),
        (UNTIL + 1, Some("validity")),
        (0, Some("validity")),
        (u64::MAX, Some("validity")),
    ] {
        let refused = expectation_at(now).compare(&claim(), &mut Vec::new()).err();
        assert_eq!(refused.map(|refused| refused.name), wanted, "{now}");
    }
    // An empty period contains no instant.
    check_refusal("validity", NONE, |claim| (claim.valid_from, claim.valid_until) = (UNTIL, FROM));
}

#[test]
fn a_status_that_the_policy_does_not_take_is_refused() {
    let other = |status: &'static str| move |claim: &mut Dcap| claim.tcb_status = status.into();
    for status in ["OutOfDate", "SWHardeningNeeded", "Revoked", "uptodate", ""] {
        check_refusal("tcb_status", NONE, other(status));
    }
    let some = "tcb_status = [\"UpToDate\", \"SWHardeningNeeded\"]\n";
    check_refusal("tcb_status", some, other("OutOfDate"));
    check_acceptance(some, other("SWHardeningNeeded"));
    // No policy admits a revoked platform or an unknown status.
    let any = "tcb_status = \"dangerous-any\"\n";
    check_refusal("tcb_status", any, other("Revoked"));
    check_refusal("tcb_status", any, other("Fine"));
    check_acceptance(any, other("OutOfDate"));
}

#[test]
fn an_advisory_that_the_policy_does_not_name_is_refused() {
    let some = "advisories = [\"INTEL-SA-00001\"]\n";
    let having = |names: &'static [&str]| {
        move |claim: &mut Dcap| claim.advisories = names.iter().map(|n| n.to_string()).collect()
    };
    check_refusal("advisories", NONE, having(&["INTEL-SA-00001"]));
    check_refusal("advisories", some, having(&["INTEL-SA-00002"]));
    check_refusal("advisories", some, having(&["INTEL-SA-00001", "INTEL-SA-00002"]));
    check_acceptance(some, having(&["INTEL-SA-00001"]));
}

#[test]
fn older_endorsements_than_the_policy_wants_are_refused() {
    let number = "tcb_evaluation_data_number_min = 19\n";
    check_refusal("evaluation_number", number, |claim| claim.tcb_evaluation_data_number = 18);
    let root = format!("[root_crl]\nissued_min = {FROM}\n");
    check_refusal("root_crl", &root, |claim| claim.root_crl_issued = FROM - 1);
    let pck = format!("[pck_crl]\nissued_min = {FROM}\n");
    check_refusal("pck_crl", &pck, |claim| claim.pck_crl_issued = FROM - 1);
}

#[test]
fn debug_is_refused_where_the_policy_does_not_allow_it() {
    check_refusal("debug", NONE, |claim| claim.debug = true);
    check_acceptance("dangerous_accept_debug = true\n", |claim| claim.debug = true);
}

#[test]
fn other_report_data_is_refused_by_the_option_and_by_the_policy() {
    let by_policy = format!("report_data = \"{}\"\n", "07".repeat(64));
    check_refusal("report_data", &by_policy, |claim| claim.report_data[63] ^= 1);
    let option = |byte| Some(ReportData([byte; 64]));
    compare(NONE, option(7), &claim()).unwrap();
    assert_eq!(compare(NONE, option(8), &claim()).unwrap_err().name, "report_data");
    // One of them that holds does not replace the other.
    assert_eq!(compare(&by_policy, option(8), &claim()).unwrap_err().name, "report_data");
    let other = format!("report_data = \"{}\"\n", "08".repeat(64));
    assert_eq!(compare(&other, option(7), &claim()).unwrap_err().name, "report_data");
}

#[test]
fn each_measurement_of_a_trust_domain_is_compared() {
    let names =
        ["mrtd", "rtmr0", "rtmr1", "rtmr2", "rtmr3", "mrconfigid", "mrowner", "mrownerconfig"];
    let lines = names.iter().zip(1_u8..);
    let lines: Vec<String> =
        lines.map(|(name, byte)| format!("{name} = \"{}\"\n", hex::encode([byte; 48]))).collect();
    let policy = format!("{DOMAIN}{}", lines.concat());
    let field = |nth: usize, claim: &mut Dcap| {
        let Measurements::Tdx(it) = &mut claim.measurements else { panic!("no trust domain") };
        let fields = [
            &mut it.mrtd,
            &mut it.rtmr0,
            &mut it.rtmr1,
            &mut it.rtmr2,
            &mut it.rtmr3,
            &mut it.mrconfigid,
            &mut it.mrowner,
            &mut it.mrownerconfig,
        ];
        fields.into_iter().nth(nth).unwrap()[47] ^= 0x80;
    };
    for (nth, name) in names.iter().enumerate() {
        let refused = check_refusal("measurements", &policy, |claim| field(nth, claim));
        assert!(refused.detail.starts_with(&format!("{name}: ")), "{}", refused.detail);
    }
    // The last three have to be zero where the policy does not name them.
    let short = format!("{DOMAIN}{}", lines[..5].concat());
    assert_eq!(compare(&short, None, &claim()).unwrap_err().name, "measurements");
}

#[test]
fn each_measurement_of_an_enclave_is_compared() {
    let policy = format!(
        "{ENCLAVE}mrenclave = \"{}\"\nmrsigner = \"{}\"\nisv_prod_id = 3\nisv_svn_min = 4\n\
         config_id = \"{}\"\n",
        "01".repeat(32),
        "02".repeat(32),
        "05".repeat(64)
    );
    compare(&policy, None, &enclave(|_| ())).unwrap();
    type Change = fn(&mut SgxMeasurements);
    let changes: [(&str, Change); 5] = [
        ("mrenclave", |it| it.mrenclave[0] ^= 1),
        ("mrsigner", |it| it.mrsigner[0] ^= 1),
        ("isv_prod_id", |it| it.isv_prod_id += 1),
        ("isv_svn", |it| it.isv_svn -= 1),
        ("config_id", |it| it.config_id[0] ^= 1),
    ];
    for (name, change) in changes {
        let refused = compare(&policy, None, &enclave(change)).unwrap_err();
        assert_eq!(refused.name, "measurements");
        assert!(refused.detail.starts_with(&format!("{name}: ")), "{}", refused.detail);
    }
    compare(&policy, None, &enclave(|it| it.isv_svn += 1)).unwrap();
    // A policy for enclaves only accepts no trust domain.
    assert_eq!(compare(&policy, None, &claim()).unwrap_err().name, "measurements");
}

#[test]
fn a_kind_of_evidence_that_the_policy_does_not_look_at_is_refused() {
    let domains = "formats = [\"tdx\", \"snp\"]\n";
    compare(domains, None, &claim()).unwrap();
    assert_eq!(compare(domains, None, &enclave(|_| ())).unwrap_err().name, "formats");
    assert_eq!(compare("formats = [\"snp\"]\n", None, &claim()).unwrap_err().name, "formats");
}

#[test]
fn what_a_policy_asks_and_no_statement_tells_is_refused() {
    let digest = "ab".repeat(32);
    let domain = |line: &str| {
        let all: String = ["mrtd", "rtmr0", "rtmr1", "rtmr2", "rtmr3"]
            .iter()
            .chain(&["mrconfigid", "mrowner", "mrownerconfig"])
            .map(|name| format!("{name} = \"dangerous-any\"\n"))
            .collect();
        format!("[workload.tdx]\n{all}{line}")
    };
    compare(&domain(""), None, &claim()).unwrap();
    for (key, text) in [
        ("ppids", format!("ppids = [\"{}\"]\n", "ab".repeat(16))),
        ("binding", "binding = \"key\"\n".to_string()),
        ("config_digest", format!("config_digest = \"{digest}\"\n")),
        ("weights", format!("weights = \"{digest}\"\n")),
        ("evidence_age_s_max", "evidence_age_s_max = 60\n".to_string()),
        ("root_crl.number_min", "[root_crl]\nnumber_min = 1\n".to_string()),
        ("pck_crl.number_min", "[pck_crl]\nnumber_min = 1\n".to_string()),
        ("gpu.required", "[gpu]\nrequired = true\n".to_string()),
        ("mrseam", domain(&format!("mrseam = \"{}\"\n", "ab".repeat(48)))),
        ("mr_service_td", domain(&format!("mr_service_td = \"{}\"\n", "ab".repeat(48)))),
    ] {
        let refused = compare(&text, None, &claim()).unwrap_err();
        assert_eq!(refused.name, "policy", "{text}");
        assert!(
            refused.detail.starts_with(&format!("the policy demands {key},")),
            "{}",
            refused.detail
        );
    }
}

#[test]
fn an_expectation_of_a_quote_is_not_dropped_where_there_is_none() {
    expectation_at(NOW).refuse_without_quote(&mut Vec::new()).unwrap();
    let given = EvidenceExpectation { is_given: true, ..expectation_at(NOW) };
    assert_eq!(given.refuse_without_quote(&mut Vec::new()).unwrap_err().name, "evidence");
}

/// Refused under `policy` once `change` was made, and accepted without it.
#[track_caller]
fn check_refusal(name: &str, policy: &str, change: impl FnOnce(&mut Dcap)) -> RefusedStatement {
    let mut changed = claim();
    compare(policy, None, &changed).unwrap();
    change(&mut changed);
    let refused = compare(policy, None, &changed).unwrap_err();
    assert_eq!(refused.name, name, "{}", refused.detail);
    refused
}

#[track_caller]
fn check_acceptance(policy: &str, change: impl FnOnce(&mut Dcap)) {
    let mut changed = claim();
    change(&mut changed);
    compare(policy, None, &changed).unwrap();
}

/// The checks of an acceptance. The last check of a refusal is the one that failed, with the
/// refusal's name.
fn compare(
    text: &str,
    data: Option<ReportData>,
    claim: &Dcap,
) -> Result<Vec<Check>, RefusedStatement> {
    let mut checks = Vec::new();
    let beyond =
        EvidenceExpectation { policy: policy(text), report_data: data, ..expectation_at(NOW) };
    let outcome = beyond.compare(claim, &mut checks);
    let failed: Vec<_> = checks.iter().filter(|it| it.outcome == Outcome::Failed).collect();
    match outcome {
        Ok(()) => assert!(failed.is_empty(), "{failed:?}"),
        Err(refused) => {
            assert_eq!(failed.iter().map(|it| it.name).collect::<Vec<_>>(), [refused.name]);
            assert_eq!(checks.last().unwrap().name, refused.name);
            return Err(refused);
        }
    }
    Ok(checks)
}

fn policy(text: &str) -> Policy {
    Policy::from_toml(text).unwrap()
}

fn expectation_at(now: u64) -> EvidenceExpectation {
    EvidenceExpectation { policy: Policy::default(), report_data: None, now, is_given: false }
}

fn claim() -> Dcap {
    Dcap {
        verdict: Verdict::Accepted,
        root_sha256: INTEL_ROOT_SHA256,
        report_data: [7; 64],
        measurements: Measurements::Tdx(TdxMeasurements {
            mrtd: [1; 48],
            rtmr0: [2; 48],
            rtmr1: [3; 48],
            rtmr2: [4; 48],
            rtmr3: [5; 48],
            mrconfigid: [6; 48],
            mrowner: [7; 48],
            mrownerconfig: [8; 48],
        }),
        debug: false,
        tcb_status: "UpToDate".to_string(),
        advisories: Vec::new(),
        tcb_evaluation_data_number: 19,
        root_crl_issued: FROM,
        pck_crl_issued: FROM,
        valid_from: FROM,
        valid_until: UNTIL,
    }
}

fn enclave(change: impl FnOnce(&mut SgxMeasurements)) -> Dcap {
    let mut it = SgxMeasurements {
        mrenclave: [1; 32],
        mrsigner: [2; 32],
        isv_prod_id: 3,
        isv_svn: 4,
        config_id: [5; 64],
    };
    change(&mut it);
    Dcap { measurements: Measurements::Sgx(it), ..claim() }
}
