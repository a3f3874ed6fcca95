//! The keys of a circuit, which both sides derive: the set-up is transparent and deterministic.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use spartan2::{
    spartan_zk::SpartanZkSNARK,
    traits::snark::{DigestHelperTrait, R1CSSNARKTrait},
};

use crate::{
    circuit::ContextCircuit, claim::AnyClaim, curve::Curve, error::CircuitError, kind::Circuit,
    layout::CircuitSizes, proof::CircuitSecurity,
};

/// The proof system, whose proofs are zero-knowledge.
pub(crate) type BackEnd = SpartanZkSNARK<Curve>;
type ProverKey = <BackEnd as R1CSSNARKTrait<Curve>>::ProverKey;
type VerifierKey = <BackEnd as R1CSSNARKTrait<Curve>>::VerifierKey;

/// A proof system with its security, so that another type cannot inherit the figures.
trait ProofSystemSecurity {
    const SECURITY: CircuitSecurity;
}

impl ProofSystemSecurity for SpartanZkSNARK<Curve> {
    const SECURITY: CircuitSecurity =
        CircuitSecurity { conjectured_bits: 128, zero_knowledge: true };
}

/// The security of the proof system in use.
pub(crate) const SECURITY: CircuitSecurity = <BackEnd as ProofSystemSecurity>::SECURITY;

/// The number of circuits whose keys are cached: a pair of keys takes hundreds of megabytes.
const CACHED_KEYS_MAX: usize = 2;

/// The keys of one circuit. Both sides derive the same ones.
pub struct CircuitKeys {
    pub(crate) circuit: Circuit,
    pub(crate) prover: ProverKey,
    pub(crate) verifier: VerifierKey,
    /// SHA-256 over generators and constraints, which identifies the key in a proof.
    pub(crate) digest: [u8; 32],
    pub(crate) sizes: CircuitSizes,
    constraints: usize,
}

impl CircuitKeys {
    /// Derives the keys of `circuit` from its constraints and from generators hashed from a label.
    fn derive(circuit: Circuit) -> Result<Self, CircuitError> {
        let claim = AnyClaim::without_values(circuit)?;
        let empty = ContextCircuit { claim, context: [0; 32] };
        let (prover, verifier) = BackEnd::setup(empty).map_err(back_end_error)?;
        let digest = verifier.digest().map_err(back_end_error)?;
        let [constraints, _, _, _, padded, _, precommitted, rest, ..] = prover.sizes();
        let sizes = CircuitSizes { constraints: padded, precommitted, rest };
        Ok(Self { circuit, prover, verifier, digest, sizes, constraints })
    }

    /// Returns the keys of `circuit`, which are derived unless they are cached.
    ///
    /// # Errors
    ///
    /// [`CircuitError::BackEnd`] if the back end cannot set up the circuit;
    /// [`CircuitError::UnknownField`] or [`CircuitError::Depth`] if there is no circuit of this
    /// size.
    pub fn derive_cached(circuit: Circuit) -> Result<Arc<Self>, CircuitError> {
        let mut kept = key_cache().lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = kept.iter().position(|keys| keys.circuit == circuit) {
            let keys = kept.remove(place);
            kept.push(Arc::clone(&keys));
            return Ok(keys);
        }
        // Keys are derived under the lock, so that two callers do not both derive them.
        if kept.len() == CACHED_KEYS_MAX {
            kept.remove(0);
        }
        let keys = Arc::new(Self::derive(circuit)?);
        kept.push(Arc::clone(&keys));
        Ok(keys)
    }

    /// The number of constraints, before they are padded to a power of two.
    pub fn constraint_count(&self) -> usize {
        self.constraints
    }
}

impl std::fmt::Debug for CircuitKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CircuitKeys").field("circuit", &self.circuit).finish_non_exhaustive()
    }
}

fn key_cache() -> &'static Mutex<Vec<Arc<CircuitKeys>>> {
    static CACHED_KEYS: OnceLock<Mutex<Vec<Arc<CircuitKeys>>>> = OnceLock::new();
    CACHED_KEYS.get_or_init(Mutex::default)
}

pub(crate) fn back_end_error(error: spartan2::errors::SpartanError) -> CircuitError {
    CircuitError::BackEnd(error.to_string())
}
