//! Receipts at the command line: accepted, refused by name, or not readable.

use std::fs;

use clap::Parser;
use confide_disclosure::{Direction, DirectionHasher, Excerpt, Seed, Selector};
use confide_fake_attester::{FakeAttester, FakeAttesterOptions, Mode, Tee};
use confide_receipt::{
    BodyDigest, COMMITMENT, CONFIGURATION_EVENT, Event, FORWARDED_EVENT, Json, Keyset,
    RECEIVED_EVENT, RETURNED_EVENT, Receipt, ReceiptKey, ReportContent, digest_text,
};
use confide_verification::ReceiptRefusal;
use confide_verifier::{Outcome, Reason, Scope};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::*;
use crate::excerpt::{ExcerptFiles, make_excerpt};

#[test]
fn a_receipt_with_both_bodies_is_accepted_from_each_kind_of_machine() {
    for tee in [Tee::Sgx, Tee::Tdx, Tee::TdxV5, Tee::Snp] {
        let case = Case::new(&format!("each-{tee:?}"), tee);
        let verdict = case.judge(&BODIES);
        assert_eq!(verdict.outcome.as_ref().unwrap(), &Scope::Workload, "{tee:?}");
        // The policy names no weights.
        let mut demanded = verdict.checks.iter().filter(|check| check.name != "weights");
        assert!(demanded.all(|check| check.outcome == Outcome::Passed));
        let answer = report::describe_verdict(&verdict);
        let wanted = "accepted           yes            platform, program and configuration; \
                      request and answer match; the root is not a vendor's\n";
        assert!(answer.text.ends_with(wanted), "{}", answer.text);
        // The evidence's own checks are listed, then the receipt's.
        let places =
            ["report  ", "report data", "keyset  ", "response  "].map(|it| answer.text.find(it));
        assert!(places[0].is_some() && places.is_sorted(), "{}", answer.text);
        assert_eq!(answer.status, 0);
        assert_eq!(answer.json["outcome"], "accepted");
        assert_eq!(answer.json["scope"], "workload");
        assert_eq!(answer.json["receipt"]["model"], "demo-model");
        assert_eq!(answer.json["evidence"]["outcome"], "accepted");
    }
}

#[test]
fn a_body_that_is_not_given_is_not_evaluated() {
    let case = Case::new("bodies", Tee::Tdx);
    for (options, request, response, wanted) in [
        (&BODIES[..2], Outcome::Passed, Outcome::NotEvaluated, "the answer was not compared"),
        (&BODIES[2..], Outcome::NotEvaluated, Outcome::Passed, "the request was not compared"),
        (&[], Outcome::NotEvaluated, Outcome::NotEvaluated, "neither request nor answer was"),
    ] {
        let verdict = case.judge(options);
        assert_eq!(verdict.outcome_of("request"), request);
        assert_eq!(verdict.outcome_of("response"), response);
        let answer = report::describe_verdict(&verdict);
        assert_eq!(answer.status, 0);
        assert!(answer.text.contains(wanted), "{}", answer.text);
    }
}

#[test]
fn a_request_that_was_changed_on_its_way_is_named() {
    let case = Case::new("forwarded", Tee::Tdx);
    let received = Event::of_body(RECEIVED_EVENT, &digest_of(REQUEST));
    let other = Event::of_body(FORWARDED_EVENT, &digest_of(ANSWER));
    for (events, wanted) in [
        (vec![received.clone(), other], "sent another body"),
        (vec![received], "does not say what was sent on"),
    ] {
        let events = [events, vec![configuration()]].concat();
        let text = case.key.sign(&receipt(&case.keyset, events));
        case.write("receipt.json", text.as_bytes());
        let verdict = case.judge(&[]);
        assert_eq!(verdict.outcome_of("forwarded"), Outcome::NotEvaluated);
        let check = verdict.checks.iter().find(|check| check.name == "forwarded").unwrap();
        assert!(check.detail.to_string().contains(wanted), "{}", check.detail);
    }
}

