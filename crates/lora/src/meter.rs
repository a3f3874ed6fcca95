//! Times and operation counts of the steps of a scheme.

use std::time::Instant;

use crate::deltas::DeltaReport;

/// A step of a private delta.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeltaStep {
    /// Rounding activations to integers.
    Quantise,
    /// Subtracting the mask.
    Mask,
    /// Encrypting the host's input.
    Encrypt,
    /// Waiting for the host, without the computing time that the host reports.
    Network,
    /// The product with the adapter, at the host.
    Product,
    /// Decrypting the host's answer.
    Decrypt,
    /// Adding the prepared mask.
    Unmask,
    /// The product with B, at the key holder.
    B,
}

/// The operations that ran and their times. The code that runs an operation records it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepMeter {
    nanoseconds: [u64; STEPS.len()],
    ran: [bool; STEPS.len()],
    /// The number of encryptions, products and decryptions.
    pub he_operations: u64,
    /// The number of rotations among them.
    pub he_rotations: u64,
}

/// The name of each step in [`DeltaReport::steps_ms`].
const STEPS: [&str; 8] = [
    "quantise_ms",
    "mask_ms",
    "encrypt_ms",
    "network_ms",
    "product_ms",
    "decrypt_ms",
    "unmask_ms",
    "b_ms",
];

impl StepMeter {
    /// Runs `work` and adds its time to `step`.
    pub fn time<T>(&mut self, step: DeltaStep, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let done = work();
        self.add_time(step, start.elapsed().as_nanos() as u64);
        done
    }

    /// Adds a time that the caller measured.
    pub fn add_time(&mut self, step: DeltaStep, nanoseconds: u64) {
        self.ran[step as usize] = true;
        self.nanoseconds[step as usize] += nanoseconds;
    }

    /// Adds the counts of another meter.
    pub fn merge(&mut self, other: &StepMeter) {
        for step in 0..STEPS.len() {
            self.ran[step] |= other.ran[step];
            self.nanoseconds[step] += other.nanoseconds[step];
        }
        self.he_operations += other.he_operations;
        self.he_rotations += other.he_rotations;
    }

    /// Writes the operation counts, and the times of the steps that ran, to a report.
    pub fn write_to_report(&self, report: &mut DeltaReport) {
        report.he_operations = self.he_operations;
        report.he_rotations = self.he_rotations;
        let steps = STEPS.iter().enumerate().filter(|(step, _)| self.ran[*step]);
        report.steps_ms =
            steps.map(|(step, name)| (*name, self.nanoseconds[step] as f64 / 1e6)).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_that_did_not_run_are_absent() {
        let mut meter = StepMeter::default();
        assert_eq!(meter.time(DeltaStep::Mask, || 7), 7);
        meter.add_time(DeltaStep::B, 2_000_000);
        let mut all = StepMeter { he_operations: 3, ..StepMeter::default() };
        all.merge(&meter);
        let mut report = DeltaReport::default();
        all.write_to_report(&mut report);
        assert_eq!(report.he_operations, 3);
        assert_eq!(report.steps_ms.keys().copied().collect::<Vec<_>>(), ["b_ms", "mask_ms"]);
        assert_eq!(report.steps_ms["b_ms"], 2.0);
    }
}
