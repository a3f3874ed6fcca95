//! Reports and receipts, made and verified, with the digests of the published vectors.

use confide_evidence::weights_claim::{MeasuredWeights, WeightsClaim, WeightsSource};

use super::*;

/// The keyset of the published vectors (private-ai-gateway, spec/test-vectors.md), built from its
/// members.
pub(super) fn published_keyset() -> Keyset {
    let key = |id: &str, algo: &str, public_key: &str| {
        Json::object([
            ("key_id", Json::from(id)),
            ("algo", algo.into()),
            ("public_key", public_key.into()),
        ])
    };
    let receipts = ReceiptKey::from_seed(&[2; 32], "receipt-1");
    let receipts = key("receipt-1", "ed25519", &hex::encode(receipts.public_key()));
    let bodies = key(
        "e2ee-1",
        "x25519-aes-256-gcm-hkdf-sha256",
        "5dfedd3b6bd47f6fa28ee15d969d5bb0ea53774d488bdaf9df1c6e0124b3ef22",
    );
    let tls = Json::object([
        ("spki_sha256", Json::from(hex::encode([0xc0; 32]))),
        ("domain", "api.example.com".into()),
    ]);
    Keyset::from_document(Json::object([
        ("subject", Json::from("dstack-app://example-app")),
        ("not_after", Json::Integer(1_800_000_000)),
        ("receipt_signing_keys", Json::Array(vec![receipts])),
        ("e2ee_public_keys", Json::Array(vec![bodies])),
        ("tls_public_keys", Json::Array(vec![tls])),
    ]))
}

const REQUEST: &[u8] = br#"{"messages":[{"content":"hi","role":"user"}],"model":"demo-model"}"#;
const ANSWER: &[u8] = br#"{"choices":[],"id":"chatcmpl-123"}"#;
const SPKI: [u8; 32] = [7; 32];
const NOT_AFTER: u64 = 1_900_000_000;

fn digest_of(bytes: &[u8]) -> BodyDigest {
    use sha2::{Digest, Sha256};
    BodyDigest { sha256: Sha256::digest(bytes).into(), is_complete: true }
}

fn events() -> Vec<Event> {
    vec![
        Event::of_body(RECEIVED_EVENT, &digest_of(REQUEST)),
        Event::of_body(FORWARDED_EVENT, &digest_of(REQUEST)),
        Event::new(CONFIGURATION_EVENT, [("config_digest", Json::from("00"))]),
        Event::of_body(RETURNED_EVENT, &digest_of(ANSWER)).with_member("status", 200_u16.into()),
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
        served_at: 1_750_000_000,
        events,
    }
}

fn key_and_keyset() -> (ReceiptKey, Keyset) {
    let key = ReceiptKey::generate().unwrap();
    let keyset = Keyset::new(key.key_id(), key.public_key(), &SPKI, NOT_AFTER);
    (key, keyset)
}

#[test]
fn keyset_and_statement_have_the_published_digests() {
    let keyset = published_keyset();
    let digest = "sha256:53a5cd44b30dcc51999754c719f2628a041f174ecbf9662a6f8e898a10cd9371";
    assert_eq!(keyset.digest(), digest);
    let nonce: Nonce = std::array::from_fn(|index| index as u8);
    for (nonce, wanted) in [
        (Some(&nonce), "df2174d28130852b413646a3786927b93e94c11d770268b65def8bdba45cb49e"),
        (None, "0633919ca3f00e97bafaa3304278eb22420cc3ff0d19f87dfca2d3f7508150bc"),
    ] {
        let report_data = keyset.report_data(nonce);
        assert_eq!(hex::encode(&report_data.0[..32]), wanted);
        assert_eq!(report_data.0[32..], [0; 32]);
    }
}

#[test]
fn a_receipt_has_the_published_signature() {
    let (keyset, key) = (published_keyset(), ReceiptKey::from_seed(&[2; 32], "receipt-1"));
    let session = "95ad1cb4dd25445808c2e9d116caf420b05703730b506395e8fc1ca6faeae28f";
    let events = vec![
        Event::of_body(RECEIVED_EVENT, &digest_of(REQUEST)),
        Event::of_body(FORWARDED_EVENT, &digest_of(REQUEST)),
        Event::new(
            "upstream.verified",
            [
                ("result", "verified".into()),
                ("required", true.into()),
                ("model_id", "demo-model".into()),
                ("session_id", session.into()),
            ],
        ),
        Event::of_body(RETURNED_EVENT, &digest_of(ANSWER)),
    ];
    let text = key.sign(&receipt(&keyset, events));
    let signature = "d5b005e093bde3b577faf270b7184b09e169cacb0ecb206b103bd2581f997db0\
                     3da616175454b063323a23ac1dc68f1ce506c2a6eba8aa0561d5e724f0b80c03";
    assert!(text.contains(&format!("\"signature\":\"{signature}\"")), "{text}");
    let verified = SignedReceipt::verify(text.as_bytes(), &keyset).unwrap();
    verified.check_body(RECEIVED_EVENT, REQUEST).unwrap();
    verified.check_body(RETURNED_EVENT, ANSWER).unwrap();
    // Another encoding of the same document is the same receipt.
    let pretty = text.replace(",\"", " ,\n \"").replace(":{", ": {");
    SignedReceipt::verify(pretty.as_bytes(), &keyset).unwrap();
}

