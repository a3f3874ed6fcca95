//! SHA-256 of hidden bytes is a public digest.

use std::sync::Arc;

use bellpepper_core::{ConstraintSystem, SynthesisError, num::AllocatedNum};
use zeroize::Zeroizing;

use crate::{
    circuit::{Claim, DIGEST_WORDS, word_to_publish, words_of},
    curve::Scalar,
    padding::hash_hidden,
};

/// The claim, for messages of up to `room` bytes.
#[derive(Clone)]
pub(crate) struct HashClaim {
    pub(crate) room: usize,
    pub(crate) message: Option<Arc<Zeroizing<Vec<u8>>>>,
    pub(crate) digest: [u8; 32],
}

impl Claim for HashClaim {
    fn allocate<CS: ConstraintSystem<Scalar>>(
        &self,
        cs: &mut CS,
    ) -> Result<Vec<AllocatedNum<Scalar>>, SynthesisError> {
        let message = self.message.as_ref().map(|message| message.as_slice());
        let hashed = hash_hidden(cs, &[], self.room, message)?;
        hashed.digest.iter().map(|word| word_to_publish(cs, word)).collect()
    }

    fn public(&self) -> Vec<u64> {
        words_of(&self.digest).to_vec()
    }

    fn exact_count(&self) -> usize {
        DIGEST_WORDS
    }
}
