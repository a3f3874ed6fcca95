//! What is computed once for the parameters, and the encoding of slots.

use std::{
    fmt,
    sync::{Arc, Mutex},
};

use confide_rlwe::{Ring, RlweError, run_vectorised};
use zeroize::Zeroize;

use super::{
    crt::CrtRecombination, embedding::CanonicalEmbedding, error::CkksError,
    message::EncodedMessage, parameters::Parameters, switch::KeySwitchBuffers,
};

/// The greatest magnitude of a scaled coefficient: it must fit an i64 with room for noise.
const COEFFICIENT_MAX: f64 = (1u64 << 62) as f64;

/// Parameters with what is computed once for them: rings, transforms and twiddle factors.
pub struct CkksContext {
    pub(super) parameters: Parameters,
    /// The ring of keys: the data primes, then the special prime.
    pub(super) key_ring: Arc<Ring>,
    /// The rings of ciphertexts, at index limbs − 1: the first data primes.
    pub(super) data_rings: Vec<Arc<Ring>>,
    /// The rings of key switching, at index limbs − 1: the first data primes and the special prime.
    pub(super) switching_rings: Vec<Arc<Ring>>,
    /// The recombination of each ring of ciphertexts, at index limbs − 1.
    pub(super) recombinations: Vec<CrtRecombination>,
    pub(super) embedding: CanonicalEmbedding,
    /// Buffers of finished rotations, for later ones.
    pub(super) switches: Mutex<Vec<KeySwitchBuffers>>,
}

impl CkksContext {
    /// Computes rings and twiddle factors for the parameters.
    ///
    /// # Errors
    /// If the degree has no transform.
    pub fn new(parameters: &Parameters) -> Result<Arc<CkksContext>, CkksError> {
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
        Ok(Arc::new(CkksContext {
            parameters: parameters.clone(),
            key_ring,
            recombinations: data_rings.iter().map(|ring| CrtRecombination::new(ring)).collect(),
            data_rings,
            switching_rings,
            embedding: CanonicalEmbedding::new(n),
            switches: Mutex::default(),
        }))
    }

    /// The parameters.
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// The number of reals in a message, N/2.
    pub fn slot_count(&self) -> usize {
        self.embedding.slot_count()
    }

    /// The number of limbs of a fresh ciphertext.
    pub fn limbs_max(&self) -> usize {
        self.data_rings.len()
    }

    /// Encodes slots as a message of the parameters' scale. Missing slots are zero.
    ///
    /// # Errors
    /// If there are too many slots, or if a value is not finite or too large.
    pub fn encode(&self, slots: &[f64]) -> Result<EncodedMessage, CkksError> {
        let scale = self.parameters.scale();
        if slots.len() > self.slot_count() {
            return Err(CkksError::TooManySlots { limit: self.slot_count(), got: slots.len() });
        }
        let mut scaled = run_vectorised(|| self.embedding.to_coefficients(slots, scale));
        // The comparison is false for a value that is not finite.
        let fits = scaled.iter().all(|x| x.abs() < COEFFICIENT_MAX);
        let coefficients = scaled.iter().map(|x| (x + 0.5f64.copysign(*x)) as i64).collect();
        scaled.zeroize();
        if !fits {
            return Err(CkksError::ValueOutOfRange);
        }
        Ok(EncodedMessage { coefficients, scale })
    }

    /// The data primes, and the special prime.
    pub fn primes(&self) -> (Vec<u64>, u64) {
        self.parameters.primes()
    }

    pub(super) fn data_ring(&self, limbs: usize) -> Result<&Arc<Ring>, CkksError> {
        let ring = limbs.checked_sub(1).and_then(|index| self.data_rings.get(index));
        let (what, wanted) = ("message", self.limbs_max());
        ring.ok_or(CkksError::WrongLimbCount { what, wanted, got: limbs })
    }
}

impl fmt::Debug for CkksContext {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "CkksContext({})", self.parameters)
    }
}
