//! Ciphertexts and the weight polynomials that multiply them.

use std::{fmt, sync::Arc};

use crate::{
    context::Context,
    error::RlweError,
    poly::{NttPoly, Poly},
    ring::Ring,
    rng::{Rng, Seed},
};

/// The nonce label of public polynomials.
const PUBLIC: [u8; 4] = *b"a(X)";

/// A fresh encryption: c0 in full, and c1 as the seed and index from which it is expanded.
#[derive(Clone, PartialEq, Eq)]
pub struct SeededCiphertext {
    /// −a·s + e + encoded messages.
    pub c0: NttPoly,
    /// The seed of the public polynomial a.
    pub seed: Seed,
    /// The index of a among the polynomials of the seed.
    pub index: u32,
}

/// Two polynomials. Their phase c0 + c1·s is encoded messages plus noise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ciphertext {
    /// The part that carries the messages.
    pub c0: NttPoly,
    /// The part that is multiplied with the secret.
    pub c1: NttPoly,
}

/// Weights as a polynomial in NTT form, with which ciphertexts are multiplied.
#[derive(Clone, PartialEq, Eq)]
pub struct Plaintext {
    weights: NttPoly,
}

impl SeededCiphertext {
    /// Expands c1 from its seed and index.
    pub fn c1(&self) -> NttPoly {
        public_polynomial(self.c0.ring(), &self.seed, self.index)
    }

    /// Expands c1 and returns both polynomials.
    pub fn expand(self) -> Ciphertext {
        let c1 = self.c1();
        Ciphertext { c0: self.c0, c1 }
    }
}

impl Ciphertext {
    /// The ciphertext of zeros without noise, from which a sum starts.
    pub fn zero(context: &Context) -> Ciphertext {
        let zero = NttPoly::zero(context.ring());
        Ciphertext { c0: zero.clone(), c1: zero }
    }

    /// self += other.
    pub fn add_assign(&mut self, other: &Ciphertext) {
        self.c0.add_assign(&other.c0);
        self.c1.add_assign(&other.c1);
    }

    /// self += weights·other, a product of polynomials mod X^N + 1. The magnitudes of all weights
    /// that enter one answer must sum to at most the set's `row_l1_max`; the caller must check this.
    pub fn add_product(&mut self, other: &Ciphertext, weights: &Plaintext) {
        self.c0.add_product(&other.c0, &weights.weights);
        self.c1.add_product(&other.c1, &weights.weights);
    }
}

impl Plaintext {
    /// Makes a plaintext of N signed weights, the coefficients of X^0 to X^(N−1).
    ///
    /// # Errors
    /// If there are not N weights, or their magnitudes sum to more than the set's `row_l1_max`.
    pub fn new(context: &Context, weights: &[i64]) -> Result<Plaintext, RlweError> {
        let sum = |l1: u64, w: &i64| l1.saturating_add(w.unsigned_abs());
        let (l1, limit) = (weights.iter().fold(0, sum), context.parameter_set().row_l1_max());
        if l1 > limit {
            return Err(RlweError::WeightsTooLarge { limit, got: l1 });
        }
        let weights = Poly::from_signed(context.ring(), weights)?.into_ntt();
        Ok(Plaintext { weights })
    }
}

impl fmt::Debug for SeededCiphertext {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "SeededCiphertext({:?}, index {})", self.c0, self.index)
    }
}

/// Prints only the ring, because the weights are secret.
impl fmt::Debug for Plaintext {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Plaintext({:?}, ..)", self.weights)
    }
}

/// The public polynomial of a seed and an index, uniform, in NTT form. Each limb has a keystream of
/// its own.
pub(crate) fn public_polynomial(ring: &Arc<Ring>, seed: &Seed, index: u32) -> NttPoly {
    let mut poly = NttPoly::zero(ring);
    for (limb, (modulus, values)) in poly.limbs_mut().enumerate() {
        let counter = u64::from(index) | (limb as u64) << 32;
        Rng::derive(seed, PUBLIC, counter).fill_uniform(modulus, values);
    }
    poly
}
