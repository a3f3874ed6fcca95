//! Options of an adapter under CKKS: the choices that report 003 compares.

use crate::ckks::{CkksContext, Parameters};

/// Options of an adapter under CKKS. [`CkksAdapterOptions::new`] returns the fastest choices of report
/// 003.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CkksAdapterOptions {
    /// The parameter set: degree and moduli.
    pub parameters: Parameters,
    /// How dot products are computed from products of slots.
    pub packing: Packing,
    /// Whether ciphertexts are decrypted and decoded together.
    pub decryption: DecryptionMode,
    /// The side that encrypts.
    pub direction: EncryptingSide,
    /// The primes of fresh ciphertexts.
    pub limbs: LimbChoice,
}

/// How dot products are computed from products of slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// Terms are summed after decryption, without rotations.
    Segments,
    /// Terms are summed under encryption, by log2(segment) rotations for each ciphertext.
    Rotations,
    /// A ciphertext holds one row. Rotations sum it into every slot, and a second product multiplies
    /// by the columns of B.
    TwoProducts,
}

/// Whether ciphertexts are decrypted and decoded together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecryptionMode {
    /// All ciphertexts of a projection are decrypted at once: keys and twiddle factors stay in the
    /// cache, and two decodings share a transform.
    Batched,
    /// Ciphertexts are decrypted and decoded one after the other.
    Sequential,
}

/// The side that encrypts. Both ends are in this process, so the cost of encoding for a wire is
/// included and the delay of a network is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncryptingSide {
    /// The server, which also computes.
    Server,
    /// A client: ciphertexts are encoded to bytes and decoded, in both directions.
    Client,
}

/// The primes of fresh ciphertexts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimbChoice {
    /// Three primes of 60, 40 and 40 bits, as in the report.
    All,
    /// Two primes of 60 and 40 bits. A product at scale 2^80 fits if it is below 2^18, which is
    /// checked. [`Packing::TwoProducts`] uses all three primes.
    Needed,
}

impl CkksAdapterOptions {
    /// Returns the fastest choices of report 003: no rotation, one product, batched decryption, and
    /// encryption by the server.
    pub fn new(parameters: Parameters) -> CkksAdapterOptions {
        CkksAdapterOptions {
            parameters,
            packing: Packing::Segments,
            decryption: DecryptionMode::Batched,
            direction: EncryptingSide::Server,
            limbs: LimbChoice::All,
        }
    }

    pub(super) fn limb_count(&self, ckks: &CkksContext) -> usize {
        match (self.packing, self.limbs) {
            (Packing::TwoProducts, _) | (_, LimbChoice::All) => ckks.limbs_max(),
            (_, LimbChoice::Needed) => 2,
        }
    }
}
