//! Public values of a proof, shared by guest, prover and checker.
//!
//! A [`Statement`] says what a proof shows: one struct for each claim, one canonical encoding for
//! each statement. The zkVM's public values are the 32 bytes of [`Statement::digest`]; the statement
//! itself travels next to the proof, and the checker holds it against what it expects.
//!
//! Builds without std (alloc only): the same code runs in the prover, the checker and the guest.
#![no_std]
#![deny(missing_docs)]
// A statement is held once; a box would only cost the guest cycles.
#![allow(clippy::large_enum_variant)]

extern crate alloc;

mod claims;
mod dcap;
mod encoding;
mod error;
#[cfg(feature = "json")]
mod json;
mod statement;
mod transcript;

pub use claims::{Fibonacci, MODULUS_BYTES, Rsa2048, Sha256, Sort, SortSource};
pub use dcap::{
    ADVISORIES_MAX, ADVISORY_BYTES_MAX, Dcap, Measurements, SgxMeasurements, TCB_STATUS_BYTES_MAX,
    TdxMeasurements, Verdict,
};
pub use encoding::DIGEST_BYTES;
pub use error::StatementError;
pub use statement::{ENCODED_BYTES_MAX, Statement};
pub use transcript::{DEPTH_MAX, Direction, PATH_BYTES_MAX, Predicate, TEXT_BYTES_MAX, Transcript};
