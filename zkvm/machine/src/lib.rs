//! The virtual machine behind plain functions: OpenVM's circuits, its executor, its prover.
//!
//! A [`Blueprint`] says which instructions a machine has, a [`Program`] is an ELF loaded for it,
//! [`Prover`] runs and proves it, [`Keys`] check. Nothing here reads a file or prints a line.

mod aggregate;
mod check;
mod config;
mod error;
mod keys;
mod program;
mod prove;
mod size;
mod wire;

pub use aggregate::aggregate;
pub use check::{Checked, check_aggregated, check_app};
pub use config::Blueprint;
pub use error::{Fault, Rejection};
pub use keys::{Keys, KeysError};
pub use program::{Commitment, Program};
pub use prove::{AppProof, Machine, Plan, Prover};
pub use size::{FanIn, Load, MEMORY_DEFAULT};
pub use wire::{BODY_BYTES_MAX, declared_digests};

/// Name of the back end.
pub const BACKEND: &str = "openvm";
/// Version of the back end, as the manifest pins it.
pub const VERSION: &str = "2.0.2";
/// Public values of every program: a SHA-256 digest.
pub const PUBLIC_VALUES_BYTES: usize = 32;

/// A step of a run, for progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
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

pub(crate) use openvm_stark_sdk::config::baby_bear_poseidon2::{
    BabyBearPoseidon2Config as SC, BabyBearPoseidon2CpuEngine as Engine, Digest, F,
};
