//! Disclosures of a simulated notary: accepted, and refused for every change.

use std::fs;

use clap::Parser;
use confide_disclosure::{
    Claim, DiscloseOptions, Disclosure, HttpMessage, HttpVersion, NOTARY_GUARANTEE,
    NotarisedSession, NotaryEvidence, NotaryKey, OpenedValue, Predicate, Seed, Selector,
    SessionFacts, SessionTranscript, StartLine, TlsSession, notarise,
};
use confide_evidence::{binder::key_report_data, claims::Claims};
use confide_fake_attester::{FakeAttester, FakeAttesterOptions, Mode, Tee};

use super::{
    judgement::{AcceptedDisclosure, DisclosurePolicy, RejectedDisclosure, judge_disclosure},
    *,
};
use crate::verify::inputs::{NOT_JUDGED, REJECTED};

/// 2026-06-01.
const NOW: u64 = 1_780_272_000;

const CONFIG: [u8; 32] = [9; 32];

const BODY: &str = concat!(
    r#"{"model":"m-1","note":"\"balance\":100","balance":5,"#,
    r#""choices":[{"message":{"content":"four\u001b[2J"}}],"usage":{"total_tokens":17}}"#
);

const SHOW: [&str; 4] = [
    "response./choices/0/message/content",
    "request./model",
    "response./note",
    "response.bytes:0-9",
];

const PROVE: [&str; 1] = ["response./usage/total_tokens <= 4096"];

struct Notary {
    attester: FakeAttester,
    key: NotaryKey,
    guarantee: &'static str,
    host: &'static str,
    time: u64,
    config: [u8; 32],
}

impl Notary {
    fn new(seed: u8, tee: Tee) -> Self {
        let options = FakeAttesterOptions {
            seed: [seed; 32],
            tee,
            debug: false,
            issued_at: NOW,
            mode: Mode::Raw,
        };
        Self {
            attester: FakeAttester::new(options).unwrap(),
            key: NotaryKey::generate().unwrap(),
            guarantee: NOTARY_GUARANTEE,
            host: "api.example.com",
            time: NOW + 60,
            config: CONFIG,
        }
    }

    fn evidence(&self) -> NotaryEvidence {
        let claims = Claims {
            config_digest: self.config,
            gpu_evidence_hash: None,
            guarantee: self.guarantee.into(),
            nonce: None,
            not_after: NOW + 3600,
            not_before: NOW,
            pubkey_hash: self.key.spki_hash(),
            weights: None,
        };
        let claims = claims.encode();
        NotaryEvidence {
            quote: self.attester.quote(&key_report_data(&claims)),
            claims,
            endorsements: self.attester.collateral_json().into(),
        }
    }

    fn notarise(&self, body: &str) -> NotarisedSession {
        let json = vec![("content-type".to_string(), b"application/json".to_vec())];
        let request = HttpMessage {
            start: StartLine::Request { method: "POST".into(), target: "/v1".into() },
            headers: json.clone(),
            body: br#"{"model":"m-1","key":"sk-secret"}"#.to_vec(),
        };
        let response = HttpMessage {
            start: StartLine::Response { status: 200 },
            headers: json,
            body: body.as_bytes().to_vec(),
        };
        let facts = SessionFacts {
            host: self.host.into(),
            port: 443,
            certificate_chain_hash: [7; 32],
            tls: TlsSession::from_numbers(0x0304, 0x11ec, 0x1302).unwrap(),
            time: self.time,
            http: HttpVersion::V11,
        };
        let received = [b"HTTP/1.1 200\r\n\r\n", body.as_bytes()].concat();
        let (request, response) = (&request, &response);
        let session = SessionTranscript { sent: b"POST", received: &received, request, response };
        let seed = Seed::generate().unwrap();
        notarise(&self.key, seed, facts, session, self.evidence()).unwrap()
    }

    fn disclosure(&self) -> Disclosure {
        disclose(&self.notarise(BODY))
    }

    fn rules(&self) -> DisclosurePolicy {
        self.rules_with("hosts = [\"api.example.com\"]")
    }

    fn rules_with(&self, table: &str) -> DisclosurePolicy {
        let pinned = format!("config_digest = \"{}\"", hex::encode(CONFIG));
        let policy = self.attester.policy_toml();
        assert!(policy.contains("config_digest = \"dangerous-any\""));
        let policy = policy.replace("config_digest = \"dangerous-any\"", &pinned);
        DisclosurePolicy::parse(format!("{policy}\n[disclosure]\n{table}\n").as_bytes()).unwrap()
    }
}

