//! Statements over hidden bytes, as zero-knowledge circuits on spartan2.
//!
//! | statement | prove | check |
//! | --- | --- | --- |
//! | SHA-256 of up to 1 KiB is a public digest | [`prove_sha256`] | [`check_sha256`] |
//! | a leaf under a public root of up to 1,024 contains public bytes | [`prove_contains`] | [`check_contains`] |
//! | two neighbouring leaves contain them | [`prove_contains_across`] | [`check_contains_across`] |
//! | a value of up to 1 KiB with a salted digest contains them | [`prove_field_contains`] | [`check_field_contains`] |
//! | SHA-256 of such a value is a public digest | [`prove_field_sha256`] | [`check_field_sha256`] |
//!
//! Each proof is valid only in one *context*: 32 bytes, such as the digest of a notary's statement.
//!
//! `docs/circuits.md` has the constraints, the bytes of a proof and its security assumptions.

#![deny(missing_docs)]

#[cfg(feature = "spartan")]
mod check;
#[cfg(feature = "spartan")]
mod circuit;
#[cfg(feature = "spartan")]
mod claim;
#[cfg(all(test, feature = "spartan"))]
mod constraint_tests;
#[cfg(feature = "spartan")]
mod contains;
#[cfg(feature = "spartan")]
mod curve;
mod error;
#[cfg(feature = "spartan")]
mod field;
#[cfg(feature = "spartan")]
mod hash;
#[cfg(feature = "spartan")]
mod keys;
mod kind;
#[cfg(feature = "spartan")]
mod layout;
#[cfg(feature = "spartan")]
mod padding;
#[cfg(feature = "spartan")]
mod path;
mod proof;
#[cfg(feature = "spartan")]
mod prove;
#[cfg(all(test, feature = "spartan"))]
mod rows;
#[cfg(feature = "spartan")]
mod sha256;
#[cfg(feature = "spartan")]
mod window;
#[cfg(feature = "spartan")]
mod witness;
#[cfg(feature = "spartan")]
mod word;

#[cfg(feature = "spartan")]
pub use check::{
    check_contains, check_contains_across, check_field_contains, check_field_sha256, check_sha256,
};
pub use error::CircuitError;
#[cfg(feature = "spartan")]
pub use keys::CircuitKeys;
pub use kind::{Circuit, DEPTH_LEAST, DEPTH_MOST, FIELD_BYTES_MOST, MESSAGE_BYTES_MOST};
pub use proof::{BACK_END, CircuitSecurity, HEADER_BYTES, PROOF_BYTES_MOST, ProofHeader};
#[cfg(feature = "spartan")]
pub use prove::{
    PreparedProof, prove_contains, prove_contains_across, prove_field_contains, prove_field_sha256,
    prove_sha256,
};
#[cfg(feature = "spartan")]
pub use witness::{HiddenField, HiddenLeaf, NEEDLE_BYTES_MOST, PublicTree};
