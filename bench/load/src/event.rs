//! One request of a load, with the instant of every stage.

use serde::{Deserialize, Serialize};

/// More requests than this in one run are a mistake: the event log is kept in memory.
pub const REQUESTS_MAX: usize = 1_000_000;

/// One line of the event log. Instants are seconds of a monotonic clock since the run's origin; a
/// stage that did not happen (a kept connection has no handshake) is absent, never 0.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Event {
    /// Position in the plan, from 0.
    pub index: u64,
    /// Index of the prompt in the plan: the same in every arm.
    pub prompt: u64,
    /// When the plan wanted it sent. Latencies count from here.
    pub scheduled_s: f64,
    /// When the client took it up. The dispatch delay is this less `scheduled_s`.
    pub dispatched_s: f64,
    /// Name resolved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved_s: Option<f64>,
    /// TCP connected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connected_s: Option<f64>,
    /// TLS handshake complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handshake_s: Option<f64>,
    /// Evidence accepted, the session may carry its first application byte.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attested_s: Option<f64>,
    /// Durations within attestation, in seconds: quote, collateral, appraisal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attestation: Option<Attestation>,
    /// Request written whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_s: Option<f64>,
    /// First byte of the answer's head.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_byte_s: Option<f64>,
    /// Arrival of each chunk of content that is not empty.
    #[serde(default)]
    pub chunks_s: Vec<f64>,
    /// Tokens in each chunk where the server says so; absent: one each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk_tokens: Option<Vec<u32>>,
    /// Last byte of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_s: Option<f64>,
    /// Receipt or answer checked.
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
    /// SHA-256 of the text, in hexadecimal: parity across arms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text_sha256: Option<String>,
    /// Time the server says it spent waiting in a queue and reading the prompt, in seconds, where
    /// it says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_queue_s: Option<f64>,
    /// HTTP status of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Why the request failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Parts of the time between handshake and `attested_s`, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Attestation {
    /// Waiting for evidence.
    pub quote_s: f64,
    /// Obtaining endorsements.
    pub collateral_s: f64,
    /// Signatures, chains and policy.
    pub appraisal_s: f64,
}

/// The reason for which an event log cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum EventError {
    /// A line is no event.
    #[error("line {line} of the event log: {message}")]
    Line {
        /// The number of the line, from 1.
        line: usize,
        /// What was wrong with it.
        message: String,
    },
}
