//! Times and numbers of operations of the steps of a scheme.

use std::time::Instant;

use crate::deltas::Report;

/// A step of a private delta.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Rounding activations to integers.
    Quantise,
    /// Subtracting the mask.
    Mask,
    /// Encrypting what the host computes on.
    Encrypt,
    /// Waiting for the host, less the time that the host says it computed.
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

/// The operations that ran and the time that they took: written where they run, never set from
/// outside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meter {
    nanoseconds: [u64; STEPS.len()],
    ran: [bool; STEPS.len()],
    /// The number of encryptions, products and decryptions.
    pub he_operations: u64,
    /// The number of rotations among them.
    pub he_rotations: u64,
}

/// Every step under its name in [`Report::steps_ms`].
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

impl Meter {
    /// Runs `work` and counts its time as `step`.
    pub fn time<T>(&mut self, step: Step, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let done = work();
        self.add(step, start.elapsed().as_nanos() as u64);
        done
    }

    /// Counts time that was measured elsewhere: by the host, or around a wait.
    pub fn add(&mut self, step: Step, nanoseconds: u64) {
        self.ran[step as usize] = true;
        self.nanoseconds[step as usize] += nanoseconds;
    }

    /// Adds the counts of another meter.
    pub fn merge(&mut self, other: &Meter) {
        for step in 0..STEPS.len() {
            self.ran[step] |= other.ran[step];
            self.nanoseconds[step] += other.nanoseconds[step];
        }
        self.he_operations += other.he_operations;
        self.he_rotations += other.he_rotations;
    }

    /// Writes operations and steps that ran into a report.
    pub fn write_to(&self, report: &mut Report) {
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
        let mut meter = Meter::default();
        assert_eq!(meter.time(Step::Mask, || 7), 7);
        meter.add(Step::B, 2_000_000);
        let mut all = Meter { he_operations: 3, ..Meter::default() };
        all.merge(&meter);
        let mut report = Report::default();
        all.write_to(&mut report);
        assert_eq!(report.he_operations, 3);
        assert_eq!(report.steps_ms.keys().copied().collect::<Vec<_>>(), ["b_ms", "mask_ms"]);
        assert_eq!(report.steps_ms["b_ms"], 2.0);
    }
}
