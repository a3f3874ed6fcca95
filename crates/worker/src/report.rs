//! Converts the report of a worker's adapter to this project's types.

use confide_engine::AdapterReport;
use confide_lora::{AdaptError, DeltaReport, Guarantee};
use serde_json::Value;

use crate::message::WorkerFault;

/// The names of the timed steps in a report.
const STEPS: [&str; 14] = [
    "quantise_ms",
    "mask_ms",
    "encrypt_ms",
    "network_ms",
    "product_ms",
    "decrypt_ms",
    "unmask_ms",
    "b_ms",
    "encode_ms",
    "rotation_ms",
    "wire_ms",
    "decode_ms",
    "sum_ms",
    "wait_ms",
];

/// Finds the guarantee with this display text; `None` if there is none.
pub(crate) fn parse_guarantee(text: &str) -> Option<Guarantee> {
    let mut guarantees = (0u8..32).map(|bits| {
        let is_set = |bit: u8| bits >> bit & 1 == 1;
        let adapter_stays = is_set(1);
        Guarantee {
            host_is_blind: is_set(0),
            adapter_stays,
            // An adapter that leaves its host is completely known to others.
            b_is_handed_over: is_set(2) || !adapter_stays,
            adapter_can_be_learned: is_set(3) || !adapter_stays,
            simulated: is_set(4),
        }
    });
    guarantees.find(|guarantee| guarantee.to_string() == text)
}

/// Reads the report of a worker's adapter. Missing numbers are 0; without a guarantee, the one from
/// the load applies.
pub(crate) fn parse_adapter_report(value: &Value, loaded: &Guarantee) -> AdapterReport {
    let count = |name: &str| value[name].as_u64().unwrap_or_default();
    let steps = STEPS.iter().filter_map(|step| {
        let taken = value["steps_ms"][*step].as_f64().filter(|taken| taken.is_finite())?;
        Some((*step, taken))
    });
    let report = DeltaReport {
        he_operations: count("he_operations"),
        he_rotations: count("he_rotations"),
        answered_vectors: count("answered_vectors"),
        budget_left: value["budget_left"].as_u64(),
        round_trips: count("round_trips"),
        online_bytes: count("online_bytes"),
        steps_ms: steps.collect(),
    };
    let guarantee = match &value["guarantee"] {
        Value::String(text) => parse_guarantee(text).unwrap_or(Guarantee::NONE),
        _ => loaded.clone(),
    };
    AdapterReport { report, guarantee, lost: None }
}

/// Converts the worker's error for a lost adapter.
pub(crate) fn to_adapt_error(fault: &WorkerFault) -> AdaptError {
    let reason = fault.message.clone();
    match fault.cause.as_deref() {
        Some("activation") => AdaptError::Activation { reason },
        Some("refused" | "budget") => AdaptError::Refused { reason },
        _ => AdaptError::HostLost { reason },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_sentence_is_understood_and_no_other_one() {
        for sentence in [
            "none",
            "adapter host is blind; adapter is not protected",
            "adapter is not handed over; activations are not hidden",
            "adapter can be learned; activations are not hidden",
            "adapter host is blind; adapter can be learned",
            "adapter host is blind; A is not handed over, B is",
            "adapter host is blind; adapter is not handed over",
            "adapter host is blind; A is not handed over, B is (simulated)",
        ] {
            let found = parse_guarantee(sentence).expect("a guarantee");
            assert_eq!(found.to_string(), sentence);
        }
        assert_eq!(parse_guarantee("none"), Some(Guarantee::NONE));
        assert_eq!(parse_guarantee("perfect"), None);
    }

    #[test]
    fn a_report_says_what_was_counted_and_an_unknown_guarantee_is_none() {
        let value = json!({ "he_operations": 4, "steps_ms": { "mask_ms": 0.5, "odd": 1 },
            "guarantee": "perfect" });
        let loaded =
            parse_guarantee("adapter host is blind; A is not handed over, B is").expect("one");
        let report = parse_adapter_report(&value, &loaded);
        assert_eq!((report.report.he_operations, report.report.steps_ms["mask_ms"]), (4, 0.5));
        assert_eq!(report.guarantee, Guarantee::NONE);
        assert_eq!(parse_adapter_report(&Value::Null, &loaded).guarantee, loaded);
    }
}
