//! Zero-knowledge proofs without circuits and without a trusted set-up: that the prover knows a
//! signature, or that a committed number lies in a range or equals another one.
//!
//! - [`SignatureProof`]: the prover knows a signature under a [`PublicKey`] over a message, and
//!   does not reveal it. RSA of 2048 to 4096 bits with e = 65537, ECDSA on P-256 and P-384.
//! - [`Commitment`] and [`Blinding`]: a number that is fixed and hidden. [`prove_range`] and
//!   [`verify_range`] are about one number, [`prove_equal`] and [`prove_relation`] about several.
//!
//! Every proof is bound to its statement and to a context of the caller's choice: a proof for one
//! context is refused in another. Computations with secrets take constant time, and secrets are
//! erased. docs/sigma-proofs.md specifies the hashes and encodings, for a second implementation.

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
pub use hash::HashFunction;
pub use key::{KEY_FILE_LENGTH_MAX, PublicKey};
pub use linear::{
    LinearRelation, RELATION_PROOF_LENGTH, prove_equal, prove_relation, verify_equal,
    verify_relation,
};
pub use pedersen::{Blinding, COMMITMENT_LENGTH, Commitment};
pub use range::{Range, prove_range, verify_range};
pub use security::ProofSecurity;
pub use signature::{SignatureProof, SignatureScheme};
pub use signature_file::SIGNATURE_PROOF_MAGIC;

/// Compiles and runs the example of README.md.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
