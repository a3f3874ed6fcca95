//! The choices between which report 003 compares.

use crate::ckks::{Ckks, Parameters};

/// What is asked of CKKS. The default is report 003's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Degree and moduli.
    pub parameters: Parameters,
    /// How dot products are made of products of slots.
    pub packing: Packing,
    /// Whether ciphertexts are decrypted and decoded together.
    pub decryption: Decryption,
    /// Who encrypts.
    pub direction: Direction,
    /// How many primes ciphertexts are made with.
    pub limbs: Limbs,
}

/// How dot products are made of products of slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// Terms are summed after decryption: no rotation.
    Segments,
    /// Terms are summed under encryption, by log2(segment) rotations for each ciphertext.
    Rotations,
    /// One row to a ciphertext, summed by rotations into every slot, then a second product with
    /// the columns of B.
    TwoProducts,
}

/// Whether ciphertexts are decrypted and decoded together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decryption {
    /// All of a projection at once: keys and twiddles stay in the cache, two decodings share a
    /// transform.
    Batched,
    /// One after the other.
    Sequential,
}

/// Who encrypts. Both ends are in this process: only the work of a wire is there, no delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The place that computes.
    Server,
    /// A client: ciphertexts become bytes and ciphertexts again, on both ways.
    Client,
}

/// How many primes ciphertexts are made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limbs {
    /// 60/40/40 bits, as the report.
    All,
    /// 60/40: a product at scale 2^80 fits as long as it stays below 2^18, which is checked. With
    /// [`Packing::TwoProducts`] all are needed.
    Needed,
}

impl Options {
    /// Report 003's fastest: no rotation, one product, batched decryption, the server encrypts.
    pub fn new(parameters: Parameters) -> Options {
        Options {
            parameters,
            packing: Packing::Segments,
            decryption: Decryption::Batched,
            direction: Direction::Server,
            limbs: Limbs::All,
        }
    }

    pub(super) fn limbs(&self, ckks: &Ckks) -> usize {
        match (self.packing, self.limbs) {
            (Packing::TwoProducts, _) | (_, Limbs::All) => ckks.limbs_max(),
            (_, Limbs::Needed) => 2,
        }
    }
}