fn disclose(session: &NotarisedSession) -> Disclosure {
    let show: Vec<Selector> = SHOW.iter().map(|name| Selector::parse(name).unwrap()).collect();
    let prove: Vec<Predicate> = PROVE.iter().map(|text| Predicate::parse(text).unwrap()).collect();
    session.disclose(&show, &prove, DiscloseOptions::default()).unwrap()
}

/// Proves that numbers of one session are equal to those of another.
fn equal(session: &NotarisedSession, other: &NotarisedSession) -> Disclosure {
    let wish = Predicate::parse("response./balance == other.response./balance").unwrap();
    let means = DiscloseOptions { texts: None, other: Some(other) };
    session.disclose(&[], &[wish], means).unwrap()
}

fn accept(disclosure: &Disclosure, rules: &DisclosurePolicy) -> AcceptedDisclosure {
    judge_disclosure(&disclosure.encode(), rules, text_proofs(), NOW + 100)
        .unwrap_or_else(|rejected| panic!("{}: {rejected}", rejected.code()))
}

/// The code of the rejection, or `accepted`.
fn verdict_code(disclosure: &Disclosure, rules: &DisclosurePolicy) -> &'static str {
    match judge_disclosure(&disclosure.encode(), rules, text_proofs(), NOW + 100) {
        Ok(_) => "accepted",
        Err(rejected) => {
            let json = report::describe_rejection(&rejected).json;
            assert_eq!(json["refused"], rejected.code());
            assert_ne!(json["outcome"], "accepted");
            assert!(!json.to_string().contains('\n'));
            rejected.code()
        }
    }
}

#[test]
fn what_is_shown_proven_and_trusted_is_listed() {
    for tee in [Tee::Tdx, Tee::Snp, Tee::Sgx] {
        let notary = Notary::new(1, tee);
        let accepted = accept(&notary.disclosure(), &notary.rules());
        let json = report::describe_acceptance(&accepted).json;
        assert_eq!(json["outcome"], "accepted");
        assert_eq!(json["simulated"], true);
        assert_eq!(json["statement"]["host"], "api.example.com");
        let names: Vec<&str> =
            json["shown"].as_array().unwrap().iter().filter_map(|it| it["name"].as_str()).collect();
        assert_eq!(names.len(), 4, "{names:?}");
        assert_eq!(json["proven"][0]["name"], "response./usage/total_tokens");
        assert_eq!(json["proven"][0]["predicate"], "<= 4096");
        // As the back end says it.
        let security = confide_sigma::Range::SECURITY;
        let proof = &json["proven"][0]["proof"];
        assert_eq!(proof["zero_knowledge"], security.zero_knowledge);
        assert_eq!(proof["conjectured_bits"], security.conjectured_bits);
        assert_eq!(proof["back_end"], security.back_end);
        assert_eq!(json["other"], serde_json::Value::Null);
        let text = report::describe_acceptance(&accepted).text;
        for wanted in
            ["SIMULATED", "operator for the time", "\"four\\u001b[2J\"", "not post-quantum"]
        {
            assert!(text.contains(wanted), "{wanted} is not in {text}");
        }
        for secret in ["sk-secret", "17,"] {
            assert!(!text.contains(secret) && !json.to_string().contains(secret));
        }
    }
}

#[test]
fn a_self_made_root_is_refused() {
    let (genuine, forger) = (Notary::new(1, Tee::Tdx), Notary::new(2, Tee::Tdx));
    // A whole notary of one's own, under a root of one's own.
    assert_eq!(verdict_code(&forger.disclosure(), &genuine.rules()), "evidence");
    // The genuine evidence next to a statement that another key signed.
    let mut mixed = forger.disclosure();
    mixed.evidence = genuine.evidence();
    assert_eq!(verdict_code(&mixed, &genuine.rules()), "key");
    // The root over the fields, self-made: the signature is not over it.
    let mut rooted = genuine.disclosure();
    rooted.statement.fields = forger.disclosure().statement.fields;
    rooted.fields = forger.disclosure().fields;
    assert_eq!(verdict_code(&rooted, &genuine.rules()), "signature");
}

