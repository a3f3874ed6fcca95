//! Keys that check: one file for each machine, made once and committed.

use std::sync::Arc;

use openvm_stark_backend::keygen::types::MultiStarkVerifyingKey;
use serde::{Deserialize, Serialize};

use crate::{
    aggregate::Aggregator,
    app_key::{generate_app_key, machine_digest},
    backend::SC,
    config::Blueprint,
    error::Fault,
    lineage::{LayerCommitments, proven_bits_of_key},
};

/// The keys that check the proofs of one machine.
#[derive(Clone, Serialize, Deserialize)]
pub struct VerifyingKeys {
    /// Key of one segment's proof.
    pub(crate) app: MultiStarkVerifyingKey<SC>,
    /// Key of an aggregated proof.
    pub(crate) aggregated: MultiStarkVerifyingKey<SC>,
    /// Commitments to the keys below the aggregated one, which the proof itself must show.
    pub(crate) lineage: LayerCommitments,
    /// Bits of one segment's proof, by the back end's own accounting (`SoundnessCalculator`).
    pub(crate) app_bits: u32,
    /// The least of the bits of all layers of an aggregated proof.
    pub(crate) aggregated_bits: u32,
}

/// Why keys cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[error("keys do not read: {0}")]
pub struct KeysError(String);

impl VerifyingKeys {
    /// Derives the keys of a machine. Takes seconds: checks read them from a file.
    ///
    /// # Errors
    ///
    /// [`Fault::Backend`].
    pub fn derive(blueprint: Blueprint) -> Result<Self, Fault> {
        let app = generate_app_key(blueprint)?.get_vk();
        let aggregator = Aggregator::new(Arc::new(app.clone()));
        let bits = aggregator.proven_bits();
        let app_bits = proven_bits_of_key(&app);
        Ok(Self {
            aggregated: aggregator.verifying_key(),
            lineage: aggregator.layer_commitments(),
            aggregated_bits: bits.min(app_bits),
            app_bits,
            app,
        })
    }

    /// Encodes the keys as a file.
    ///
    /// # Errors
    ///
    /// [`KeysError`] if the key does not serialise.
    pub fn encode(&self) -> Result<Vec<u8>, KeysError> {
        bitcode::serialize(self).map_err(|e| KeysError(e.to_string()))
    }

    /// Reads a file of keys. They must come from a trusted place: whoever chooses the keys chooses
    /// the proofs.
    ///
    /// # Errors
    ///
    /// [`KeysError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, KeysError> {
        bitcode::deserialize(bytes).map_err(|e| KeysError(e.to_string()))
    }

    /// SHA-256 that names the machine: back end, version, and the hash of its key, which binds
    /// instructions, constraints and parameters.
    pub fn machine_digest(&self) -> [u8; 32] {
        machine_digest(&self.app)
    }

    /// Proven bits of a proof.
    pub fn proven_bits(&self, aggregated: bool) -> u32 {
        if aggregated { self.aggregated_bits } else { self.app_bits }
    }
}