#[test]
fn a_changed_byte_of_the_receipt_is_refused() {
    let case = Case::new("changed", Tee::Tdx);
    for (from, to, wanted) in [
        ("demo-model", "demo-modeL", "signature"),
        ("\"served_at\":1780272000", "\"served_at\":1780272001", "signature"),
        ("\"signature\":\"", "\"signature\":\"0", "receipt"),
        ("\"event_log\":[", "\"event_log\":[[", "receipt"),
        ("\"api_version\":\"aci/1\"", "\"api_version\":\"aci/2\"", "receipt"),
        ("\"key_id\":\"receipt-", "\"key_id\":\"receipT-", "unknown_key"),
        ("\"workload_keyset_digest\":\"s", "\"workload_keyset_digest\":\"S", "other_keyset"),
    ] {
        let changed = case.receipt().replacen(from, to, 1);
        assert_ne!(changed, case.receipt(), "{from}");
        case.write("receipt.json", changed.as_bytes());
        let verdict = case.judge(&BODIES);
        assert_eq!(refusal_code(&verdict), wanted, "{from}");
        assert_eq!(verdict.outcome_of("receipt"), Outcome::Failed);
        assert_eq!(verdict.outcome_of("response"), Outcome::NotEvaluated);
        assert!(verdict.receipt.is_none());
        let status = if wanted == "receipt" { 2 } else { 1 };
        assert_eq!(report::describe_verdict(&verdict).status, status, "{from}");
    }
}

#[test]
fn a_receipt_of_another_keyset_is_refused() {
    let case = Case::new("keyset", Tee::Tdx);
    let other = Case::new("other-keyset", Tee::Tdx);
    case.write("receipt.json", other.receipt().as_bytes());
    assert_eq!(refusal_code(&case.judge(&BODIES)), "other_keyset");
    // The digest of the report's keyset, signed by a key that is not in it.
    let foreign = other.key.sign(&receipt(&case.keyset, events()));
    case.write("receipt.json", foreign.as_bytes());
    assert_eq!(refusal_code(&case.judge(&BODIES)), "unknown_key");
}

#[test]
fn a_report_for_another_nonce_is_refused() {
    let case = Case::new("nonce", Tee::Tdx);
    let (nonce, other) = ("09".repeat(32), "08".repeat(32));
    assert_eq!(refusal_code(&case.judge(&["--nonce", &nonce])), "nonce");
    case.write("report.json", case.report(Some(&[9; 32]), &case.attester).as_bytes());
    assert_eq!(case.judge(&["--nonce", &nonce]).outcome.unwrap(), Scope::Workload);
    assert_eq!(refusal_code(&case.judge(&["--nonce", &other])), "nonce");
    let verdict = case.judge(&[]);
    assert_eq!(refusal_code(&verdict), "nonce");
    assert_eq!(verdict.outcome_of("evidence"), Outcome::NotEvaluated);
    let answer = report::describe_verdict(&verdict);
    assert!(answer.text.contains("hint: give --nonce HEX"), "{}", answer.text);
    assert_eq!((answer.status, &answer.json["evidence"]), (1, &json!(null)));
    // The nonce in the report, but not in the quote.
    let (with, without) =
        (case.report(Some(&[9; 32]), &case.attester), case.report(None, &case.attester));
    let quote_of = |report: &str| {
        let report: Value = serde_json::from_str(report).unwrap();
        report["attestation"]["evidence"]["quote"].as_str().unwrap().to_owned()
    };
    let mixed = with.replace(&quote_of(&with), &quote_of(&without));
    case.write("report.json", mixed.as_bytes());
    let verdict = case.judge(&["--nonce", &nonce]);
    assert!(is_report_data_refused(&verdict));
}

fn is_report_data_refused(verdict: &ReceiptVerdict) -> bool {
    match &verdict.outcome {
        Err(ReceiptRefusal::Evidence(rejection)) => {
            matches!(rejection.reason(), Reason::Value { field: "report data", .. })
        }
        _ => false,
    }
}

#[test]
fn a_swapped_body_is_refused() {
    let case = Case::new("swapped", Tee::Tdx);
    let verdict = case.judge(&["--request", "answer", "--response", "answer"]);
    assert_eq!(refusal_code(&verdict), "request");
    let verdict = case.judge(&["--request", "request", "--response", "request"]);
    assert_eq!(refusal_code(&verdict), "response");
    assert_eq!(verdict.outcome_of("request"), Outcome::Passed);
    case.write("answer", &ANSWER[..ANSWER.len() - 1]);
    assert_eq!(refusal_code(&case.judge(&BODIES)), "response");
}