#[test]
fn another_host_is_refused() {
    let notary = Notary::new(1, Tee::Tdx);
    let mut edited = Notary { host: "evil.example.com", ..Notary::new(1, Tee::Tdx) }.disclosure();
    assert_eq!(verdict_code(&edited, &notary.rules()), "host");
    edited.statement.host = "api.example.com".into();
    assert_eq!(verdict_code(&edited, &notary.rules()), "signature");
    let other_port = notary.rules_with("hosts = [\"api.example.com:8443\"]");
    assert_eq!(verdict_code(&notary.disclosure(), &other_port), "host");
    let any = notary.rules_with("hosts = \"dangerous-any\"");
    assert!(
        report::describe_acceptance(&accept(&notary.disclosure(), &any))
            .text
            .contains("names no host")
    );
}

#[test]
fn another_time_is_refused() {
    let notary = Notary::new(1, Tee::Tdx);
    let mut edited = notary.disclosure();
    edited.statement.time -= 1;
    assert_eq!(verdict_code(&edited, &notary.rules()), "signature");
    let late = Notary { time: NOW + 1000, ..Notary::new(1, Tee::Tdx) };
    assert_eq!(verdict_code(&late.disclosure(), &late.rules()), "time");
    let strict = notary.rules_with("hosts = [\"api.example.com\"]\nage_s_max = 39");
    assert_eq!(verdict_code(&notary.disclosure(), &strict), "time");
    // Signed, by the notary's clock, before its key was made: its evidence was not good then.
    let early = Notary { time: NOW - 1, ..Notary::new(1, Tee::Tdx) };
    assert_eq!(verdict_code(&early.disclosure(), &early.rules()), "evidence");
}

#[test]
fn an_edited_answer_is_refused() {
    let notary = Notary::new(1, Tee::Tdx);
    let mut edited = notary.disclosure();
    for field in &mut edited.fields.as_mut().unwrap().fields {
        if let OpenedValue::Revealed { value, .. } = &mut field.value
            && field.path.ends_with("content")
        {
            *value = b"five".to_vec();
        }
    }
    assert_eq!(verdict_code(&edited, &notary.rules()), "opening");
    let mut bytes = notary.disclosure();
    bytes.bytes[1].as_mut().unwrap().leaves[0].chunk[0] ^= 1;
    assert_eq!(verdict_code(&bytes, &notary.rules()), "opening");
    // Openings of another answer of the same notary.
    let other = disclose(&notary.notarise(&BODY.replace("four", "five")));
    let mut mixed = notary.disclosure();
    mixed.fields = other.fields;
    assert_eq!(verdict_code(&mixed, &notary.rules()), "opening");
}

#[test]
fn an_opened_string_posing_as_a_field_is_refused() {
    let notary = Notary::new(1, Tee::Tdx);
    let session = notary.notarise(BODY);
    assert!(
        session
            .disclose(
                &[Selector::Field("response./note/balance".into())],
                &[],
                DiscloseOptions::default()
            )
            .is_err()
    );
    let mut posing = disclose(&session);
    for field in &mut posing.fields.as_mut().unwrap().fields {
        if field.path == "response./note" {
            field.path = "response./balance".into();
            if let OpenedValue::Revealed { value, .. } = &mut field.value {
                *value = b"100".to_vec();
            }
        }
    }
    assert_eq!(verdict_code(&posing, &notary.rules()), "opening");
    // Bytes that read like a member are shown as bytes, never as a field.
    let bytes = disclose(&session);
    let accepted = accept(&bytes, &notary.rules());
    assert!(accepted.verified.fields().iter().all(|field| field.path != "response./balance"));
}

