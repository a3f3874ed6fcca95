//! The claim that SHA-256 of hidden bytes is a public digest.

use std::sync::Arc;

use bellpepper_core::{ConstraintSystem, SynthesisError, num::AllocatedNum};
use zeroize::Zeroizing;

use crate::{
    circuit::{CircuitClaim, DIGEST_WORDS, digest_words, sum_to_variable},
    curve::Scalar,
    padding::hash_hidden,
};

/// The claim about a message of at most `capacity` bytes.
#[derive(Clone)]
pub(crate) struct HashClaim {
    pub(crate) capacity: usize,
    pub(crate) message: Option<Arc<Zeroizing<Vec<u8>>>>,
    pub(crate) digest: [u8; 32],
}

impl CircuitClaim for HashClaim {
    fn allocate<CS: ConstraintSystem<Scalar>>(
        &self,
        cs: &mut CS,
    ) -> Result<Vec<AllocatedNum<Scalar>>, SynthesisError> {
        let message = self.message.as_ref().map(|message| message.as_slice());
        let hashed = hash_hidden(cs, &[], self.capacity, message)?;
        hashed.digest.iter().map(|word| sum_to_variable(cs, word)).collect()
    }

    fn public_integers(&self) -> Vec<u64> {
        digest_words(&self.digest).to_vec()
    }

    fn exact_public_count(&self) -> usize {
        DIGEST_WORDS
    }
}
