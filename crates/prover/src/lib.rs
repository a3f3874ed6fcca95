//! Four stages of a zkVM as processes, and the file that holds a proof.
//!
//! No zkVM is inside. `confide-prover`, a program of its own, does the work: one process for each
//! stage, so that time, CPU seconds and peak memory of a stage are its own. [`line`] is what the two
//! programs say to each other, [`ExternalProver`] runs it, [`judge()`] alone says yes to a proof.

#![deny(missing_docs)]

mod dcap;
mod external;
mod file;
mod judge;
mod launch;
pub mod line;
mod policy;
mod program;
mod sealed;
mod stages;

pub use dcap::DcapGuestInput;
pub use external::{ExternalProver, INPUT_BYTES_MAX, StopHandle};
pub use file::{
    APP_SEGMENTS_MAX, BODY_BYTES_MAX, FILE_BYTES_MAX, HEADER_BYTES_MAX, Header, MAGIC, ProofFile,
    ProofFileError, SEGMENT_BYTES_MAX,
};
pub use judge::{
    Check, CheckedProof, ExpectedProof, JudgementError, Outcome, RejectedProof, RejectionReason,
    judge,
};
pub use launch::{LAUNCH_FAILED, LAUNCH_WORD, Launcher, exec_launched_program};
pub use policy::{
    AllowedCheckers, POLICY_BYTES_MAX, PROVEN_BITS_DEFAULT, PolicyError, ProofPolicy,
};
pub use stages::{OnProgress, ProofPlan, Prover, ProverError, StageRun, StageUsage};
