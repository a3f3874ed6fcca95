//! Reads the cases of `../shared/vectors/cases.json` and applies their mutations.
#![allow(dead_code, reason = "each test file uses its part")]

use std::{path::PathBuf, time::Duration};

use confide_verifier::{
    Appraised, AwsLc, Endorsements, Evidence, Policy, Reason, Rejection, UnixTime,
};
use serde_json::Value;

pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) quote: Vec<u8>,
    pub(crate) collateral: Vec<u8>,
    pub(crate) root_der: Option<Vec<u8>>,
    pub(crate) now: u64,
    pub(crate) policy_choice: bool,
    /// Status and advisories, or dcap-qvl's error.
    pub(crate) expected: Result<(String, Vec<String>), String>,
}

/// All cases; `None` and a printed line when the folder is absent.
pub(crate) fn all_cases() -> Option<Vec<Case>> {
    let cases: Value = serde_json::from_slice(&read("cases.json")?).unwrap();
    Some(cases.as_array().unwrap().iter().map(load).collect())
}

pub(crate) fn appraise(case: &Case, policy: &Policy) -> Result<Appraised, Rejection> {
    let endorsements = Endorsements::parse(&case.collateral)
        .map_err(|error| Rejection::before_checks(Reason::Malformed(error)))?;
    let evidence =
        Evidence { quote: &case.quote, claims: None, report_data: None, gpu: None, binding: None };
    crate::ways::appraise(&evidence, &endorsements, policy, unix_time(case.now), &AwsLc)
}

pub(crate) fn unix_time(unix: u64) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(unix))
}

pub(crate) fn read(name: &str) -> Option<Vec<u8>> {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/vectors"));
    let bytes = std::fs::read(root.join(name)).ok();
    if bytes.is_none() {
        println!("skipped: no foreign vectors");
    }
    bytes
}

fn load(case: &Value) -> Case {
    let quote = read(text(&case["quote"])).unwrap();
    let collateral: Value =
        serde_json::from_slice(&read(text(&case["collateral"])).unwrap()).unwrap();
    let expect = &case["expect"];
    let list = |value: &Value| -> Vec<String> {
        value.as_array().unwrap().iter().map(|item| text(item).to_string()).collect()
    };
    Case {
        name: text(&case["name"]).to_string(),
        quote: mutate_quote(quote, &case["mutate_quote"]),
        collateral: mutate_collateral(collateral, &case["mutate_collateral"]),
        root_der: case["root_ca_der_hex"].as_str().map(|der| hex::decode(der).unwrap()),
        now: case["now"].as_u64().unwrap(),
        policy_choice: case["policy_choice"].as_bool().unwrap_or(false),
        expected: match text(&expect["result"]) {
            "accept" => Ok((text(&expect["status"]).to_string(), list(&expect["advisories"]))),
            _ => Err(text(&expect["dcap_qvl_error"]).to_string()),
        },
    }
}

fn mutate_quote(mut quote: Vec<u8>, mutation: &Value) -> Vec<u8> {
    for pair in mutation["xor"].as_array().into_iter().flatten() {
        quote[number(&pair[0])] ^= number(&pair[1]) as u8;
    }
    for pair in mutation["set_hex"].as_array().into_iter().flatten() {
        let bytes = hex::decode(text(&pair[1])).unwrap();
        quote[number(&pair[0])..][..bytes.len()].copy_from_slice(&bytes);
    }
    if let Some(length) = mutation["truncate"].as_u64() {
        quote.truncate(length as usize);
    }
    if let Some(more) = mutation["append_hex"].as_str() {
        quote.extend(hex::decode(more).unwrap());
    }
    quote
}

fn mutate_collateral(mut collateral: Value, mutation: &Value) -> Vec<u8> {
    let entries = |name: &str| mutation[name].as_object().cloned().unwrap_or_default();
    for (field, value) in entries("set") {
        collateral[field] = value;
    }
    for (field, pair) in entries("replace") {
        let old = text(&collateral[&field]);
        assert!(old.contains(text(&pair[0])));
        collateral[&field] = old.replacen(text(&pair[0]), text(&pair[1]), 1).into();
    }
    for (field, pair) in entries("xor_hex") {
        let mut bytes = hex::decode(text(&collateral[&field])).unwrap();
        bytes[number(&pair[0])] ^= number(&pair[1]) as u8;
        collateral[&field] = hex::encode(bytes).into();
    }
    for (field, path) in entries("from") {
        let other: Value = serde_json::from_slice(&read(text(&path)).unwrap()).unwrap();
        collateral[&field] = other[&field].clone();
    }
    serde_json::to_vec(&collateral).unwrap()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

fn number(value: &Value) -> usize {
    value.as_u64().unwrap() as usize
}
