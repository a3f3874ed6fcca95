//! A program: an ELF turned into the machine's instructions, and the commitment that names it.

use std::sync::Arc;

use openvm_circuit::arch::instructions::exe::VmExe;
use openvm_stark_backend::p3_field::PrimeField32;
use openvm_transpiler::{FromElf, elf::Elf, openvm_platform::memory::MEM_SIZE};

use crate::{
    backend::{Digest, F},
    config::Blueprint,
    error::Fault,
};

/// An ELF loaded for a machine.
pub struct Program {
    pub(crate) blueprint: Blueprint,
    pub(crate) exe: Arc<VmExe<F>>,
}

impl Program {
    /// Loads an ELF.
    ///
    /// # Errors
    ///
    /// [`Fault::Load`] if it is not a RISC-V program or has instructions that the machine lacks.
    pub fn load(elf: &[u8], blueprint: Blueprint) -> Result<Self, Fault> {
        let elf = Elf::decode(elf, MEM_SIZE as u32).map_err(|e| Fault::Load(e.to_string()))?;
        let exe =
            VmExe::from_elf(elf, blueprint.transpiler()).map_err(|e| Fault::Load(e.to_string()))?;
        Ok(Self { blueprint, exe: Arc::new(exe) })
    }
}

/// The commitments by which a checker knows a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramCommitment {
    /// Commitment to the instructions.
    pub instructions: [u8; 32],
    /// Commitment to instructions, first memory and entry point.
    pub executable: [u8; 32],
}

/// Encodes eight field elements as 32 bytes, little-endian, canonical.
pub(crate) fn digest_to_bytes(digest: &Digest) -> [u8; 32] {
    let mut bytes = [0; 32];
    for (into, limb) in bytes.chunks_exact_mut(4).zip(digest) {
        into.copy_from_slice(&limb.as_canonical_u32().to_le_bytes());
    }
    bytes
}
