//! CKKS with slots: approximate numbers, many to a ciphertext (Cheon, Kim, Kim and Song, 2017).
//!
//! **For comparison, not for protection.** Report 003 evaluates an adapter under CKKS; this module
//! rebuilds its parameters (60/40/40 bits of data, a 60-bit special prime, scale 2^40) so that its
//! figures can be measured beside those of the schemes that protect somebody. Two things to know
//! before using it for anything else:
//!
//! - **Decryptions must not be shared.** What [`SecretKey::decrypt`] gives holds the encryption's
//!   noise, and noise of known messages gives the key (IND-CPA-D: Li and Micciancio, 2021). Shared
//!   results need flooding, or the exact decoding of `confide-rlwe`.
//! - **A product hides the message, not the weights.** An answer c·p divided by the c that was sent
//!   gives p without any key; there is no re-randomisation here.
//!
//! # From slots to slots
//!
//! [`Ckks::encode`] turns N/2 reals into a [`Message`] of N integers. [`SecretKey::encrypt`] makes
//! a [`Ciphertext`] of it, [`Ckks::plaintext`] a factor in NTT form. [`Ciphertext::product`],
//! [`Ciphertext::add_assign`], [`Ciphertext::rescale`] and [`Ciphertext::rotate`] compute;
//! [`SecretKey::decrypt`] and [`Ckks::decode`] lead back. Primes, their order and the order of the
//! slots are SEAL's, so that both can be compared value by value (`tests/python/test_seal.py`).
//!
//! # What a step of report 003 costs
//!
//! 1536 -> 32 at N = 16384: one encryption, 7 products, 7 decryptions, the weights encoded before.
//! Transforms of one limb: 3 to encrypt (message and error together), 21 to decrypt; 8 of them
//! modulo a 60-bit prime, 16 modulo a 40-bit one. Products: 2·3·7·N with the weights and 3·8·N with
//! the key, 1.1 million, a third of them at 60 bits. Embeddings: one to encode, 4 to decode, as two
//! real vectors share one complex transform.
//!
//! Predicted for one core with AVX-512, from its parts measured alone (60 bits: 66 us for a
//! transform, 1.8 ns for a product; 40 bits, `vpmadd52`: 16 us, 0.25 ns; 45 us for an embedding,
//! 25 us to recombine, 0.15 ms to sample): 0.78 + 0.66 + 0.18 + 0.22 + 0.18 + 0.15 = 2.2 ms. The
//! floor is memory: 2.8 MB of weights read, 5.5 MB of products written and read, 2.8 MB of phases:
//! below 1 ms. Fresh pages for those would cost more than the arithmetic, hence the `_into` functions.
//! Without AVX-512, at 165 us for any transform and 2 ns for any product, it is 8 ms. SEAL's own
//! figures stand in `bench/suites/adapters.toml`'s page, measured in the same run.

mod cipher;
mod crt;
mod embedding;
mod parameters;
mod rotation;
mod wire;

use std::{
    fmt,
    sync::{Arc, Mutex},
};

use zeroize::Zeroize;

pub use cipher::{Ciphertext, Decrypted, Plaintext, SecretKey};
pub use parameters::Parameters;
pub use rotation::GaloisKey;

use confide_rlwe::{Poly, Ring, RlweError, vectorised};
use crt::Recombination;
use embedding::Embedding;
use rotation::Switch;

/// Greatest magnitude of a scaled coefficient: it must be an i64 with room for noise.
const COEFFICIENT_MAX: f64 = (1u64 << 62) as f64;

/// Parameters with everything that depends on them alone: rings, transforms, twiddles.
pub struct Ckks {
    parameters: Parameters,
    /// The data primes, then the special prime.
    key_ring: Arc<Ring>,
    /// By limbs − 1: the first data primes.
    data_rings: Vec<Arc<Ring>>,
    /// By limbs − 1: the first data primes and the special prime.
    switching_rings: Vec<Arc<Ring>>,
    /// By limbs − 1.
    recombinations: Vec<Recombination>,
    embedding: Embedding,
    /// Memory of rotations that are over, for those to come.
    switches: Mutex<Vec<Switch>>,
}

/// Slots as an integer polynomial, scaled.
pub struct Message {
    coefficients: Vec<i64>,
    scale: f64,
}

/// Why CKKS refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CkksError {
    /// A name that is no parameter set.
    #[error("parameter set: wanted one of {known}, got {got:?}")]
    UnknownSet {
        /// The name given.
        got: String,
        /// All names.
        known: String,
    },
    /// More values than slots.
    #[error("slots: wanted at most {limit}, got {got}")]
    TooManySlots {
        /// Slots of a message.
        limit: usize,
        /// Values given.
        got: usize,
    },
    /// A value that is not finite or too large for the scale.
    #[error("message: wanted finite values whose scaled coefficients stay below 2^62")]
    Magnitude,
    /// Scales that do not match.
    #[error("sum: wanted the same scale, got 2^{:.3} and 2^{:.3}", .left.log2(), .right.log2())]
    Scales {
        /// Scale of the left side.
        left: f64,
        /// Scale of the right side.
        right: f64,
    },
    /// Too few limbs, or more than there are.
    #[error("{what}: wanted {wanted} limbs, got {got}")]
    Limbs {
        /// What was to be done.
        what: &'static str,
        /// Limbs wanted.
        wanted: usize,
        /// Limbs there.
        got: usize,
    },
    /// A thing made for other parameters.
    #[error("{what}: made for other parameters")]
    OtherParameters {
        /// The thing.
        what: &'static str,
    },
    /// Bytes that are not the one form that this module writes.
    #[error("ciphertext: {reason}")]
    Wire {
        /// What is wrong.
        reason: &'static str,
    },
    /// The ring below refused.
    #[error(transparent)]
    Ring(#[from] RlweError),
}

