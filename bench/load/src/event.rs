//! One request of a load, with the instant of every stage.

use serde::{Deserialize, Serialize};

/// More requests than this in one run are a mistake: the event log is kept in memory.
pub const REQUESTS_MAX: usize = 1_000_000;

/// One line of the event log. Instants are seconds of a monotonic clock since the run's origin; a
/// stage that did not happen (a kept connection has no handshake) is absent, never 0.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct RequestRecord {
    /// The request's position in the plan, from 0.
    pub index: u64,
    /// The index of the prompt in the plan: the same in every arm.
    pub prompt: u64,
    /// The instant at which the plan wanted it sent. Latencies count from here.
    pub scheduled_s: f64,
    /// The instant at which the client took it up. The dispatch delay is this less `scheduled_s`.
    pub dispatched_s: f64,
    /// The instant at which the server's name was resolved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved_s: Option<f64>,
    /// The instant at which TCP was connected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connected_s: Option<f64>,
    /// The instant at which the TLS handshake was complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handshake_s: Option<f64>,
    /// The instant at which the evidence was accepted, so that the session may carry its first application byte.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attested_s: Option<f64>,
    /// Durations within attestation, in seconds: quote, collateral, appraisal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attestation: Option<Attestation>,
    /// The instant at which the whole request was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_s: Option<f64>,
    /// The instant at which the first byte of the answer's head came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_byte_s: Option<f64>,
    /// The instants at which the chunks of content came, of those that are not empty.
    #[serde(default)]
    pub chunks_s: Vec<f64>,
    /// The number of tokens in each chunk, where the server says it; otherwise each has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk_tokens: Option<Vec<u32>>,
    /// The instant at which the last byte of the answer came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_s: Option<f64>,
    /// The instant at which the request ended, in whichever way: answer, failure, deadline or end of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_s: Option<f64>,
    /// Whether it ended at its deadline. Its latencies are then known to be at least the time until `ended_s`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub timed_out: bool,
    /// How often it was sent again because the server had closed the idle connection before it could read it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub repeats: u32,
    /// The instant at which a receipt or the answer was checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified_s: Option<f64>,
    /// Tokens of the prompt, as the server counts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_tokens: Option<u32>,
    /// Tokens that were asked for.
    pub wanted_tokens: u32,
    /// Tokens that came, as the server counts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<u32>,
    /// Tokens of the text by the tokenizer that the client was given, where the server names no plausible number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted_tokens: Option<u32>,
    /// The text itself, until its tokens are counted. It is in no log.
    #[serde(skip)]
    pub text: Option<String>,
    /// The length of the text in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text_bytes: Option<u64>,
    /// SHA-256 of the text, in hexadecimal: parity across arms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text_sha256: Option<String>,
    /// The time that the request waited in the server's queue and for its prompt to be read, in
    /// seconds, where the server says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_queue_s: Option<f64>,
    /// The HTTP status of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The reason for which the request failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

fn is_false(value: &bool) -> bool {
    !value
}

fn is_zero(value: &u32) -> bool {
    *value == 0
}

/// Parts of the time between handshake and `attested_s`, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Attestation {
    /// The time of waiting for evidence.
    pub quote_s: f64,
    /// The time of obtaining endorsements.
    pub collateral_s: f64,
    /// The time of checking signatures, chains and the policy.
    pub appraisal_s: f64,
}

/// The reason for which an event log cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum EventError {
    /// A line is not an event.
    #[error("line {line} of the event log: {message}")]
    Line {
        /// The number of the line, from 1.
        line: usize,
        /// What was wrong with it.
        message: String,
    },
}
