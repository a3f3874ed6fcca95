//! One projection under any scheme.

use confide_arm_line::Outcome;
use confide_lora::LoraPair;

use super::{problem::RandomProjection, spans::DurationsMs};

/// One projection under one scheme, both roles in this process.
pub(crate) trait ProjectionStep {
    /// The guarantee: who is protected from whom.
    fn guarantee(&self) -> String;

    /// Prepares the next step while nothing waits; not measured.
    fn prepare_step(&mut self) -> Outcome {
        Ok(())
    }

    /// Adds `B·A·x` to `delta`.
    fn add_delta(&mut self, input: &[f32], delta: &mut [f32]) -> Outcome;

    /// Time in ms of each part since the start; `b_ms` is not a part of the step.
    fn durations_ms(&self) -> DurationsMs;

    /// The greatest error of a delta that this scheme may have.
    fn error_max(&self) -> f64;

    /// Bytes that the two roles would send for one step.
    fn wire_bytes(&self) -> Vec<(&'static str, usize)> {
        Vec::new()
    }

    /// A bound measured now: name, metric, value.
    fn measured_floor(&self) -> Option<(String, String, f64)> {
        None
    }
}

/// The pair of matrices of a problem.
pub(crate) fn lora_pair(problem: &RandomProjection) -> LoraPair {
    LoraPair { a: problem.a.clone(), b: problem.b.clone(), scale: 1.0 }
}
