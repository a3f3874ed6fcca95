//! The `confide` object of an answer, which describes its adapter.

use confide_engine::AdapterReport;
use confide_lora::AdaptError;
use serde_json::{Value, json};

/// The `confide` object of an answer. Every field is computed from the actual run.
pub fn adapter_report_json(name: &str, adapter: &AdapterReport) -> Value {
    let AdapterReport { report, guarantee, lost } = adapter;
    json!({
        "adapter": name,
        "guarantee": guarantee.to_string(),
        "encrypted": report.he_operations > 0,
        "he_operations": report.he_operations,
        "he_rotations": report.he_rotations,
        "answered_vectors": report.answered_vectors,
        "budget_left": report.budget_left,
        "adapter_can_be_learned": guarantee.adapter_can_be_learned,
        "simulated": guarantee.simulated,
        "round_trips": report.round_trips,
        "online_bytes": report.online_bytes,
        "steps_ms": report.steps_ms,
        "adapter_lost": lost.as_ref().map(loss_json),
    })
}

/// The `confide` object before the first token that was computed without the adapter.
pub fn adapter_loss_json(name: &str, reason: &AdaptError) -> Value {
    json!({ "adapter": name, "adapter_lost": loss_json(reason) })
}

fn loss_json(reason: &AdaptError) -> Value {
    json!({ "reason": reason.to_string(), "answered_by": "base model" })
}