#[test]
fn every_changed_byte_of_a_receipt_is_noticed() {
    let (key, keyset) = key_and_keyset();
    let text = key.sign(&receipt(&keyset, events())).into_bytes();
    SignedReceipt::verify(&text, &keyset).unwrap();
    for index in 0..text.len() {
        for bit in [1, 2, 16] {
            let mut changed = text.clone();
            changed[index] ^= bit;
            let outcome = SignedReceipt::verify(&changed, &keyset);
            // Hexadecimal digits of the signature may change their case.
            let is_same = changed[index].eq_ignore_ascii_case(&text[index]);
            assert!(outcome.is_err() || is_same, "byte {index}: {}", changed[index]);
        }
    }
}

#[test]
fn a_receipt_of_another_key_keyset_or_time_is_refused() {
    let (key, keyset) = key_and_keyset();
    let (other_key, other) = key_and_keyset();
    let text = key.sign(&receipt(&keyset, events()));
    assert!(matches!(
        SignedReceipt::verify(text.as_bytes(), &other),
        Err(ReceiptError::OtherKeyset)
    ));
    let foreign = other_key.sign(&receipt(&keyset, events()));
    assert!(matches!(
        SignedReceipt::verify(foreign.as_bytes(), &keyset),
        Err(ReceiptError::UnknownKey { .. })
    ));
    let late = Receipt { served_at: NOT_AFTER + 1, ..receipt(&keyset, events()) };
    assert!(matches!(
        SignedReceipt::verify(key.sign(&late).as_bytes(), &keyset),
        Err(ReceiptError::Expired { .. })
    ));
    let mut disordered = events();
    disordered.rotate_left(1);
    for events in [disordered, Vec::new()] {
        let text = key.sign(&receipt(&keyset, events));
        let refused = SignedReceipt::verify(text.as_bytes(), &keyset);
        assert!(matches!(refused, Err(ReceiptError::Member { name: "event_log", .. })));
    }
    let mut document = receipt(&keyset, events()).to_document(key.key_id());
    if let Json::Object(members) = &mut document {
        members.insert("api_version".into(), "aci/2".into());
    }
    let text = key.sign_any(document);
    assert!(matches!(
        SignedReceipt::verify(text.as_bytes(), &keyset),
        Err(ReceiptError::Version { .. })
    ));
}

#[test]
fn a_body_is_that_of_the_receipt_or_refused() {
    let (key, keyset) = key_and_keyset();
    let text = key.sign(&receipt(&keyset, events()));
    let verified = SignedReceipt::verify(text.as_bytes(), &keyset).unwrap();
    verified.check_body(RETURNED_EVENT, ANSWER).unwrap();
    assert!(!verified.is_cut(RETURNED_EVENT));
    for (event, body) in [
        (RETURNED_EVENT, REQUEST),
        (RETURNED_EVENT, &ANSWER[..ANSWER.len() - 1]),
        (RETURNED_EVENT, b"".as_slice()),
        (CONFIGURATION_EVENT, ANSWER),
    ] {
        assert!(verified.check_body(event, body).is_err(), "{event}");
    }
    // Two events of one type: neither counts.
    let mut twice = events();
    twice.extend(events());
    let text = key.sign(&receipt(&keyset, twice));
    let verified = SignedReceipt::verify(text.as_bytes(), &keyset).unwrap();
    assert!(verified.check_body(RETURNED_EVENT, ANSWER).is_err());
    // The event of a body that was cut says so.
    let cut = BodyDigest { is_complete: false, ..digest_of(ANSWER) };
    let cut = vec![
        Event::of_body(RECEIVED_EVENT, &digest_of(REQUEST)),
        Event::of_body(RETURNED_EVENT, &cut),
    ];
    let text = key.sign(&receipt(&keyset, cut));
    assert!(SignedReceipt::verify(text.as_bytes(), &keyset).unwrap().is_cut(RETURNED_EVENT));
}

#[test]
fn a_keyset_with_two_keys_of_one_name_has_neither() {
    let (key, keyset) = key_and_keyset();
    let mut document = keyset.document().clone();
    if let Json::Object(members) = &mut document
        && let Some(Json::Array(keys)) = members.get_mut("receipt_signing_keys")
    {
        keys.extend(keys.clone());
    }
    let doubled = Keyset::from_document(document);
    let text = key.sign(&receipt(&doubled, events()));
    assert!(matches!(
        SignedReceipt::verify(text.as_bytes(), &doubled),
        Err(ReceiptError::UnknownKey { .. })
    ));
}

