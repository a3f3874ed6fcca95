//! Statements over hidden bytes, as zero-knowledge circuits on spartan2.
//!
//! Two statements: SHA-256 of up to 1 KiB of hidden bytes is a public digest
//! ([`prove_sha256`], [`check_sha256`]), and a hidden leaf under a public root of up to 1,024
//! leaves contains public bytes ([`prove_contains`], [`check_contains`]). Each proof holds in one
//! *context*, 32 bytes such as the digest of a notary's statement, and in no other.
//!
//! `docs/circuits.md` has the constraints, the bytes of a proof and what it rests on.

#[cfg(feature = "spartan")]
mod circuit;
#[cfg(feature = "spartan")]
mod claim;
#[cfg(all(test, feature = "spartan"))]
mod constraint_tests;
#[cfg(feature = "spartan")]
mod contains;
mod error;
#[cfg(feature = "spartan")]
mod hash;
#[cfg(feature = "spartan")]
mod keys;
mod kind;
#[cfg(feature = "spartan")]
mod layout;
#[cfg(feature = "spartan")]
mod padding;
mod proof;
#[cfg(feature = "spartan")]
mod prove;
#[cfg(all(test, feature = "spartan"))]
mod rows;
#[cfg(feature = "spartan")]
mod sha256;
#[cfg(feature = "spartan")]
mod word;

pub use error::CircuitError;
#[cfg(feature = "spartan")]
pub use keys::Keys;
pub use kind::{Circuit, DEPTH_LEAST, DEPTH_MOST, MESSAGE_BYTES_MOST};
pub use proof::{HEADER_BYTES, Header, PROOF_BYTES_MOST, Security};
#[cfg(feature = "spartan")]
pub use prove::{
    Leaf, NEEDLE_BYTES_MOST, Prepared, Tree, check_contains, check_sha256, prove_contains,
    prove_sha256,
};

/// The curve T256, whose scalar field is the base field of P-256, with Hyrax commitments: no
/// trusted set-up.
#[cfg(feature = "spartan")]
type Curve = spartan2::provider::T256HyraxEngine;
#[cfg(feature = "spartan")]
type Scalar = <Curve as spartan2::traits::Engine>::Scalar;
