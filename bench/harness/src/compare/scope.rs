//! What is compared: the options, the records, one arm by one metric.

use serde::Serialize;

use crate::{
    plan::Case,
    suite::{
        Suite,
        bench::{Bench, Metric},
    },
    validity::Validity,
};

/// Selection of what to compare, and the refusals that the caller overrides.
#[derive(Clone, Debug, Default)]
pub struct CompareOptions {
    /// Compares only this metric, whether it is a headline metric or not.
    pub metric: Option<String>,
    /// Compares only this bench.
    pub bench: Option<String>,
    /// Compares every metric, not only the headline ones.
    pub all: bool,
    /// Forms ratios across different hardware; they are not the overhead of anything.
    pub dangerous_across_hardware: bool,
    /// Forms ratios where the arms' commands or a peer's version differ.
    pub dangerous_across_versions: bool,
}

/// The record that a figure is from, and its machine.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct FigureOrigin {
    pub(crate) record: String,
    pub(crate) suite: String,
    pub(crate) started_unix_s: u64,
    pub(crate) processor: String,
    pub(crate) commit: String,
    pub(crate) cpus: u64,
    pub(crate) kernel: String,
    pub(crate) validity: Validity,
    /// What a reader must know of the record's origin.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) remarks: Vec<String>,
    /// The median over slices of the time of a fixed piece of arithmetic, in microseconds.
    pub(crate) calibration_us: Option<f64>,
}

/// What is compared: one arm by one metric at one point of the grid.
pub(crate) struct ComparedCase<'a> {
    pub(crate) suite: &'a Suite,
    pub(crate) bench: &'a Bench,
    pub(crate) case: &'a Case,
    pub(crate) metric: &'a Metric,
    pub(crate) arm: &'a str,
}