fn report<'a>(keyset: &'a Keyset, nonce: Option<&'a Nonce>) -> ReportContent<'a> {
    ReportContent {
        keyset,
        nonce,
        tee_type: "tdx",
        quote: &[1, 2, 3],
        collateral: Some("{}"),
        is_simulated: true,
        is_direct: true,
    }
}

#[test]
fn a_report_is_read_with_the_nonce_that_it_was_made_for_only() {
    let (_, keyset) = key_and_keyset();
    let nonce = [9; 32];
    for made_for in [None, Some(&nonce)] {
        let text = report(&keyset, made_for).to_json();
        let read = AttestationReport::parse(text.as_bytes(), made_for).unwrap();
        assert_eq!(read.keyset(), &keyset);
        assert_eq!(read.report_data(), keyset.report_data(made_for));
        assert_eq!(
            (read.quote(), read.collateral()),
            ([1, 2, 3].as_slice(), Some(b"{}".as_slice()))
        );
        assert_eq!(read.keyset().tls_keys().collect::<Vec<_>>(), [hex::encode(SPKI)]);
        let other = if made_for.is_some() { None } else { Some(&nonce) };
        assert!(matches!(
            AttestationReport::parse(text.as_bytes(), other),
            Err(ReceiptError::ReportData)
        ));
        assert!(AttestationReport::parse(text.as_bytes(), Some(&[8; 32])).is_err());
    }
}

#[test]
fn a_report_whose_parts_do_not_belong_together_is_refused() {
    let (_, keyset) = key_and_keyset();
    let text = report(&keyset, None).to_json();
    for (from, to) in [
        ("\"not_after\":1900000000", "\"not_after\":1900000001"),
        ("\"api_version\":\"aci/1\"", "\"api_version\":\"aci/2\""),
        ("\"quote\":\"010203\"", "\"quote\":\"01020\""),
        ("\"quote\":", "\"quota\":"),
        ("\"workload_keyset\":", "\"workload_keysets\":"),
        ("\"workload_keyset_digest\":\"sha256:", "\"workload_keyset_digest\":\"sha512:"),
        ("\"report_data\":\"", "\"report_data\":\"0"),
        ("\"collateral\":\"{}\"", "\"collateral\":{}"),
    ] {
        let changed = text.replacen(from, to, 1);
        assert_ne!(changed, text, "{from}");
        assert!(AttestationReport::parse(changed.as_bytes(), None).is_err(), "{to}");
    }
}

#[test]
fn a_nonce_is_64_lower_case_digits() {
    let text = "00".repeat(31) + "ff";
    assert_eq!(parse_nonce(&text).unwrap()[31], 255);
    for text in [text.to_uppercase(), text[1..].into(), text.clone() + "00", String::new()] {
        assert!(parse_nonce(&text).is_none(), "{text}");
    }
}

#[test]
fn a_keyset_names_the_keys_for_bodies_and_no_others_are_taken_for_them() {
    let measured = MeasuredWeights { source: WeightsSource::HashedAtStart, digest: [5; 32] };
    let entry = |algorithm: &str, servers: &[Option<MeasuredWeights>]| BodyKeyEntry {
        algorithm: algorithm.into(),
        key_id: format!("body-{algorithm}"),
        public_key: vec![1, 2, 3],
        config_digest: [4; 32],
        weights: WeightsClaim::from_servers(servers.iter().copied()),
    };
    let plain = published_keyset();
    assert_eq!(plain.body_keys().count(), 0);
    let entries = [entry("one", &[Some(measured), None]), entry("two", &[])];
    let with_keys = plain.clone().with_body_keys(&entries);
    assert_ne!(with_keys.digest(), plain.digest(), "the quote covers them");
    assert_eq!(with_keys.body_keys().collect::<Vec<_>>(), entries);
    // As aci/1 has it, without a configuration.
    let text = with_keys.document().to_canonical().replace("config_digest", "configuration");
    let others = Keyset::from_document(Json::parse(text.as_bytes(), text.len()).unwrap());
    assert_eq!(others.body_keys().count(), 0);
    // Of an earlier version, without weights, and of one that measures in another way.
    let text = with_keys.document().to_canonical();
    let others = |from: &str, to: &str| {
        let text = text.replace(from, to);
        Keyset::from_document(Json::parse(text.as_bytes(), text.len()).unwrap())
    };
    let earlier: Vec<_> = others("\"weights\"", "\"others\"").body_keys().collect();
    assert_eq!(earlier, [entry("one", &[]), entry("two", &[])]);
    let later: Vec<_> = others("hashed at start", "guessed").body_keys().collect();
    assert_eq!(later, [entry("two", &[])]);
}
