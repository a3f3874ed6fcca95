//! Writes and compares `vectors/receipt`: canonical forms, reports and receipts, each with what a
//! reader of docs/receipts.md has to find. `CONFIDE_WRITE_VECTORS=1` writes the files.

use std::{fs, path::PathBuf};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{tests::published_keyset, *};

const REQUEST: &str = r#"{"messages":[{"content":"hi","role":"user"}],"model":"demo-model"}"#;
const ANSWER: &str = r#"{"choices":[],"id":"chatcmpl-123"}"#;
const STREAM: &str = "data: {\"id\":\"chatcmpl-124\"}\n\ndata: [DONE]\n\n";
const SERVED_AT: u64 = 1_780_272_000;
const NOT_AFTER: u64 = SERVED_AT + 3600;
const CONFIGURATION: [u8; 32] = [7; 32];
const WEIGHTS: [u8; 32] = [0xa5; 32];
const NONCE: Nonce = [9; 32];

#[test]
fn the_vectors_are_what_this_crate_makes() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../vectors/receipt");
    let is_writing = std::env::var_os("CONFIDE_WRITE_VECTORS").is_some();
    for (name, made) in [
        ("canonical.json", json!({ "cases": canonical_cases() })),
        ("reports.json", json!({ "cases": report_cases() })),
        ("receipts.json", json!({ "reports": keyset_reports(), "cases": receipt_cases() })),
    ] {
        let path = folder.join(name);
        if is_writing {
            fs::create_dir_all(&folder).unwrap();
            fs::write(&path, serde_json::to_string_pretty(&made).unwrap() + "\n").unwrap();
        }
        let text = fs::read_to_string(&path).expect("CONFIDE_WRITE_VECTORS=1 writes the vectors");
        assert_eq!(made, serde_json::from_str::<Value>(&text).unwrap(), "{name}");
    }
}

fn canonical_cases() -> Value {
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    let (deep, too_deep) = (nested(127), nested(128));
    let texts = [
        r#" { "b" : [ 1 , -2 , 0 ] , "a" : null } "#,
        r#"{"\u0061":"\u20ac\u000f\n\u0022\u005c\/\u007f"}"#,
        "[true,false,{}, [] ,\"\"]",
        "9007199254740991",
        "-9007199254740991",
        "\"\\b\\t\\n\\f\\r\\u001F\"",
        r#"{"\u20ac":5,"\r":1,"\ufb33":7,"1":2,"\ud83d\ude00":6,"\u0080":3,"\u00f6":4}"#,
        &deep,
        &too_deep,
        r#"{"a":1,"a":1}"#,
        r#"{"a":{"b":1,"\u0062":2}}"#,
        "1.0",
        "1e3",
        "-0",
        "01",
        "+1",
        "9007199254740992",
        "-9007199254740992",
        "18446744073709551616",
        "1 2",
        "\"\u{1}\"",
        r#""\ud800""#,
        r#""\udc00\ud800""#,
        "'a'",
        "[1,]",
        "",
        "{",
        "NaN",
        "\u{feff}1",
        "\u{a0}1",
    ];
    let case = |text: &str| {
        let canonical = Json::parse(text.as_bytes(), 4096).ok().map(|json| json.to_canonical());
        json!({ "text": text, "canonical": canonical })
    };
    texts.into_iter().map(case).collect()
}

fn write_report(keyset: &Keyset, nonce: Option<&Nonce>) -> String {
    let content = ReportContent {
        keyset,
        nonce,
        tee_type: "tdx",
        quote: b"a quote, which another program judges",
        collateral: Some("{}"),
        is_simulated: true,
        is_direct: true,
    };
    content.to_json()
}

/// A name, a report, the nonce of its reader, and the name of the refusal.
type ReportCase = (&'static str, String, Option<Nonce>, Option<&'static str>);

/// Reports as a gateway makes them, read with a nonce that is theirs or another one.
fn nonce_reports() -> Vec<ReportCase> {
    let (ours, published) = (keyset(&key()), published_keyset());
    let [plain, with_nonce] = [None, Some(&NONCE)].map(|nonce| write_report(&ours, nonce));
    let spaced = plain.replace(",\"", " ,\n \"");
    vec![
        ("without a nonce", plain.clone(), None, None),
        ("with a nonce", with_nonce.clone(), Some(NONCE), None),
        ("another encoding", spaced, None, None),
        ("the keyset of aci/1's own vectors", write_report(&published, None), None, None),
        ("another nonce", with_nonce.clone(), Some([8; 32]), Some("nonce")),
        ("a nonce that the reader does not have", with_nonce, None, Some("nonce")),
        ("no nonce, although the reader sent one", plain.clone(), Some(NONCE), Some("nonce")),
    ]
}

