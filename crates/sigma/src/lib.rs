//! Proofs that need no circuit and no set-up: that one holds a signature, or that a committed
//! number lies in a range or equals another, and nothing more.
//!
//! - [`Commitment`] and [`Blinding`]: a number fixed and hidden; [`prove_range`] and
//!   [`verify_range`] over it, [`prove_equal`], [`prove_relation`] between several.
//!
//! Every proof is bound to its statement and to a context of the caller's choice: a proof for one
//! context is refused in another. Secrets are computed on in constant time and wiped. What is
//! hashed and sent is written down in docs/sigma-proofs.md, for a second implementation.

mod challenge;
mod error;
mod linear;
mod pedersen;
mod random;
mod range;

pub use challenge::CONTEXT_LENGTH_MAX;
pub use error::SigmaError;
pub use linear::{
    RELATION_PROOF_LENGTH, Relation, TERMS_MAX, prove_equal, prove_relation, verify_equal,
    verify_relation,
};
pub use pedersen::{Blinding, COMMITMENT_LENGTH, Commitment, biased, unbiased};
pub use range::{RANGE_PROOF_LENGTH_MAX, Range, prove_range, verify_range};
