//! Malformed and ambiguous HTTP/1.1 messages (`vectors/http`), and strict readers for what comes out
//! of a proxy that was sent one.

mod answer_cases;
mod message;
mod request_cases;

pub use answer_cases::{AnswerCase, answer_cases, check_answers, serve_answers};
pub use request_cases::{
    RequestCase, RequestOutcome, check_requests, record_requests, request_cases,
};

use std::{fs, time::Duration};

use crate::checkout;

/// Nothing here takes this long unless it hangs.
const GENEROUS: Duration = Duration::from_secs(60);

/// Reads the cases of a file of `vectors/http`, of which there is at least one: without any, a test
/// would pass without a check.
fn read_cases(name: &str) -> Vec<toml::Table> {
    let path = checkout().join("vectors/http").join(name);
    let text = fs::read_to_string(&path).expect("the file is in the checkout");
    let file: toml::Table = text.parse().expect("the file is TOML");
    let cases = file["case"].as_array().expect("a list of cases");
    assert!(!cases.is_empty(), "{name} has no cases");
    cases.iter().map(|case| case.as_table().expect("a table").clone()).collect()
}

/// The bytes that a text of a table stands for: one byte for each character, as in Latin-1.
fn wire_bytes(text: &str) -> Vec<u8> {
    text.chars().map(|c| u8::try_from(u32::from(c)).expect("a character of Latin-1")).collect()
}
