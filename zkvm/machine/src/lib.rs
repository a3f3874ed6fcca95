//! The virtual machine behind plain functions: OpenVM's circuits, its executor, its prover.
//!
//! A [`Blueprint`] says which instructions a machine has, a [`Program`] is an ELF loaded for it,
//! [`Prover`] runs and proves it, [`VerifyingKeys`] check. Nothing here reads a file or prints a line.

mod aggregate;
mod app_key;
mod backend;
mod check;
mod config;
mod error;
mod fan_in;
mod keys;
mod lineage;
mod program;
mod progress;
mod prove;
mod size;
mod wire;

pub use aggregate::aggregate;
pub use backend::{BACKEND, PUBLIC_VALUES_BYTES, VERSION};
pub use check::{CheckedProof, check_aggregated, check_segments};
pub use config::Blueprint;
pub use error::{Fault, Rejection};
pub use fan_in::FanIn;
pub use keys::{KeysError, VerifyingKeys};
pub use program::{Program, ProgramCommitment};
pub use progress::ProofStep;
pub use prove::{AppProof, Machine, Prover, SegmentPlan};
pub use size::{MEMORY_DEFAULT, SegmentSize};
pub use wire::{BODY_BYTES_MAX, declared_digests};
