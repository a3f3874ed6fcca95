//! Statements over hidden bytes, as zero-knowledge circuits on spartan2.
//!
//! Two statements: SHA-256 of up to 1 KiB of hidden bytes is a public digest
//! ([`prove_sha256`], [`check_sha256`]), and a hidden leaf under a public root of up to 1,024
//! leaves contains public bytes ([`prove_contains`], [`check_contains`]). Each proof holds in one
//! *context*, 32 bytes such as the digest of a notary's statement, and in no other.
//!
//! `docs/circuits.md` has the constraints, the bytes of a proof and what it rests on.

mod circuit;
mod claim;
mod contains;
mod error;
mod hash;
mod keys;
mod layout;
mod padding;
mod proof;
mod prove;
mod sha256;
mod word;

#[cfg(test)]
mod constraint_tests;
#[cfg(test)]
mod rows;

pub use claim::{Circuit, DEPTH_LEAST, DEPTH_MOST, MESSAGE_BYTES_MOST};
pub use error::CircuitError;
pub use keys::Keys;
pub use proof::{Header, PROOF_BYTES_MOST, Security};
pub use prove::{
    Leaf, NEEDLE_BYTES_MOST, Prepared, Tree, check_contains, check_sha256, prove_contains,
    prove_sha256,
};

/// The curve T256, whose scalar field is the base field of P-256, with Hyrax commitments: no
/// trusted set-up.
type Curve = spartan2::provider::T256HyraxEngine;
type Scalar = <Curve as spartan2::traits::Engine>::Scalar;
