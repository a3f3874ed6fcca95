//! Malformed and ambiguous HTTP/1.1 messages (`vectors/http`), and strict readers for what comes out
//! of a proxy that was sent one.

mod answer_cases;
mod message;
mod request_cases;

pub use answer_cases::{AnswerCase, answer_cases, check_answers, serve_answers};
pub use request_cases::{RequestCase, RequestOutcome, check_requests, record_requests};

use std::{fs, time::Duration};

use crate::checkout;

/// Nothing here takes this long unless it hangs.
const GENEROUS: Duration = Duration::from_secs(60);

/// Reads a table of `vectors/http`.
fn read_table(name: &str) -> toml::Table {
    let path = checkout().join("vectors/http").join(name);
    let text = fs::read_to_string(&path).expect("the table is in the checkout");
    text.parse().expect("the table is TOML")
}

/// The bytes that a text of a table stands for: one byte for each character, as in Latin-1.
fn wire_bytes(text: &str) -> Vec<u8> {
    text.chars().map(|c| u8::try_from(u32::from(c)).expect("a character of Latin-1")).collect()
}
