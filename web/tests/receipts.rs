//! Receipts judged in Rust alone: the vectors that the other checkers read too, and signatures against aws-lc-rs.

use std::{collections::BTreeSet, fs};

use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use confide_receipt::{AttestationReport, digest_text};
use confide_verifier::{Expect, Policy};
use confide_web::{ReceiptFiles, is_ed25519_signature, judge_receipt, judge_receipt_of_keyset};
use serde_json::{Value, json};

fn read_vectors(name: &str) -> Value {
    let path = format!("{}/../vectors/receipt/{name}", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

#[test]
fn every_vector_is_judged_as_it_says() {
    let vectors = read_vectors("receipts.json");
    let mut codes = BTreeSet::new();
    for case in vectors["cases"].as_array().unwrap() {
        let text = |name: &str| case[name].as_str().map(str::as_bytes);
        let report = vectors["reports"][case["report"].as_str().unwrap()].as_str().unwrap();
        let report = AttestationReport::parse(report.as_bytes(), None).unwrap();
        let digests = |name: &str| {
            let digests = case[name].as_array()?.iter().map(|digest| digest.as_str().unwrap());
            let parse = |text| hex::decode(text).unwrap().try_into().unwrap();
            Some(Expect::AnyOf(digests.map(parse).collect()))
        };
        let policy = Policy {
            config_digest: digests("configurations"),
            weights: digests("weights"),
            key_validity_s_max: case["key_validity_s_max"].as_u64().unwrap(),
            ..Policy::default()
        };
        let files = ReceiptFiles {
            report: &[],
            receipt: text("receipt").unwrap(),
            request: text("request"),
            response: text("response"),
        };
        let at = case["at"].as_u64().unwrap();
        let verdict = judge_receipt_of_keyset(&policy, files, report.keyset(), at);
        let refused = verdict.refusal.as_ref().map(|refusal| refusal.code);
        assert_eq!(json!(refused), case["refused"], "{}", case["name"]);
        if refused.is_none() {
            assert_eq!(json!(verdict.is_answer_cut()), case["answer_cut"], "{}", case["name"]);
        }
        codes.extend(refused);
    }
    assert_eq!(codes.len(), 11, "{codes:?}");
}

#[test]
fn a_report_is_refused_before_its_receipt_is_looked_at() {
    for case in read_vectors("reports.json")["cases"].as_array().unwrap() {
        // Without a nonce of its own, a page reads reports that were made without one.
        if !case["nonce"].is_null() {
            continue;
        }
        let report = case["report"].as_str().unwrap().as_bytes();
        let files = ReceiptFiles { report, ..ReceiptFiles::default() };
        let verdict = judge_receipt(&Policy::default(), files, 1_780_272_000).to_json();
        // The quotes of the vectors are not those of a machine.
        let wanted = case["refused"].as_str().unwrap_or("evidence");
        assert_eq!(verdict["refused"], wanted, "{}", case["name"]);
        assert_eq!(verdict["checks"][3]["outcome"], "not_evaluated");
    }
}

#[test]
fn a_signature_is_valid_where_aws_lc_finds_it_valid() {
    let pair = Ed25519KeyPair::from_seed_unchecked(&[5; 32]).unwrap();
    let key: [u8; 32] = pair.public_key().as_ref().try_into().unwrap();
    let message = digest_text(&[7; 32]);
    let signature: [u8; 64] = pair.sign(message.as_bytes()).as_ref().try_into().unwrap();
    let compare = |key: &[u8; 32], message: &[u8], signature: &[u8; 64]| {
        let aws = UnparsedPublicKey::new(&ED25519, key).verify(message, signature).is_ok();
        assert_eq!(is_ed25519_signature(key, message, signature), aws, "{}", hex::encode(key));
        aws
    };
    assert!(compare(&key, message.as_bytes(), &signature));
    for place in 0..64 {
        let mut changed = signature;
        changed[place] ^= 1 << (place % 8);
        assert!(!compare(&key, message.as_bytes(), &changed));
    }
    for place in 0..32 {
        let mut changed = key;
        changed[place] ^= 1 << (place % 8);
        assert!(!compare(&changed, message.as_bytes(), &signature));
    }
    // The identity with a zero signature, canonically encoded and with y = p + 1.
    let identity = |first: u8, rest: u8| {
        let mut key = [rest; 32];
        (key[0], key[31]) = (first, rest & 0x7f);
        key
    };
    let mut zero = [0; 64];
    zero[0] = 1;
    compare(&identity(1, 0), message.as_bytes(), &zero);
    assert!(!is_ed25519_signature(&identity(0xee, 0xff), message.as_bytes(), &zero));
}