#[test]
fn what_the_policy_demands_to_see_has_to_be_shown() {
    let notary = Notary::new(1, Tee::Tdx);
    let demands = |names: &str| {
        notary.rules_with(&format!("hosts = [\"api.example.com\"]\nmust_show = [{names}]"))
    };
    let hidden = demands(r#""request./model", "request.target""#);
    assert_eq!(verdict_code(&notary.disclosure(), &hidden), "not_shown");
    // Proven is not shown.
    let proven = demands(r#""response./usage/total_tokens""#);
    assert_eq!(verdict_code(&notary.disclosure(), &proven), "not_shown");
    accept(&notary.disclosure(), &demands(r#""request./model""#));
}

#[test]
fn what_a_policy_demands_of_connections_is_not_asked_of_a_signing_key() {
    let notary = Notary::new(1, Tee::Tdx);
    let pinned = format!("config_digest = \"{}\"", hex::encode(CONFIG));
    let policy =
        notary.attester.policy_toml().replace("config_digest = \"dangerous-any\"", &pinned);
    let table = "[disclosure]\nhosts = [\"api.example.com\"]";
    let rules =
        DisclosurePolicy::parse(format!("binding = \"session\"\n{policy}\n{table}").as_bytes());
    accept(&notary.disclosure(), &rules.unwrap());
}

#[test]
fn an_answer_without_its_request_and_status_says_so() {
    let notary = Notary::new(1, Tee::Tdx);
    let text = report::describe_acceptance(&accept(&notary.disclosure(), &notary.rules())).text;
    assert!(text.contains("request.method, request.target, response.status not shown"), "{text}");
    let names = ["request.method", "request.target", "response.status", "response./model"];
    let show: Vec<Selector> = names.iter().map(|name| Selector::parse(name).unwrap()).collect();
    let whole = notary.notarise(BODY).disclose(&show, &[], DiscloseOptions::default()).unwrap();
    let text = report::describe_acceptance(&accept(&whole, &notary.rules())).text;
    assert!(!text.contains("not shown"), "{text}");
}

#[test]
fn names_that_a_host_chose_cannot_pass_for_more_than_names() {
    let notary = Notary::new(1, Tee::Tdx);
    let body = r#"{"paid = 100, x":1,"a\nshown b":2,"\u202eevil\u2028":3,"wide\u061c":4,"q\"":5}"#;
    let show = [Selector::parse("response.").unwrap()];
    let disclosure =
        notary.notarise(body).disclose(&show, &[], DiscloseOptions::default()).unwrap();
    let text = report::describe_acceptance(&accept(&disclosure, &notary.rules())).text;
    for wanted in [
        "shown      \"response./paid = 100, x\" = 1\n",
        "shown      \"response./a\\nshown b\" = 2\n",
        "shown      \"response./\\u202eevil\\u2028\" = 3\n",
        "shown      \"response./wide\\u061c\" = 4\n",
        "[\"a\\nshown b\", \"paid = 100, x\", \"q\\\"\", ",
    ] {
        assert!(text.contains(wanted), "{wanted} is not in {text}");
    }
}

#[test]
fn a_notary_of_another_measurement_or_configuration_is_refused() {
    let notary = Notary::new(1, Tee::Tdx);
    let genuine = notary.disclosure();
    let policy = notary.attester.policy_toml();
    let mrtd = policy.lines().find(|line| line.starts_with("mrtd")).unwrap();
    let other = policy.replace(mrtd, &format!("mrtd = \"{}\"", "00".repeat(48)));
    let table = "\n[disclosure]\nhosts = [\"api.example.com\"]\n";
    let rules = DisclosurePolicy::parse((other + table).as_bytes()).unwrap();
    assert_eq!(verdict_code(&genuine, &rules), "evidence");
    // Another configuration: roots of the operator's own.
    let rogue = Notary { config: [8; 32], ..Notary::new(1, Tee::Tdx) };
    assert_eq!(verdict_code(&rogue.disclosure(), &rogue.rules()), "evidence");
    // A policy that does not say which one it has to be.
    let open = DisclosurePolicy::parse((policy.clone() + table).as_bytes()).unwrap();
    assert_eq!(verdict_code(&genuine, &open), "notary_unpinned");
    let table = format!("{table}dangerous_any_configuration = true\n");
    let open = DisclosurePolicy::parse((policy + &table).as_bytes()).unwrap();
    assert!(report::describe_acceptance(&accept(&genuine, &open)).text.contains("NOT compared"));
    // Another attested program on the same machine.
    let gateway = Notary { guarantee: "operator is outside the TEE", ..Notary::new(1, Tee::Tdx) };
    assert_eq!(verdict_code(&gateway.disclosure(), &gateway.rules()), "guarantee");
}

#[test]
fn equal_numbers_of_two_sessions_are_listed_with_both_notaries() {
    let one = Notary::new(1, Tee::Tdx);
    let two = Notary { time: NOW + 70, ..Notary::new(1, Tee::Tdx) };
    let disclosure = equal(&one.notarise(BODY), &two.notarise(BODY));
    let accepted = accept(&disclosure, &one.rules());
    let json = report::describe_acceptance(&accepted).json;
    assert_eq!(json["proven"][0]["name"], "response./balance");
    assert_eq!(json["proven"][0]["predicate"], "== other.response./balance");
    let security = confide_sigma::LinearRelation::SECURITY;
    assert_eq!(json["proven"][0]["proof"]["conjectured_bits"], security.conjectured_bits);
    assert_eq!(json["other"]["statement"]["time"], NOW + 70);
    assert!(json["other"]["shown"].as_array().unwrap().is_empty());
    let text = report::describe_acceptance(&accepted).text;
    assert!(text.contains("another session") && text.contains("SIMULATED"), "{text}");
}

#[test]
fn the_other_session_is_judged_as_this_one_is() {
    let notary = Notary::new(1, Tee::Tdx);
    let session = notary.notarise(BODY);
    let with = |other: &Notary| equal(&session, &other.notarise(BODY));
    let rules = notary.rules();
    assert_eq!(verdict_code(&with(&Notary::new(2, Tee::Tdx)), &rules), "evidence");
    let host = Notary { host: "evil.example.com", ..Notary::new(1, Tee::Tdx) };
    assert_eq!(verdict_code(&with(&host), &rules), "host");
    let late = Notary { time: NOW + 1000, ..Notary::new(1, Tee::Tdx) };
    assert_eq!(verdict_code(&with(&late), &rules), "time");
    let gateway = Notary { guarantee: "operator is outside the TEE", ..Notary::new(1, Tee::Tdx) };
    assert_eq!(verdict_code(&with(&gateway), &rules), "guarantee");
    let mut edited = with(&Notary::new(1, Tee::Tdx));
    let Some(Claim::OtherSession(other)) = edited.claims.first_mut() else {
        panic!("no other session")
    };
    other.statement.time += 1;
    assert_eq!(verdict_code(&edited, &rules), "signature");
    // Another session than the one for which equality was proven.
    let mut moved = with(&Notary::new(1, Tee::Tdx));
    moved.claims[0] = with(&Notary::new(1, Tee::Tdx)).claims[0].clone();
    assert_eq!(verdict_code(&moved, &rules), "proof");
}

#[test]
fn what_a_session_holds_is_listed_without_its_values() {
    let session = Notary::new(1, Tee::Tdx).notarise(BODY);
    let list = crate::disclose::list_fields(&session).unwrap();
    let line = |name: &str| {
        let mut lines = list.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        lines.find(|words| words.last() == Some(&name)).unwrap_or_else(|| panic!("{name}: {list}"))
    };
    assert_eq!(line("response./usage/total_tokens")[..3], ["number", "2", "number"]);
    assert_eq!(line("response./model")[..3], ["string", "3", "text"]);
    assert_eq!(line("response./usage")[2], "-");
    assert_eq!(line("response.bytes")[1], session.received.len().to_string());
    for value in ["m-1", "four", "sk-secret"] {
        assert!(!list.contains(value), "{value}: {list}");
    }
    // Names are chosen by hosts: none moves the cursor.
    assert!(!list.contains('\u{1b}'));
}

#[test]
fn one_session_that_poses_as_two_is_refused_by_its_statements_digest() {
    let notary = Notary::new(1, Tee::Tdx);
    let (session, rules) = (notary.notarise(BODY), notary.rules());
    let mut posing = equal(&session, &notary.notarise(BODY));
    let itself = equal(&session, &notary.notarise(BODY));
    posing.claims[0] = Claim::OtherSession(Box::new(Disclosure { claims: Vec::new(), ..itself }));
    assert_eq!(verdict_code(&posing, &rules), "same_session");
    let mut unused = equal(&session, &notary.notarise(BODY));
    unused.claims.truncate(1);
    assert_eq!(verdict_code(&unused, &rules), "other_unused");
}

#[test]
fn a_policy_without_hosts_or_with_unknown_keys_is_not_used() {
    let policy = Notary::new(1, Tee::Tdx).attester.policy_toml();
    for table in [
        "",
        "[disclosure]\n",
        "[disclosure]\nhosts = [\"a\"]\nage = 1",
        "[disclosure]\nhosts = 1",
        "[disclosure]\nhosts = []\n[elsewhere]",
    ] {
        assert!(
            DisclosurePolicy::parse(format!("{policy}\n{table}").as_bytes()).is_err(),
            "{table}"
        );
    }
}

#[test]
fn a_host_in_upper_case_would_match_no_statement_and_is_refused() {
    let policy = Notary::new(1, Tee::Tdx).attester.policy_toml();
    for hosts in ["\"API.example.com\"", "[\"a.example\", \"B.example:8443\"]"] {
        let text = format!("{policy}\n[disclosure]\nhosts = {hosts}\n");
        let error = DisclosurePolicy::parse(text.as_bytes()).err().expect("refused");
        assert!(error.contains("lower case"), "{error}");
        assert!(
            DisclosurePolicy::parse(text.replace(hosts, &hosts.to_lowercase()).as_bytes()).is_ok()
        );
    }
}

#[derive(Parser)]
struct Disclose {
    #[command(flatten)]
    args: crate::disclose::Args,
}

#[derive(Parser)]
struct Verify {
    #[command(flatten)]
    args: DisclosureArgs,
}

#[test]
fn the_commands_go_from_a_session_to_a_verdict() {
    let dir = std::env::temp_dir().join(format!("confide-disclose-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let path = |name: &str| dir.join(name).display().to_string();
    let notary = Notary::new(1, Tee::Tdx);
    fs::write(path("session"), &*notary.notarise(BODY).encode()).unwrap();
    fs::write(path("root.der"), notary.attester.root_der()).unwrap();
    let table = "[disclosure]\nhosts = [\"api.example.com\"]\n";
    let pinned = format!("config_digest = \"{}\"", hex::encode(CONFIG));
    let policy =
        notary.attester.policy_toml().replace("config_digest = \"dangerous-any\"", &pinned);
    fs::write(path("policy"), format!("{policy}\n{table}")).unwrap();
    let disclose = |names: &[&str]| {
        let mut all = vec!["t".to_string(), path("session"), "--out".into(), path("out")];
        all.extend(names.iter().map(|name| (*name).into()));
        crate::disclose::run(Disclose::try_parse_from(all).unwrap().args)
    };
    assert!(disclose(&[]).is_err());
    assert!(disclose(&["--show", "response./nothing"]).is_err());
    let equal = ["--prove", "response./balance == other.response./balance"];
    assert!(disclose(&equal).is_err());
    let other = path("other");
    fs::write(&other, &*notary.notarise(BODY).encode()).unwrap();
    assert!(disclose(&["--show", "response./model", "--other", &other]).is_err());
    // One session is no other one, under whatever name its file stands.
    fs::copy(path("session"), path("copy")).unwrap();
    for itself in [path("session"), path("copy")] {
        let error = disclose(&[&equal[..], &["--other", &itself]].concat()).unwrap_err();
        assert!(error.message().contains("is the same session"), "{}", error.message());
    }
    assert!(disclose(&["--prove", "response./balance == response./balance"]).is_err());
    disclose(&[&equal[..], &["--other", &other]].concat()).unwrap();
    let kept = fs::read(path("session")).unwrap();
    std::os::unix::fs::symlink(path("session"), path("link")).unwrap();
    for own in ["session", "link"] {
        let all = ["t", &path("session"), "--show", "response./model", "--out", &path(own)];
        let over = crate::disclose::run(Disclose::try_parse_from(all).unwrap().args);
        assert!(over.is_err());
    }
    assert!(fs::read(path("session")).unwrap() == kept, "the session was overwritten");
    disclose(&["--show", "response./model", "--prove", PROVE[0]]).unwrap();
    let verify = |at: u64| {
        let (out, policy, root, at) =
            (path("out"), path("policy"), path("root.der"), at.to_string());
        let all = ["t", &out, "--policy", &policy, "--root", &root, "--at", &at, "--json"];
        run(Verify::try_parse_from(all).unwrap().args).unwrap()
    };
    assert_eq!(verify(NOW + 100), ExitCode::SUCCESS);
    assert_eq!(verify(NOW + 365 * 24 * 3600), ExitCode::from(REJECTED));
    fs::write(path("out"), "confide disclosure v2\n").unwrap();
    assert_eq!(verify(NOW + 100), ExitCode::from(NOT_JUDGED));
    fs::remove_dir_all(dir).unwrap();
}

#[test]
fn the_notary_and_its_verifiers_mean_the_same_program() {
    assert_eq!(NOTARY_GUARANTEE, confide_notary::GUARANTEE);
}

#[test]
fn bytes_that_are_no_disclosure_are_not_judged() {
    let rules = Notary::new(1, Tee::Tdx).rules();
    for file in [&b""[..], b"confide disclosure v1\n", b"confide notarised v1\n"] {
        let Err(rejected) = judge_disclosure(file, &rules, text_proofs(), NOW) else {
            panic!("accepted")
        };
        assert!(rejected.is_unreadable());
        assert!(matches!(rejected, RejectedDisclosure::Format(_)));
    }
}

#[cfg(feature = "circuits")]
#[path = "disclosure_circuit_tests.rs"]
mod circuits;