/// Reports of which something was changed.
fn changed_reports() -> Vec<ReportCase> {
    let plain = write_report(&keyset(&key()), None);
    let change = |from: &str, to: &str| {
        let changed = plain.replacen(from, to, 1);
        assert_ne!(changed, plain, "{from}");
        changed
    };
    vec![
        ("no collateral", change("\"collateral\":\"{}\"", "\"collateral\":null"), None, None),
        (
            "another keyset",
            change("\"not_after\":1", "\"not_after\":2"),
            None,
            Some("report_digest"),
        ),
        (
            "another digest",
            change("digest\":\"sha256:", "digest\":\"sha512:"),
            None,
            Some("report_digest"),
        ),
        ("another version", change("\"aci/1\"", "\"aci/2\""), None, Some("report")),
        ("no version", change("\"api_version\"", "\"api\""), None, Some("report")),
        ("no attestation", change("\"attestation\"", "\"attestations\""), None, Some("report")),
        ("no keyset", change("\"workload_keyset\"", "\"keyset\""), None, Some("report")),
        ("a quote of half a byte", change("\"quote\":\"", "\"quote\":\"0"), None, Some("report")),
        ("no quote", change("\"quote\":", "\"quota\":"), None, Some("report")),
        (
            "collateral that is no text",
            change("\"collateral\":\"{}\"", "\"collateral\":{}"),
            None,
            Some("report"),
        ),
        (
            "longer report data",
            change("\"report_data\":\"", "\"report_data\":\"00"),
            None,
            Some("nonce"),
        ),
        ("a fraction", change("\"not_after\":", "\"a\":0.5,\"not_after\":"), None, Some("report")),
        (
            "a member twice",
            change("\"subject\":null", "\"subject\":null,\"subject\":null"),
            None,
            Some("report"),
        ),
    ]
}

fn report_cases() -> Value {
    let cases = [nonce_reports(), changed_reports()].concat();
    let case = |(name, report, nonce, refused): ReportCase| {
        let read = AttestationReport::parse(report.as_bytes(), nonce.as_ref());
        assert_eq!(read.is_ok(), refused.is_none(), "{name}");
        let read = read.ok();
        json!({
            "name": name,
            "report": report,
            "nonce": nonce.map(hex::encode),
            "keyset_digest": read.as_ref().map(|read| read.keyset().digest()),
            "report_data": read.as_ref().map(|read| hex::encode(read.report_data().0)),
            "refused": refused,
        })
    };
    cases.into_iter().map(case).collect()
}

fn key() -> ReceiptKey {
    ReceiptKey::from_seed(&[2; 32], "receipt-1")
}

fn keyset(key: &ReceiptKey) -> Keyset {
    Keyset::new(key.key_id(), key.public_key(), &[5; 32], NOT_AFTER)
}

/// The keyset with another list of keys for receipts.
fn keyset_with(change: impl FnOnce(&mut Vec<Json>)) -> Keyset {
    let mut document = keyset(&key()).document().clone();
    if let Json::Object(members) = &mut document
        && let Some(Json::Array(keys)) = members.get_mut("receipt_signing_keys")
    {
        change(keys);
    }
    Keyset::from_document(document)
}

fn double_keyset() -> Keyset {
    keyset_with(|keys| keys.extend(keys.clone()))
}

/// A keyset whose first key of the name is of an algorithm that no reader has.
fn foreign_keyset() -> Keyset {
    keyset_with(|keys| {
        let foreign = [("algo", "ml-dsa-44"), ("key_id", "receipt-1"), ("public_key", "00")];
        keys.insert(0, Json::object(foreign.map(|(name, value)| (name, Json::from(value)))));
    })
}

/// Reports without a nonce whose keysets the receipts are verified with.
fn keyset_reports() -> Value {
    json!({
        "gateway": write_report(&keyset(&key()), None),
        "other": write_report(&keyset(&ReceiptKey::from_seed(&[3; 32], "receipt-1")), None),
        "double": write_report(&double_keyset(), None),
        "foreign": write_report(&foreign_keyset(), None),
    })
}