impl Ckks {
    /// Prepares all that depends on the parameters alone.
    ///
    /// # Errors
    /// Where the degree has no transform.
    pub fn new(parameters: &Parameters) -> Result<Arc<Ckks>, CkksError> {
        let n = parameters.n();
        let (data, special) = parameters.primes();
        let mut primes = data.clone();
        primes.push(special);
        let key_ring = Ring::new(n, &primes)?;
        let counts = 1..=data.len();
        let data_rings = counts.clone().map(|limbs| Ring::new(n, &data[..limbs]));
        let data_rings = data_rings.collect::<Result<Vec<_>, RlweError>>()?;
        let switching = |limbs: usize| Ring::new(n, &[&data[..limbs], &[special]].concat());
        let switching_rings = counts.map(switching).collect::<Result<Vec<_>, RlweError>>()?;
        Ok(Arc::new(Ckks {
            parameters: parameters.clone(),
            key_ring,
            recombinations: data_rings.iter().map(|ring| Recombination::new(ring)).collect(),
            data_rings,
            switching_rings,
            embedding: Embedding::new(n),
            switches: Mutex::default(),
        }))
    }

    /// Its parameters.
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// Reals in a message: N/2.
    pub fn slots(&self) -> usize {
        self.embedding.slots()
    }

    /// Limbs of a fresh ciphertext.
    pub fn limbs_max(&self) -> usize {
        self.data_rings.len()
    }

    /// Slots to a message of the parameters' scale. Slots that are not given are zero.
    ///
    /// # Errors
    /// Where there are too many, or a value is not finite or too large.
    pub fn encode(&self, slots: &[f64]) -> Result<Message, CkksError> {
        let scale = self.parameters.scale();
        if slots.len() > self.slots() {
            return Err(CkksError::TooManySlots { limit: self.slots(), got: slots.len() });
        }
        let mut scaled = vectorised(|| self.embedding.coefficients(slots, scale));
        // One that is not finite makes a comparison false.
        let fits = scaled.iter().all(|x| x.abs() < COEFFICIENT_MAX);
        let coefficients = scaled.iter().map(|x| (x + 0.5f64.copysign(*x)) as i64).collect();
        scaled.zeroize();
        if !fits {
            return Err(CkksError::Magnitude);
        }
        Ok(Message { coefficients, scale })
    }

    /// A factor for products, modulo the first `limbs` primes.
    ///
    /// # Errors
    /// Where there are not so many limbs, or the message has another degree.
    pub fn plaintext(&self, message: &Message, limbs: usize) -> Result<Plaintext, CkksError> {
        let poly = Poly::from_signed(self.data_ring(limbs)?, &message.coefficients)?;
        Ok(Plaintext { poly: poly.into_ntt(), scale: message.scale })
    }

    /// A decryption's slots.
    ///
    /// # Errors
    /// Where it was made for other parameters.
    pub fn decode(&self, decrypted: &Decrypted) -> Result<Vec<f64>, CkksError> {
        let mut coefficients = self.recombined(decrypted)?;
        let factor = 1.0 / decrypted.scale;
        let slots = vectorised(|| self.embedding.values(&mut coefficients, factor));
        coefficients.zeroize();
        Ok(slots)
    }

    /// As [`Ckks::decode`] for each; two of one scale share a transform.
    ///
    /// # Errors
    /// Where one was made for other parameters.
    pub fn decode_batch(&self, decrypted: &[Decrypted]) -> Result<Vec<Vec<f64>>, CkksError> {
        let mut all = Vec::with_capacity(decrypted.len());
        for pair in decrypted.chunks(2) {
            match pair {
                [first, second] if first.scale == second.scale => {
                    let (mut left, mut right) = (self.recombined(first)?, self.recombined(second)?);
                    let factor = 1.0 / first.scale;
                    let slots =
                        vectorised(|| self.embedding.value_pairs(&mut left, &mut right, factor));
                    all.extend([slots.0, slots.1]);
                    left.zeroize();
                    right.zeroize();
                }
                _ => pair.iter().try_for_each(|one| {
                    all.push(self.decode(one)?);
                    Ok::<(), CkksError>(())
                })?,
            }
        }
        Ok(all)
    }

    /// The primes of the first `limbs` limbs, and the special prime.
    pub fn primes(&self) -> (Vec<u64>, u64) {
        self.parameters.primes()
    }

    fn recombined(&self, decrypted: &Decrypted) -> Result<Vec<f64>, CkksError> {
        let ring = self.data_ring(decrypted.ring.limbs().len())?;
        if !ring.same(&decrypted.ring) {
            return Err(CkksError::OtherParameters { what: "decryption" });
        }
        let recombination = &self.recombinations[ring.limbs().len() - 1];
        Ok(vectorised(|| recombination.centred(&decrypted.values, ring.n())))
    }

    fn data_ring(&self, limbs: usize) -> Result<&Arc<Ring>, CkksError> {
        let ring = limbs.checked_sub(1).and_then(|index| self.data_rings.get(index));
        let (what, wanted) = ("message", self.limbs_max());
        ring.ok_or(CkksError::Limbs { what, wanted, got: limbs })
    }
}

impl Message {
    /// The scaled integer coefficients.
    pub fn coefficients(&self) -> &[i64] {
        &self.coefficients
    }

    /// What slots were multiplied by.
    pub fn scale(&self) -> f64 {
        self.scale
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        self.coefficients.zeroize();
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Message({} coefficients)", self.coefficients.len())
    }
}

impl fmt::Debug for Ckks {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Ckks({})", self.parameters)
    }
}

#[cfg(test)]
mod tests;
