//! Four stages of a zkVM as processes, and the file that holds a proof.
//!
//! No zkVM is inside. `confide-prover`, a program of its own, does the work: one process for each
//! stage, so that time, CPU seconds and peak memory of a stage are its own. [`line`] is what the two
//! programs say to each other.

pub mod file;
pub mod line;
