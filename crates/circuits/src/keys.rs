//! Keys of a circuit: derived, never read. The set-up is transparent and deterministic.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use spartan2::{
    spartan_zk::SpartanZkSNARK,
    traits::snark::{DigestHelperTrait, R1CSSNARKTrait},
};

use crate::{
    circuit::InContext, claim::AnyClaim, curve::Curve, error::CircuitError, kind::Circuit,
    layout::Sizes, proof::Security,
};

/// The proof system; `Zk` in its name means that its proofs are zero-knowledge.
pub(crate) type BackEnd = SpartanZkSNARK<Curve>;
type ProverKey = <BackEnd as R1CSSNARKTrait<Curve>>::ProverKey;
type VerifierKey = <BackEnd as R1CSSNARKTrait<Curve>>::VerifierKey;

/// Attaches a level of security to the type of a proof system.
trait ProofSystemSecurity {
    const SECURITY: Security;
}

impl ProofSystemSecurity for SpartanZkSNARK<Curve> {
    const SECURITY: Security = Security { conjectured_bits: 128, zero_knowledge: true };
}

/// The security of the proof system in use.
pub(crate) const SECURITY: Security = <BackEnd as ProofSystemSecurity>::SECURITY;

/// The number of circuits whose keys a process keeps: a pair of keys takes hundreds of megabytes.
const KEPT: usize = 2;

/// Keys of one circuit. Both sides derive the same ones.
pub struct Keys {
    pub(crate) circuit: Circuit,
    pub(crate) prover: ProverKey,
    pub(crate) verifier: VerifierKey,
    /// SHA-256 over generators and constraints, by which a proof names its key.
    pub(crate) digest: [u8; 32],
    pub(crate) sizes: Sizes,
    constraints: usize,
}

impl Keys {
    /// Derives the keys of `circuit`: its constraints, generators hashed from a label, a digest.
    fn derive(circuit: Circuit) -> Result<Self, CircuitError> {
        let claim = AnyClaim::shape(circuit)?;
        let empty = InContext { claim, context: [0; 32] };
        let (prover, verifier) = BackEnd::setup(empty).map_err(back_end)?;
        let digest = verifier.digest().map_err(back_end)?;
        let [constraints, _, _, _, padded, _, precommitted, rest, ..] = prover.sizes();
        let sizes = Sizes { constraints: padded, precommitted, rest };
        Ok(Self { circuit, prover, verifier, digest, sizes, constraints })
    }

    /// The keys of `circuit`, derived at most once while the process keeps them.
    ///
    /// # Errors
    ///
    /// [`CircuitError::BackEnd`] if the back end cannot set up the circuit;
    /// [`CircuitError::Header`] or [`CircuitError::Depth`] if there is no circuit of this size.
    pub fn derive_cached(circuit: Circuit) -> Result<Arc<Self>, CircuitError> {
        let mut kept = key_cache().lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = kept.iter().position(|keys| keys.circuit == circuit) {
            let keys = kept.remove(place);
            kept.push(Arc::clone(&keys));
            return Ok(keys);
        }
        // Keys are derived under the lock, so that two callers do not derive the same ones twice.
        if kept.len() == KEPT {
            kept.remove(0);
        }
        let keys = Arc::new(Self::derive(circuit)?);
        kept.push(Arc::clone(&keys));
        Ok(keys)
    }

    /// The number of constraints, before they are padded to a power of two.
    pub fn constraints(&self) -> usize {
        self.constraints
    }
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keys").field("circuit", &self.circuit).finish_non_exhaustive()
    }
}

fn key_cache() -> &'static Mutex<Vec<Arc<Keys>>> {
    static KEPT_KEYS: OnceLock<Mutex<Vec<Arc<Keys>>>> = OnceLock::new();
    KEPT_KEYS.get_or_init(Mutex::default)
}

pub(crate) fn back_end(error: spartan2::errors::SpartanError) -> CircuitError {
    CircuitError::BackEnd(error.to_string())
}