fn digest_of(body: &str) -> BodyDigest {
    BodyDigest { sha256: Sha256::digest(body).into(), is_complete: true }
}

fn configuration(digest: &str) -> Event {
    Event::new(CONFIGURATION_EVENT, [("config_digest", Json::from(digest))])
}

fn events(answer: &BodyDigest) -> Vec<Event> {
    vec![
        Event::of_body(RECEIVED_EVENT, &digest_of(REQUEST)),
        Event::of_body(FORWARDED_EVENT, &digest_of(REQUEST)),
        configuration(&digest_text(&CONFIGURATION)),
        Event::of_body(RETURNED_EVENT, answer),
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
        served_at: SERVED_AT,
        events,
    }
}

/// The receipt with these events.
fn sign(events: Vec<Event>) -> String {
    key().sign(&receipt(&keyset(&key()), events))
}

/// A receipt, how it is judged, and what has to come out.
struct ReceiptCase {
    name: &'static str,
    receipt: String,
    report: &'static str,
    at: u64,
    key_validity_s_max: u64,
    configurations: Option<Vec<[u8; 32]>>,
    weights: Option<Vec<[u8; 32]>>,
    request: Option<&'static str>,
    response: Option<&'static str>,
    cut: bool,
    refused: Option<&'static str>,
}

impl ReceiptCase {
    fn new(name: &'static str, receipt: String, refused: Option<&'static str>) -> Self {
        Self {
            name,
            receipt,
            report: "gateway",
            at: SERVED_AT + 60,
            key_validity_s_max: 86_400,
            configurations: Some(vec![CONFIGURATION]),
            weights: None,
            request: Some(REQUEST),
            response: Some(ANSWER),
            cut: false,
            refused,
        }
    }

    fn to_json(&self) -> Value {
        let list = |digests: &Option<Vec<[u8; 32]>>| {
            digests.as_ref().map(|digests| digests.iter().map(hex::encode).collect::<Vec<_>>())
        };
        json!({
            "name": self.name,
            "receipt": self.receipt,
            "report": self.report,
            "at": self.at,
            "key_validity_s_max": self.key_validity_s_max,
            "configurations": list(&self.configurations),
            "weights": list(&self.weights),
            "request": self.request,
            "response": self.response,
            "answer_cut": self.cut,
            "refused": self.refused,
        })
    }
}

fn receipt_cases() -> Value {
    let cases = [
        accepted_cases(),
        changed_cases(),
        other_key_cases(),
        time_cases(),
        configuration_cases(),
        weights_cases(),
        body_cases(),
    ];
    cases.iter().flatten().map(ReceiptCase::to_json).collect()
}

fn plain_receipt() -> String {
    sign(events(&digest_of(ANSWER)))
}

fn accepted_cases() -> Vec<ReceiptCase> {
    let accepted = |name, receipt| ReceiptCase::new(name, receipt, None);
    let plain = plain_receipt();
    let sampling = Json::object([("temperature", Json::from("0.7")), ("seed", "7".into())]);
    let model = [("weights", Json::from("not measured"))];
    let mut ours = events(&digest_of(STREAM));
    ours.insert(3, Event::new("confide.request", [("sampling", sampling)]));
    ours.insert(4, Event::new("confide.model", model));
    ours.insert(5, Event::new("an.event.of.others", [("a", Json::Array(vec![false.into()]))]));
    let cut = BodyDigest { is_complete: false, ..digest_of(ANSWER) };
    let returned = Event::of_body(RETURNED_EVENT, &digest_of(ANSWER));
    let returned = returned.with_member("status", 200_u16.into());
    let mut with_status = events(&digest_of(ANSWER));
    *with_status.last_mut().unwrap() = returned;
    let keyset = keyset(&key());
    let nameless = Receipt { chat_id: None, model: None, ..receipt(&keyset, with_status) };
    let foreign = foreign_keyset();
    let signature_at = plain.find("\"signature\":\"").unwrap() + 13;
    let mut upper = plain.clone();
    upper[signature_at..signature_at + 128].make_ascii_uppercase();
    vec![
        accepted("an answer", plain.clone()),
        accepted("another encoding", plain.replace(",\"", " ,\n \"").replace("aci/1", "aci\\/1")),
        accepted("capital digits of the signature", upper),
        ReceiptCase {
            response: Some(STREAM),
            ..accepted("a stream, and other events", sign(ours))
        },
        accepted("no chat_id, no model, a status", key().sign(&nameless)),
        ReceiptCase { request: None, ..accepted("no request to compare", plain.clone()) },
        ReceiptCase { response: None, ..accepted("no answer to compare", plain.clone()) },
        ReceiptCase { cut: true, ..accepted("an answer that was cut", sign(events(&cut))) },
        ReceiptCase {
            report: "foreign",
            ..accepted(
                "a keyset with a key of another algorithm",
                key().sign(&receipt(&foreign, events(&digest_of(ANSWER)))),
            )
        },
    ]
}

