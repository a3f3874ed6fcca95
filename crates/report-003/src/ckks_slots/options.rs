//! Options of an adapter under CKKS: the choices that report 003 compares.

use crate::ckks::{Ckks, Parameters};

/// Options of an adapter under CKKS. [`Options::new`] gives the fastest choices of report 003.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The parameter set: degree and moduli.
    pub parameters: Parameters,
    /// The way in which dot products are made of products of slots.
    pub packing: Packing,
    /// Whether ciphertexts are decrypted and decoded together.
    pub decryption: Decryption,
    /// The side that encrypts.
    pub direction: Direction,
    /// The number of primes that ciphertexts are made with.
    pub limbs: Limbs,
}

/// The way in which dot products are made of products of slots.
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
    /// Ciphertexts are decrypted and decoded one after the other.
    Sequential,
}

/// The side that encrypts. Both ends are in this process: encoding for a wire is included, its
/// delay is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The server, which also computes.
    Server,
    /// A client: ciphertexts become bytes and ciphertexts again, in both directions.
    Client,
}

/// The number of primes that ciphertexts are made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limbs {
    /// Three primes of 60, 40 and 40 bits, as in the report.
    All,
    /// Two primes of 60 and 40 bits: a product at scale 2^80 fits as long as it stays below 2^18,
    /// which is checked. With [`Packing::TwoProducts`] all three are used.
    Needed,
}

impl Options {
    /// The fastest choices of report 003: no rotation, one product, batched decryption, the server
    /// encrypts.
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
