//! Proofs that need no circuit and no set-up: that one holds a signature, or that a committed
//! number lies in a range or equals another, and nothing more.
//!
//! - [`SignatureProof`]: its maker knows a signature under a [`PublicKey`] over a message; the
//!   signature stays hidden. RSA of 2048 to 4096 bits with e = 65537, ECDSA on P-256 and P-384.
//! - [`Commitment`] and [`Blinding`]: a number fixed and hidden; [`prove_range`] and
//!   [`verify_range`] over it, [`prove_equal`], [`prove_relation`] between several.
//!
//! Every proof is bound to its statement and to a context of the caller's choice: a proof for one
//! context is refused in another. Secrets are computed on in constant time and wiped. What is
//! hashed and sent is written down in docs/sigma-proofs.md, for a second implementation.

#![deny(missing_docs)]

mod challenge;
mod ecdsa;
mod error;
mod hash;
mod key;
mod linear;
mod padding;
mod pedersen;
mod random;
mod range;
mod rsa;
mod security;
mod signature;
mod signature_file;
#[cfg(test)]
mod vector_tests;

pub use error::SigmaError;
pub use hash::Hash;
pub use key::{KEY_FILE_LENGTH_MAX, PublicKey};
pub use linear::{
    RELATION_PROOF_LENGTH, Relation, prove_equal, prove_relation, verify_equal, verify_relation,
};
pub use pedersen::{Blinding, COMMITMENT_LENGTH, Commitment};
pub use range::{Range, prove_range, verify_range};
pub use security::Security;
pub use signature::{Scheme, SignatureProof};
pub use signature_file::SIGNATURE_PROOF_MAGIC;

/// Compiles and runs the example of README.md.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