fn changed_cases() -> Vec<ReceiptCase> {
    let plain = plain_receipt();
    let change = |name, from: &str, to: &str, refused| {
        let changed = plain.replacen(from, to, 1);
        assert_ne!(changed, plain, "{from}");
        ReceiptCase::new(name, changed, Some(refused))
    };
    let mut disordered = events(&digest_of(ANSWER));
    disordered.rotate_left(1);
    let malformed = |name, receipt| ReceiptCase::new(name, receipt, Some("receipt"));
    let others = sign(events(&digest_of(STREAM)));
    let signature_of = |receipt: &str| {
        let at = receipt.find("\"signature\":\"").unwrap() + 13;
        receipt[at..at + 128].to_owned()
    };
    vec![
        change(
            "the signature of another receipt",
            &signature_of(&plain),
            &signature_of(&others),
            "signature",
        ),
        change("another model", "demo-model", "demo-modeL", "signature"),
        change("another time", "\"served_at\":178", "\"served_at\":177", "signature"),
        change("another member", "\"chat_id\"", "\"a\":null,\"chat_id\"", "signature"),
        change("a member less", "\"chat_id\":\"chatcmpl-123\",", "", "signature"),
        change(
            "a longer signature",
            "\"signature\":\"",
            "\"signature\":\"0000000000000000",
            "receipt",
        ),
        change("no signature", "\"signature\":", "\"signatures\":", "receipt"),
        change("another version", "\"aci/1\"", "\"aci/2\"", "receipt"),
        change("a member twice", "\"model\":", "\"model\":null,\"model\":", "receipt"),
        change("a fraction", "\"served_at\":1780272000", "\"served_at\":1780272000.0", "receipt"),
        malformed("not JSON", plain[1..].to_owned()),
        malformed("a list", format!("[{plain}]")),
        malformed("another event first", sign(disordered)),
        malformed("no events", sign(Vec::new())),
    ]
}

fn other_key_cases() -> Vec<ReceiptCase> {
    let (keyset, double) = (keyset(&key()), double_keyset());
    let plain = || events(&digest_of(ANSWER));
    let same_name = ReceiptKey::from_seed(&[3; 32], "receipt-1");
    let other_name = ReceiptKey::from_seed(&[2; 32], "receipt-2");
    let refused = |name, receipt, refused| ReceiptCase::new(name, receipt, Some(refused));
    let of_double = key().sign(&receipt(&double, plain()));
    vec![
        ReceiptCase {
            report: "other",
            ..refused("another gateway's report", plain_receipt(), "other_keyset")
        },
        refused("another key", same_name.sign(&receipt(&keyset, plain())), "signature"),
        refused(
            "a key of another name",
            other_name.sign(&receipt(&keyset, plain())),
            "unknown_key",
        ),
        ReceiptCase {
            report: "double",
            ..refused("two keys of the name", of_double, "unknown_key")
        },
    ]
}

