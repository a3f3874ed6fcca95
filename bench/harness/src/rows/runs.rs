//! The runs of a record by bench, case, arm and block.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{
    plan::Case,
    samples::{Sample, SamplePlace, Slice},
    suite::bench::{Bench, Metric},
};

/// Runs by bench, case, arm and block; warm-up left out.
pub(crate) struct Runs<'a> {
    pub(super) by_arm: BTreeMap<ArmKey<'a>, BTreeMap<u32, Run<'a>>>,
}

type ArmKey<'a> = (&'a str, &'a str, &'a str, bool);

pub(crate) struct Run<'a> {
    pub(crate) slice: &'a Slice,
    pub(crate) samples: Vec<&'a Sample>,
}

impl<'a> Runs<'a> {
    pub(crate) fn new(samples: &'a [Sample], slices: &'a [Slice]) -> Self {
        let mut by_arm: BTreeMap<ArmKey<'a>, BTreeMap<u32, Run<'a>>> = BTreeMap::new();
        for slice in slices.iter().filter(|slice| !slice.warmup) {
            let run = Run { slice, samples: Vec::new() };
            by_arm.entry(arm_key(&slice.place)).or_default().insert(slice.place.block, run);
        }
        for sample in samples.iter().filter(|sample| !sample.warmup) {
            let blocks = by_arm.get_mut(&arm_key(&sample.place));
            if let Some(run) = blocks.and_then(|blocks| blocks.get_mut(&sample.place.block)) {
                run.samples.push(sample);
            }
        }
        Self { by_arm }
    }

    /// Returns the runs of one arm that count, block by block.
    pub(crate) fn valid_runs<'s>(
        &'s self,
        bench: &'s Bench,
        case: &'s Case,
        arm: &'s str,
        twin: bool,
    ) -> Vec<&'s Run<'s>> {
        let key = (bench.name.as_str(), case.key.as_str(), arm, twin);
        let blocks = self.by_arm.get(&key);
        let valid = |run: &&Run<'s>| run.slice.void.is_none();
        blocks.map(|blocks| blocks.values().filter(valid).collect()).unwrap_or_default()
    }
}

impl Run<'_> {
    /// Returns the answers of its samples, then that of the whole run.
    pub(crate) fn answers(&self) -> Vec<Value> {
        let samples = self.samples.iter().filter_map(|sample| sample.answer.clone());
        samples.chain(self.slice.answer.clone()).collect()
    }

    /// Returns the one number of this run: that of its samples, else that of the whole run.
    pub(crate) fn metric_value(&self, metric: &Metric) -> Option<f64> {
        let values: Vec<f64> =
            self.samples.iter().filter_map(|s| s.metrics.get(&metric.name).copied()).collect();
        metric.stat.reduce(&values).or_else(|| self.slice.metrics.get(&metric.name).copied())
    }
}

fn arm_key(place: &SamplePlace) -> ArmKey<'_> {
    (&place.bench, &place.case, &place.arm, place.twin)
}

/// An arm and the reference arm that it is compared with, by one metric at one point of the grid.
pub(super) struct ArmPair<'a> {
    pub(super) bench: &'a Bench,
    pub(super) case: &'a Case,
    pub(super) metric: &'a Metric,
    pub(super) reference: ArmRuns<'a>,
    pub(super) arm: ArmRuns<'a>,
    /// True for the reference arm against itself.
    pub(super) twin: bool,
}

/// The runs of one arm that count.
pub(super) struct ArmRuns<'a> {
    pub(super) name: &'a str,
    pub(super) label: &'a str,
    pub(super) runs: Vec<&'a Run<'a>>,
}
