//! Receipts judged with cryptography in Rust alone: as with aws-lc-rs, on the vectors that all checkers read.

use std::fs;

use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use confide_receipt::{AttestationReport, digest_text};
use confide_verification::{
    ReceiptCrypto, ReceiptInput, ReceiptRules, judge_receipt, judge_receipt_of_keyset,
};
use confide_verifier::{AwsLc, Expect, Policy};
use confide_web::RustCrypto;
use serde_json::Value;

fn read_vectors(name: &str) -> Value {
    let path = format!("{}/../vectors/receipt/{name}", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

fn rules(at: u64) -> ReceiptRules {
    let policy = Policy { config_digest: Some(Expect::DangerousAny), ..Policy::default() };
    ReceiptRules { policy, nonce: None, at, skips_configuration: false }
}

#[test]
fn every_receipt_gets_the_verdict_of_aws_lc() {
    let vectors = read_vectors("receipts.json");
    let (mut accepted, mut refused) = (0, 0);
    for case in vectors["cases"].as_array().unwrap() {
        let text = |name: &str| case[name].as_str().map(|text| text.as_bytes().to_vec());
        let report = vectors["reports"][case["report"].as_str().unwrap()].as_str().unwrap();
        let report = AttestationReport::parse(report.as_bytes(), None).unwrap();
        let files = ReceiptInput {
            receipt: text("receipt").unwrap(),
            request: text("request"),
            response: text("response"),
            ..ReceiptInput::default()
        };
        let rules = rules(case["at"].as_u64().unwrap());
        let judge = |crypto: &dyn ReceiptCrypto| {
            judge_receipt_of_keyset(&files, &rules, report.keyset(), crypto).to_json()
        };
        let verdict = judge(&RustCrypto);
        assert_eq!(verdict, judge(&AwsLc), "{}", case["name"]);
        *if verdict["outcome"] == "accepted" { &mut accepted } else { &mut refused } += 1;
    }
    assert!(accepted >= 5 && refused >= 10, "{accepted} accepted, {refused} refused");
}

#[test]
fn every_report_gets_the_verdict_of_aws_lc() {
    for case in read_vectors("reports.json")["cases"].as_array().unwrap() {
        let report = case["report"].as_str().unwrap().as_bytes().to_vec();
        let files = ReceiptInput { report, ..ReceiptInput::default() };
        let judge =
            |crypto: &dyn ReceiptCrypto| judge_receipt(&files, &rules(1_780_272_000), crypto);
        let verdict = judge(&RustCrypto).to_json();
        assert_eq!(verdict, judge(&AwsLc).to_json(), "{}", case["name"]);
        assert_ne!(verdict["outcome"], "accepted", "{}", case["name"]);
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
        assert_eq!(RustCrypto.verify_ed25519(key, message, signature), aws, "{}", hex::encode(key));
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
    assert!(!RustCrypto.verify_ed25519(&identity(0xee, 0xff), message.as_bytes(), &zero));
}