#[test]
fn an_answer_that_was_cut_is_named() {
    let case = Case::new("cut", Tee::Tdx);
    let cut = BodyDigest { is_complete: false, ..digest_of(ANSWER) };
    let mut events = events();
    *events.last_mut().unwrap() = Event::of_body(RETURNED_EVENT, &cut);
    let text = case.key.sign(&receipt(&case.keyset, events));
    case.write("receipt.json", text.as_bytes());
    for options in [&BODIES[..], &[]] {
        let answer = report::describe_verdict(&case.judge(options));
        assert_eq!((answer.status, &answer.json["answer_cut"]), (0, &json!(true)));
        assert!(answer.text.contains("the receipt says that it was cut"), "{}", answer.text);
        assert!(answer.text.contains("; the answer was cut;"), "{}", answer.text);
    }
}

#[test]
fn the_configuration_has_to_be_one_that_the_policy_pins() {
    let case = Case::new("configuration", Tee::Tdx);
    let pin = |digests: &str| case.write_policy(&format!("config_digest = {digests}"));
    let [ours, other] = [CONFIG, [8; 32]].map(hex::encode);
    pin(&format!("[\"{other}\", \"{ours}\"]"));
    assert_eq!(case.judge(&[]).outcome.unwrap(), Scope::Workload);
    pin(&format!("\"{other}\""));
    let verdict = case.judge(&BODIES);
    assert_eq!(refusal_code(&verdict), "configuration");
    assert!(matches!(verdict.outcome, Err(ReceiptRefusal::Configuration { .. })));
    let mut verdicts = vec![case.judge(&["--dangerous-skip-config-digest"])];
    pin("\"dangerous-any\"");
    verdicts.push(case.judge(&[]));
    case.write_policy("");
    verdicts.push(case.judge(&[]));
    for verdict in verdicts {
        assert_eq!(verdict.outcome_of("configuration"), Outcome::NotEvaluated);
        let answer = report::describe_verdict(&verdict);
        assert_eq!((answer.status, &answer.json["scope"]), (0, &json!("platform")));
        let wanted = "platform only  the gateway's configuration was not compared; ";
        assert!(answer.text.contains(wanted), "{}", answer.text);
    }
}

#[test]
fn a_receipt_without_one_configuration_is_refused() {
    let case = Case::new("no-configuration", Tee::Tdx);
    let with_digest = |digest: Json| Event::new(CONFIGURATION_EVENT, [("config_digest", digest)]);
    let ours = digest_text(&CONFIG);
    for more in [
        vec![],
        vec![configuration(), configuration()],
        vec![with_digest(hex::encode(CONFIG).into())],
        vec![with_digest(ours.to_uppercase().into())],
        vec![with_digest(Json::Array(vec![ours.as_str().into()]))],
        vec![Event::new(CONFIGURATION_EVENT, [("digest", Json::from(ours.as_str()))])],
    ] {
        let mut events = events();
        events.splice(1..2, more);
        let text = case.key.sign(&receipt(&case.keyset, events));
        case.write("receipt.json", text.as_bytes());
        let verdict = case.judge(&BODIES);
        assert!(matches!(verdict.outcome, Err(ReceiptRefusal::NoConfiguration)), "{text}");
        assert_eq!(refusal_code(&verdict), "configuration");
    }
}

#[test]
fn a_policy_without_a_program_accepts_the_platform_only() {
    let case = Case::new("platform", Tee::Tdx);
    let policy = case.attester.policy_toml_pinning(CONFIG);
    let workload = policy.find("[workload").unwrap();
    case.write("policy.toml", &policy.as_bytes()[..workload]);
    let answer = report::describe_verdict(&case.judge(&BODIES));
    assert_eq!((answer.status, &answer.json["scope"]), (0, &json!("platform")));
    let wanted =
        "platform only  which program runs there was not checked; request and answer match";
    assert!(answer.text.contains(wanted), "{}", answer.text);
}

