//! The lines of `bench/PROTOCOL.md`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::suite::bench::Params;

/// The version of the protocol.
pub(crate) const PROTOCOL: u32 = 1;
/// The most bytes of a line. A longer one ends the arm: no honest line comes near.
pub(crate) const LINE_BYTES_MAX: usize = 64 << 10;
/// The most samples of one run. More end the arm, because they would be kept in memory.
pub(crate) const SAMPLES_PER_RUN_MAX: usize = 50_000;

/// A line from the harness to an arm.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum HarnessMessage {
    Run { id: u64, block: u32, seed: u64, requests: u32, params: Params },
    End {},
}

/// A line from an arm to the harness.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum ArmMessage {
    Hello(HelloMessage),
    Sample(SampleMessage),
    #[serde(rename = "done")]
    Report(Box<ReportMessage>),
    Error {
        id: u64,
        reason: String,
    },
}

/// The first line of an arm, which says what it is.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub(crate) struct HelloMessage {
    pub(crate) protocol: u32,
    pub(crate) arm: String,
    pub(crate) version: String,
    #[serde(default)]
    pub(crate) simulated: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) guarantee: Option<String>,
    #[serde(default = "default_threads")]
    pub(crate) threads: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<String>,
    /// True where a new process wants an unmeasured run first.
    #[serde(default = "default_warming", skip_serializing_if = "is_true")]
    pub(crate) warming: bool,
    /// The reason why it cannot work on this machine at all: it is left out by name, with this
    /// reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cannot: Option<String>,
}

/// The figures of one request.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub(crate) struct SampleMessage {
    pub(crate) id: u64,
    pub(crate) metrics: BTreeMap<String, f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) answer: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) round_trips: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cpu_s: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) at_s: Option<f64>,
    #[serde(default)]
    pub(crate) simulated: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

/// The last line of a run, with the figures of the whole run.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub(crate) struct ReportMessage {
    pub(crate) id: u64,
    #[serde(default)]
    pub(crate) metrics: BTreeMap<String, f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) answer: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) round_trips: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cpu_s: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) wall_s: Option<f64>,
    #[serde(default)]
    pub(crate) simulated: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) guarantee: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) floor: Option<FloorMeasurement>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) marks: Vec<String>,
    /// The reason why the pair is void, by a rule of the arm's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) void: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) peak_memory_bytes: Option<u64>,
}

/// A bound measured next to the run, in the unit of `metric`.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema, Serialize)]
#[schemars(rename = "Floor")]
pub(crate) struct FloorMeasurement {
    pub(crate) name: String,
    pub(crate) metric: String,
    pub(crate) value: f64,
}

fn default_threads() -> u32 {
    1
}

fn default_warming() -> bool {
    true
}

fn is_true(value: &bool) -> bool {
    *value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_the_protocol_page_parse() {
        let page = include_str!("../../PROTOCOL.md");
        let joined = page.replace(",\n     \"answer\"", ", \"answer\"");
        let lines = joined.lines().map(str::trim).filter(|line| line.starts_with("{\"type\""));
        let mut seen = 0;
        for line in lines {
            let value: Value = serde_json::from_str(line).unwrap();
            let to_arm = value["type"] == "run";
            if to_arm {
                serde_json::from_value::<HarnessMessage>(value).unwrap();
            } else {
                serde_json::from_value::<ArmMessage>(value).unwrap();
            }
            seen += 1;
        }
        assert!(seen >= 4, "{seen}");
    }
}
