//! Samples and slices: the results of one request, and of one run of an arm.

pub(crate) mod columns;
pub(crate) mod journal;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    disturbed::DetectedDisturbance,
    host::{cost::SliceUsage, quiet::InterferenceReading},
    protocol::FloorMeasurement,
};

/// The run of an arm that a sample or slice is of, by which pairs are made.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema, Serialize,
)]
pub(crate) struct SamplePlace {
    pub(crate) bench: String,
    pub(crate) case: String,
    pub(crate) block: u32,
    pub(crate) arm: String,
    /// The A/A arm: the reference arm's command as a process of its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) twin: bool,
}

/// The result of one request.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub(crate) struct Sample {
    #[serde(flatten)]
    pub(crate) place: SamplePlace,
    pub(crate) index: u32,
    pub(crate) metrics: BTreeMap<String, f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) answer: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) round_trips: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cpu_s: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) at_s: Option<f64>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) simulated: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) warmup: bool,
}

/// The result of one run of one arm within a block.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema, Serialize)]
pub(crate) struct Slice {
    #[serde(flatten)]
    pub(crate) place: SamplePlace,
    /// The position within the block, from 0.
    pub(crate) order: u32,
    /// The seconds from the start of the run to that of the slice.
    pub(crate) started_s: f64,
    pub(crate) wall_s: f64,
    pub(crate) samples: u32,
    pub(crate) metrics: BTreeMap<String, f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) answer: Option<Value>,
    /// CPU seconds of the arm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cpu_s: Option<f64>,
    /// CPU seconds of all services.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) services_cpu_s: Option<f64>,
    /// The share that this client used of the CPU that it may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) client_cpu: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) round_trips: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) floor: Option<FloorMeasurement>,
    /// The remarks that a reader of its figures must know, in the arm's words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) marks: Vec<String>,
    pub(crate) quiet: InterferenceReading,
    /// CPU time and memory of arm, services and harness while it ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cost: Option<Box<SliceUsage>>,
    /// The gates of quiet that it did not pass: labels, by which nothing is dropped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) disturbed: Vec<DetectedDisturbance>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) simulated: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) warmup: bool,
    /// The session of a run that was resumed, as an index into the record's `sessions`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) session: u32,
    /// The reason why this slice gives no pair.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) void: Option<String>,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}