#[test]
fn an_expired_keyset_and_a_receipt_of_the_future_are_refused() {
    let case = Case::new("expired", Tee::Tdx);
    let at = |time: u64| case.judge(&["--at", &time.to_string()]);
    assert_eq!(at(NOT_AFTER).outcome.unwrap(), Scope::Workload);
    let verdict = at(NOT_AFTER + 1);
    assert!(matches!(verdict.outcome, Err(ReceiptRefusal::ExpiredKeyset { .. })));
    assert_eq!(
        (refusal_code(&verdict), verdict.outcome_of("keyset")),
        ("keyset_expired", Outcome::Failed)
    );
    let serve_at = |served_at: u64| {
        let receipt = Receipt { served_at, ..receipt(&case.keyset, events()) };
        case.write("receipt.json", case.key.sign(&receipt).as_bytes());
    };
    serve_at(NOT_AFTER + 1);
    let verdict = at(NOT_AFTER);
    assert_eq!(
        (refusal_code(&verdict), verdict.outcome_of("receipt")),
        ("keyset_expired", Outcome::Failed)
    );
    serve_at(NOW + 61);
    assert_eq!(refusal_code(&at(NOW)), "served_at");
    assert_eq!(at(NOW + 1).outcome.unwrap(), Scope::Workload);
    // The policy's limit on the life of keys holds for the keyset too.
    case.write_policy(&format!(
        "config_digest = \"{}\"\nkey_validity_s_max = 60",
        hex::encode(CONFIG)
    ));
    assert_eq!(refusal_code(&at(NOW + 1)), "keyset_life");
}

#[test]
fn evidence_that_the_policy_refuses_is_refused_with_its_check() {
    let case = Case::new("evidence", Tee::Tdx);
    let policy = case.attester.policy_toml_pinning(CONFIG);
    let with_line = |line: &str| policy.replacen("[workload", &format!("{line}\n[workload"), 1);
    let other_rtmr = format!("rtmr2 = \"{}\" # ", "00".repeat(48));
    for (changed, wanted) in [
        (with_line("evidence_age_s_max = 60"), "evidence_age"),
        (with_line(&format!("report_data = \"{}\"", "00".repeat(64))), "report_data"),
        (policy.replace("rtmr2 = \"", &other_rtmr), "measurements"),
    ] {
        case.write("policy.toml", changed.as_bytes());
        let verdict = case.judge(&BODIES);
        assert_eq!(refusal_code(&verdict), "evidence");
        let answer = report::describe_verdict(&verdict);
        let checks = answer.json["evidence"]["checks"].as_array().unwrap();
        let failed = checks.iter().find(|check| check["outcome"] == "failed").unwrap();
        assert_eq!((failed["name"].as_str().unwrap(), answer.status), (wanted, 1));
        assert!(answer.text.contains("accepted           no             evidence: the report's"));
    }
    // A demand on connections does not apply to a receipt.
    case.write("policy.toml", with_line("binding = \"session\"").as_bytes());
    assert_eq!(case.judge(&BODIES).outcome.unwrap(), Scope::Workload);
}

#[test]
fn a_report_that_cannot_be_read_or_has_no_evidence_is_not_judged() {
    let case = Case::new("report", Tee::Tdx);
    let report = case.report(None, &case.attester);
    let parsed: Value = serde_json::from_str(&report).unwrap();
    let without = |name: &str| {
        let mut changed = parsed.clone();
        changed["attestation"]["evidence"][name] = json!(null);
        changed.to_string()
    };
    let mut no_quote = parsed.clone();
    no_quote["attestation"]["evidence"]["quote"] = json!("00");
    let mut other_digest = parsed.clone();
    other_digest["workload_keyset_digest"] = json!(digest_text(&[0; 32]));
    for (text, code, status) in [
        (report[1..].to_owned(), "report", 2),
        (without("quote"), "report", 2),
        (report.replace("aci/1", "aci/2"), "report", 2),
        (other_digest.to_string(), "report_digest", 1),
        (without("collateral"), "evidence", 2),
        (no_quote.to_string(), "evidence", 2),
    ] {
        case.write("report.json", text.as_bytes());
        let verdict = case.judge(&BODIES);
        let answer = report::describe_verdict(&verdict);
        assert_eq!((refusal_code(&verdict), answer.status), (code, status), "{}", answer.text);
        let outcome = if status == 1 { "rejected" } else { "error" };
        assert_eq!(
            (&answer.json["outcome"], &answer.json["refused"]),
            (&json!(outcome), &json!(code))
        );
    }
    // Collateral of the caller's takes the place of the report's.
    case.write("report.json", without("collateral").as_bytes());
    case.write("collateral.json", case.attester.collateral_json().as_bytes());
    assert_eq!(case.judge(&["--collateral", "collateral.json"]).outcome.unwrap(), Scope::Workload);
    case.write("collateral.json", b"");
    let verdict = case.judge(&["--collateral", "collateral.json"]);
    assert_eq!(report::describe_verdict(&verdict).json["evidence"]["outcome"], "error");
}

