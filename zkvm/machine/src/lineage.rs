//! The keys below that of an aggregated proof, and how strong a key's proofs are.

use openvm_stark_backend::{keygen::types::MultiStarkVerifyingKey, soundness::SoundnessCalculator};
use openvm_verify_stark_host::pvs::VkCommit;
use serde::{Deserialize, Serialize};

use crate::backend::{F, SC};

/// Commitments to the keys of the layers of an aggregated proof.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct LayerCommitments {
    pub app: VkCommit<F>,
    pub leaf: VkCommit<F>,
    pub internal_for_leaf: VkCommit<F>,
    pub internal_recursive: VkCommit<F>,
}

/// Proven bits of round-by-round soundness, rounded down.
pub(crate) fn proven_bits_of_key(key: &MultiStarkVerifyingKey<SC>) -> u32 {
    SoundnessCalculator::calculate_from_vk(key).total_bits.floor() as u32
}
