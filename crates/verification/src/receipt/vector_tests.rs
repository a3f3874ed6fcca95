//! The vectors of receipts and of excerpts, judged without evidence.

use std::{collections::BTreeSet, fs};

use confide_receipt::AttestationReport;
use confide_transcript::Excerpt;
use confide_verifier::{AwsLc, Expect, Policy};
use serde_json::{Value, json};

use super::{
    judgement::{ReceiptInput, ReceiptRules, judge_receipt_of_keyset},
    refusal::ReceiptRefusal,
};

/// 2026-06-01.
const NOW: u64 = 1_780_272_000;

fn parse_digest(text: &str) -> [u8; 32] {
    hex::decode(text).unwrap().try_into().unwrap()
}

/// `vectors/receipt`, which the second checker in Python judges too.
#[test]
fn every_vector_is_judged_as_it_says() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../vectors/receipt/receipts.json");
    let vectors: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let mut codes = BTreeSet::new();
    for case in vectors["cases"].as_array().unwrap() {
        let text = |name: &str| case[name].as_str().map(|text| text.as_bytes().to_vec());
        let number = |name: &str| case[name].as_u64().unwrap();
        let report = vectors["reports"][case["report"].as_str().unwrap()].as_str().unwrap();
        let report = AttestationReport::parse(report.as_bytes(), None).unwrap();
        let digests = |name: &str| {
            let digests = case[name].as_array()?.iter().map(|digest| digest.as_str().unwrap());
            Some(Expect::AnyOf(digests.map(parse_digest).collect()))
        };
        let policy = Policy {
            config_digest: digests("configurations"),
            weights: digests("weights"),
            key_validity_s_max: number("key_validity_s_max"),
            ..Policy::default()
        };
        let rules =
            ReceiptRules { policy, nonce: None, at: number("at"), skips_configuration: false };
        let receipt = text("receipt").unwrap();
        let files = ReceiptInput {
            receipt,
            request: text("request"),
            response: text("response"),
            ..ReceiptInput::default()
        };
        let verdict = judge_receipt_of_keyset(&files, &rules, report.keyset(), &AwsLc);
        let refused = verdict.outcome.as_ref().err().map(ReceiptRefusal::code);
        assert_eq!(json!(refused), case["refused"], "{}", case["name"]);
        if refused.is_none() {
            assert_eq!(json!(verdict.is_answer_cut()), case["answer_cut"], "{}", case["name"]);
        }
        codes.extend(refused);
    }
    assert_eq!(codes.len(), 11, "{codes:?}");
}

/// `vectors/receipt/excerpts.json`, which the second implementation in Python makes.
#[test]
fn every_excerpt_is_judged_as_its_vector_says() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../vectors/receipt");
    let read = |name: &str| -> Value {
        serde_json::from_slice(&fs::read(format!("{folder}/{name}.json")).unwrap()).unwrap()
    };
    let report = read("receipts")["reports"]["gateway"].as_str().unwrap().to_owned();
    let report = AttestationReport::parse(report.as_bytes(), None).unwrap();
    let policy = Policy { config_digest: Some(Expect::DangerousAny), ..Policy::default() };
    let rules = ReceiptRules { policy, nonce: None, at: NOW + 60, skips_configuration: false };
    let excerpts = read("excerpts");
    let cases = excerpts["cases"].as_array().unwrap();
    assert!(cases.len() >= 20);
    for case in cases {
        let bytes = hex::decode(case["excerpt"].as_str().unwrap()).unwrap();
        let Ok(excerpt) = Excerpt::decode(&bytes) else {
            assert_eq!(case["refused"], "format", "{}", case["name"]);
            continue;
        };
        assert_eq!(excerpt.encode(), bytes, "{}", case["name"]);
        let receipt = excerpt.receipt.clone();
        let files = ReceiptInput { receipt, excerpt: Some(excerpt), ..ReceiptInput::default() };
        let verdict = judge_receipt_of_keyset(&files, &rules, report.keyset(), &AwsLc);
        let refused = verdict.outcome.as_ref().err().map(ReceiptRefusal::code);
        assert_eq!(json!(refused), case["refused"], "{}", case["name"]);
        if refused.is_none() {
            let mut shown = Vec::new();
            for body in &verdict.shown {
                let name = body.direction.as_str();
                for piece in &body.pieces {
                    shown.push(json!([name, piece.start, hex::encode(&piece.bytes)]));
                }
                shown.extend(body.length.map(|length| json!([name, "length", length])));
            }
            assert_eq!(json!(shown), case["shown"], "{}", case["name"]);
        }
    }
}