#[test]
fn a_root_of_the_callers_takes_the_place_of_the_policys() {
    let case = Case::new("root", Tee::Tdx);
    let root = hex::encode(Sha256::digest(case.attester.root_der()));
    let policy = case.attester.policy_toml_pinning(CONFIG).replace(&root, &"00".repeat(32));
    case.write("policy.toml", policy.as_bytes());
    let verdict = case.judge(&[]);
    let Err(ReceiptRefusal::Evidence(rejection)) = &verdict.outcome else { panic!("accepted") };
    assert!(matches!(rejection.reason(), Reason::UntrustedRoot { .. }), "{rejection}");
    case.write("root.der", case.attester.root_der());
    assert_eq!(case.judge(&["--root", "root.der"]).outcome.unwrap(), Scope::Workload);
}

#[test]
fn an_excerpt_shows_parts_of_what_the_gateway_received_and_returned() {
    let case = Case::new("excerpt", Tee::Tdx);
    case.write_openable();
    let excerpt = case.disclose(&["response.bytes:0-9", "response.length", "request.bytes:64-65"]);
    let verdict = case.judge(&[]);
    assert_eq!(verdict.outcome.as_ref().unwrap(), &Scope::Workload);
    let answer = report::describe_verdict(&verdict);
    assert_eq!(
        answer.json["shown"],
        json!([
            {
                "body": "request",
                "length": null,
                "pieces": [{ "start": 64, "bytes_hex": hex::encode(&REQUEST[64..]) }],
            },
            {
                "body": "response",
                "length": ANSWER.len(),
                "pieces": [{ "start": 0, "bytes_hex": hex::encode(ANSWER) }],
            },
        ])
    );
    for wanted in [
        "shown  response.bytes:0-34  \"{\\\"choices\\\":[],\\\"id\\\":\\\"chatcmpl-123\\\"}\"\n",
        "shown  response.length  34\n",
        "34 of 34 bytes shown, as committed to",
        "the gateway received and returned the shown parts",
    ] {
        assert!(answer.text.contains(wanted), "{wanted}: {}", answer.text);
    }
    assert!(!answer.text.contains("demo-mod"), "the start of the request: {}", answer.text);
    // A byte that is shown, and a byte of the receipt.
    let place = excerpt.windows(9).position(|it| it == b"{\"choices").unwrap();
    let mut changed = excerpt.clone();
    changed[place + 3] ^= 1;
    case.write("receipt.json", &changed);
    let verdict = case.judge(&[]);
    assert_eq!(refusal_code(&verdict), "response");
    assert_eq!(report::describe_verdict(&verdict).json["shown"].as_array().unwrap().len(), 1);
    let place = excerpt.windows(12).position(|it| it == b"\"served_at\":").unwrap() + 12;
    let mut changed = excerpt.clone();
    changed[place] ^= 3;
    case.write("receipt.json", &changed);
    assert_eq!(refusal_code(&case.judge(&[])), "signature");
    case.write("receipt.json", &excerpt);
    let refused = case.run(&BODIES).err().expect("an excerpt has its parts");
    assert!(refused.message().contains("needs no --request"), "{}", refused.message());
    case.write("receipt.json", &excerpt[..excerpt.len() - 1]);
    assert!(case.run(&[]).is_err());
}

#[test]
fn a_receipt_with_commitments_has_no_digests_and_one_with_digests_opens_nothing() {
    let case = Case::new("openable", Tee::Tdx);
    let receipt = case.receipt();
    case.write_openable();
    let verdict = case.judge(&BODIES);
    assert_eq!(refusal_code(&verdict), "request");
    let answer = report::describe_verdict(&verdict);
    assert!(answer.text.contains("in place of its digest"), "{}", answer.text);
    assert_eq!(case.judge(&[]).outcome.unwrap(), Scope::Workload);
    // The openings of the one receipt with the other one.
    let excerpt = case.disclose(&["response.length"]);
    let mut excerpt = Excerpt::decode(&excerpt).unwrap();
    excerpt.receipt = receipt.into_bytes();
    case.write("receipt.json", &excerpt.encode());
    let verdict = case.judge(&[]);
    assert_eq!(refusal_code(&verdict), "response");
    assert!(report::describe_verdict(&verdict).text.contains("has no commitment to the response"));
}

