//! The steps of a run, as its caller sees them.

/// A step of a run, for progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProofStep {
    /// Segments proved, and how many there are.
    Segment {
        /// Segments proved so far.
        done: u32,
        /// Segments of the run.
        of: u32,
    },
    /// Joining proofs, and how many joins there are.
    Aggregate {
        /// Joins done so far.
        done: u32,
        /// Joins in all.
        of: u32,
    },
    /// The joined proof is being made small.
    Wrap,
}
