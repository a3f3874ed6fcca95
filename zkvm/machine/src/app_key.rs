//! The key of one segment's proof, which names the machine.

use openvm_circuit::{arch::VmCircuitConfig, system::memory::dimensions::MemoryDimensions};
use openvm_stark_backend::{
    StarkEngine,
    keygen::types::{MultiStarkProvingKey, MultiStarkVerifyingKey},
};
use sha2::{Digest as _, Sha256};

use crate::{
    backend::{BACKEND, Engine, SC, VERSION},
    config::Blueprint,
    error::Fault,
    program::digest_to_bytes,
};

/// Makes the proving key of one segment's proof.
pub(crate) fn generate_app_key(blueprint: Blueprint) -> Result<MultiStarkProvingKey<SC>, Fault> {
    let engine: Engine = Engine::new(blueprint.proof_parameters());
    let airs = VmCircuitConfig::<SC>::create_airs(&blueprint.machine_config())
        .map_err(|e| Fault::Backend(e.to_string()))?;
    Ok(airs.keygen(engine.config()))
}

/// SHA-256 that names the machine of a key.
pub(crate) fn machine_digest(app: &MultiStarkVerifyingKey<SC>) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in ["confide/openvm/machine/v1", BACKEND, VERSION] {
        hash.update((part.len() as u32).to_le_bytes());
        hash.update(part);
    }
    hash.update(digest_to_bytes(&app.pre_hash));
    hash.finalize().into()
}

/// Returns the shape of a machine's memory, in which public values are looked up.
pub(crate) fn memory_dimensions(blueprint: Blueprint) -> MemoryDimensions {
    let config = blueprint.machine_config();
    let system: &openvm_circuit::arch::SystemConfig = config.as_ref();
    system.memory_config.memory_dimensions()
}