#[test]
fn another_body_or_secret_opens_nothing() {
    let case = Case::new("other-secret", Tee::Tdx);
    case.write_openable();
    let refused = |wish: &str| case.try_disclose(&[wish]).unwrap_err().message().to_owned();
    assert!(refused("response./id").contains("bytes and lengths of bodies only"));
    assert!(refused("response.bytes:0-35").contains("is not within the 34 bytes"));
    case.write("secret", "02".repeat(32).as_bytes());
    assert!(refused("response.length").contains("the secret is another one"));
    case.write("secret", b"01");
    assert!(refused("response.length").contains("wanted 64 hexadecimal digits"));
    case.write("secret", "01".repeat(32).as_bytes());
    case.write("answer", REQUEST);
    assert!(refused("response.length").contains("is not the one to which the receipt commits"));
    case.write("receipt.json", case.receipt().as_bytes());
    assert!(refused("request.length").contains("does not commit to the request"));
}

#[test]
fn files_that_are_missing_or_too_long_are_named() {
    let case = Case::new("files", Tee::Tdx);
    let error = |options: &[&str]| case.run(options).err().expect("an error");
    assert!(error(&["--request", "absent"]).message().contains("absent: No such file"));
    case.write("receipt.json", &vec![b' '; RECEIPT_BYTES_MAX + 1]);
    assert!(error(&[]).message().contains("wanted at most 65536 bytes"));
    let answer = report::describe_unreadable(&error(&[]));
    assert_eq!((answer.status, &answer.json["outcome"]), (2, &json!("error")));
    let nonce = "0F".repeat(32);
    let arguments = ["t", "r", "--report", "r", "--policy", "p", "--nonce", &nonce];
    assert!(Test::try_parse_from(arguments).is_err());
}

/// The bodies, as options.
const BODIES: [&str; 4] = ["--request", "request", "--response", "answer"];
const REQUEST: &[u8] = br#"{"messages":[{"content":"hi","role":"user"}],"model":"demo-model"}"#;
const ANSWER: &[u8] = br#"{"choices":[],"id":"chatcmpl-123"}"#;
const CONFIG: [u8; 32] = [7; 32];
/// 2026-06-01.
const NOW: u64 = 1_780_272_000;
const NOT_AFTER: u64 = NOW + 3600;

fn refusal_code(verdict: &ReceiptVerdict) -> &'static str {
    verdict.outcome.as_ref().err().map_or("accepted", ReceiptRefusal::code)
}

fn digest_of(bytes: &[u8]) -> BodyDigest {
    BodyDigest { sha256: Sha256::digest(bytes).into(), is_complete: true }
}

fn configuration() -> Event {
    Event::new(CONFIGURATION_EVENT, [("config_digest", digest_text(&CONFIG).into())])
}

fn events() -> Vec<Event> {
    vec![
        Event::of_body(RECEIVED_EVENT, &digest_of(REQUEST)),
        configuration(),
        Event::of_body(FORWARDED_EVENT, &digest_of(REQUEST)),
        Event::of_body(RETURNED_EVENT, &digest_of(ANSWER)),
    ]
}

fn receipt(keyset: &Keyset, events: Vec<Event>) -> Receipt<'_> {
    Receipt {
        receipt_id: "rcpt-0001",
        chat_id: Some("chatcmpl-123"),
        model: Some("demo-model"),
        keyset_digest: keyset.digest(),
        endpoint: "/v1/chat/completions",
        method: "POST",
        served_at: NOW,
        events,
    }
}

#[derive(Parser)]
struct Test {
    #[command(flatten)]
    args: ReceiptArgs,
}

/// A folder with a gateway's report, a receipt, a policy and bodies.
struct Case {
    dir: PathBuf,
    attester: FakeAttester,
    key: ReceiptKey,
    keyset: Keyset,
}