fn time_cases() -> Vec<ReceiptCase> {
    let keyset = keyset(&key());
    let serve_at = |served_at| {
        key().sign(&Receipt { served_at, ..receipt(&keyset, events(&digest_of(ANSWER))) })
    };
    let case = |name, served_at, at, refused| ReceiptCase {
        at,
        ..ReceiptCase::new(name, serve_at(served_at), refused)
    };
    let life = |name, key_validity_s_max, refused| ReceiptCase {
        key_validity_s_max,
        ..ReceiptCase::new(name, plain_receipt(), refused)
    };
    vec![
        case("judged in the keyset's last second", SERVED_AT, NOT_AFTER, None),
        case("judged after it", SERVED_AT, NOT_AFTER + 1, Some("keyset_expired")),
        case("served in the keyset's last second", NOT_AFTER, NOT_AFTER, None),
        case("served after it", NOT_AFTER + 1, NOT_AFTER, Some("keyset_expired")),
        case("a clock that is a minute ahead", SERVED_AT + 60, SERVED_AT, None),
        case("a clock that is further ahead", SERVED_AT + 61, SERVED_AT, Some("served_at")),
        life("a keyset that lives as long as the policy allows", 3600, None),
        life("a keyset that lives longer", 3599, Some("keyset_life")),
    ]
}

fn weights_cases() -> Vec<ReceiptCase> {
    let with = |models: Vec<Event>| {
        let mut events = events(&digest_of(ANSWER));
        events.splice(3..3, models);
        sign(events)
    };
    let model = |source: &str, digest: &str| {
        Event::new(MODEL_EVENT, [("weights", source.into()), ("weights_sha256", digest.into())])
    };
    let (ours, measured) = (hex::encode(WEIGHTS), "hashed at start");
    let demanded = |name, receipt, weights: &[[u8; 32]], refused| ReceiptCase {
        weights: Some(weights.to_vec()),
        ..ReceiptCase::new(name, receipt, refused)
    };
    let refused = |name, models| demanded(name, with(models), &[WEIGHTS], Some("weights"));
    let good = || with(vec![model(measured, &ours)]);
    vec![
        demanded("one of two weights", good(), &[[8; 32], WEIGHTS], None),
        ReceiptCase::new("any weights", good(), None),
        demanded("other weights", good(), &[[8; 32]], Some("weights")),
        refused("no event of the model", vec![]),
        refused("two events of the model", vec![model(measured, &ours), model(measured, &ours)]),
        refused("weights that were stated", vec![model("stated by the model server", &ours)]),
        refused("weights that were not measured", vec![model("not measured", &ours)]),
        refused("a digest of weights in capitals", vec![model(measured, &ours.to_uppercase())]),
        refused(
            "no digest of weights",
            vec![Event::new(MODEL_EVENT, [("weights", measured.into())])],
        ),
    ]
}

fn configuration_cases() -> Vec<ReceiptCase> {
    let with_events = |middle: Vec<Event>| {
        let mut events = events(&digest_of(ANSWER));
        events.splice(2..3, middle);
        sign(events)
    };
    let ours = digest_text(&CONFIGURATION);
    let refused = |name, middle| ReceiptCase::new(name, with_events(middle), Some("configuration"));
    let pinned = |name, configurations, refused| ReceiptCase {
        configurations,
        ..ReceiptCase::new(name, plain_receipt(), refused)
    };
    vec![
        pinned("one of two configurations", Some(vec![[8; 32], CONFIGURATION]), None),
        pinned("any configuration", None, None),
        pinned("another configuration", Some(vec![[8; 32]]), Some("configuration")),
        pinned("no configuration is accepted", Some(vec![]), Some("configuration")),
        refused("no event of the configuration", vec![]),
        refused(
            "two events of the configuration",
            vec![configuration(&ours), configuration(&ours)],
        ),
        refused("a digest in capitals", vec![configuration(&ours.to_uppercase())]),
        refused("a digest without its algorithm", vec![configuration(&ours[7..])]),
        refused("no member of the name", vec![Event::new(CONFIGURATION_EVENT, [])]),
    ]
}

fn body_cases() -> Vec<ReceiptCase> {
    let plain = || events(&digest_of(ANSWER));
    let mut twice = plain();
    twice.push(Event::of_body(RETURNED_EVENT, &digest_of(ANSWER)));
    let mut none = plain();
    none.pop();
    let case = |name, receipt, request, response, refused| ReceiptCase {
        request,
        response,
        ..ReceiptCase::new(name, receipt, Some(refused))
    };
    let (asked, given) = (Some(REQUEST), Some(ANSWER));
    vec![
        case("another request", plain_receipt(), given, given, "request"),
        case("another answer", plain_receipt(), asked, asked, "response"),
        case("a shorter answer", plain_receipt(), asked, Some(&ANSWER[1..]), "response"),
        case("two answers", sign(twice), asked, given, "response"),
        case("no answer", sign(none), asked, given, "response"),
    ]
}