impl Case {
    fn new(name: &str, tee: Tee) -> Self {
        let options = FakeAttesterOptions {
            seed: [3; 32],
            tee,
            debug: false,
            issued_at: NOW,
            mode: Mode::Raw,
        };
        let attester = FakeAttester::new(options).unwrap();
        let key = ReceiptKey::generate().unwrap();
        let keyset = Keyset::new(key.key_id(), key.public_key(), &[5; 32], NOT_AFTER);
        let dir =
            std::env::temp_dir().join(format!("confide-receipt-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let case = Self { dir, attester, key, keyset };
        case.write("report.json", case.report(None, &case.attester).as_bytes());
        case.write("receipt.json", case.receipt().as_bytes());
        case.write("policy.toml", case.attester.policy_toml_pinning(CONFIG).as_bytes());
        case.write("request", REQUEST);
        case.write("answer", ANSWER);
        case
    }

    fn report(&self, nonce: Option<&Nonce>, attester: &FakeAttester) -> String {
        let collateral = attester.collateral_json();
        let content = ReportContent {
            keyset: &self.keyset,
            nonce,
            tee_type: "tdx",
            quote: &attester.quote(&self.keyset.report_data(nonce)),
            collateral: Some(&collateral),
            is_simulated: true,
            is_direct: true,
        };
        content.to_json()
    }

    fn receipt(&self) -> String {
        self.key.sign(&receipt(&self.keyset, events()))
    }

    /// Writes the attester's policy with this line in the place of the configuration's.
    fn write_policy(&self, line: &str) {
        let policy = self.attester.policy_toml().replace("config_digest = \"dangerous-any\"", line);
        self.write("policy.toml", policy.as_bytes());
    }

    /// Judges the files of the folder; values of options that are files are relative to it.
    fn run(&self, options: &[&str]) -> Result<ReceiptVerdict, CliError> {
        let path = |name: &str| self.dir.join(name).display().to_string();
        let mut all =
            vec!["t".into(), path("receipt.json"), "--report".into(), path("report.json")];
        all.extend(["--policy".into(), path("policy.toml")]);
        if !options.contains(&"--at") {
            all.extend(["--at".into(), NOW.to_string()]);
        }
        let mut is_file = false;
        for option in options {
            all.push(if is_file { path(option) } else { (*option).into() });
            is_file = ["--request", "--response", "--collateral", "--root"].contains(option);
        }
        judge_files(&Test::try_parse_from(all).unwrap().args)
    }

    fn judge(&self, options: &[&str]) -> ReceiptVerdict {
        self.run(options).unwrap()
    }

    /// Writes a receipt with commitments to both bodies, as the gateway makes it, and the secret.
    fn write_openable(&self) {
        const ID: &str = "rcpt-0002";
        let seed = Seed::of_receipt(&[1; 32], ID);
        let event = |kind, direction, body: &[u8]| {
            let mut hasher = DirectionHasher::new(seed.clone(), direction);
            hasher.update(body);
            let commitment = hasher.finish().unwrap();
            let commitment = Json::object([
                ("depth", Json::Integer(commitment.depth.into())),
                ("length", hex::encode(commitment.length).into()),
                ("root", hex::encode(commitment.root).into()),
            ]);
            Event::new(kind, [(COMMITMENT, commitment)])
        };
        let events = vec![
            event(RECEIVED_EVENT, Direction::Request, REQUEST),
            configuration(),
            event(RETURNED_EVENT, Direction::Response, ANSWER),
        ];
        let receipt = Receipt { receipt_id: ID, ..receipt(&self.keyset, events) };
        self.write("receipt.json", self.key.sign(&receipt).as_bytes());
        self.write("secret", "01".repeat(32).as_bytes());
    }

    /// Puts an excerpt of the receipt in its place, and returns it.
    fn disclose(&self, wishes: &[&str]) -> Vec<u8> {
        let excerpt = self.try_disclose(wishes).unwrap().encode();
        self.write("receipt.json", &excerpt);
        excerpt
    }

    fn try_disclose(&self, wishes: &[&str]) -> Result<Excerpt, CliError> {
        let wishes: Vec<_> = wishes.iter().map(|wish| Selector::parse(wish).unwrap()).collect();
        let [secret, request, response] =
            ["secret", "request", "answer"].map(|name| self.dir.join(name));
        let files = ExcerptFiles {
            receipt: fs::read(self.dir.join("receipt.json")).unwrap(),
            secret: &secret,
            request: Some(&request),
            response: Some(&response),
        };
        make_excerpt(files, &wishes)
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.dir.join(name), bytes).unwrap();
    }
}

impl Drop for Case {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}
