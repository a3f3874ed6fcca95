//! The data that a check needs: keys of the machines and commitments of the programs, built in.
//!
//! They are data, made by `confide-prover keys` and committed under `zkvm/keys`; a test makes them
//! again and compares.

use confide_prover::line::{Digest, RefusalReason};
use confide_zkvm_machine::{ProgramCommitment, VerifyingKeys};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::{answer::StageRefusal, guests::Guest};

/// File of the commitments of all programs.
pub const PROGRAMS: &str = "programs.json";
const PROGRAMS_TEXT: &str = include_str!("../keys/programs.json");

/// The record of a program, next to its ELF.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProgramRecord {
    /// Name of guest and claim.
    pub claim: String,
    /// Name of the machine.
    pub machine: String,
    /// SHA-256 of the ELF.
    pub elf_sha256: Digest,
    /// Commitment to the instructions.
    pub instructions: Digest,
    /// Commitment to instructions, first memory and entry point.
    pub executable: Digest,
    /// The digest that identifies the program outside this table: see [`program_digest`].
    pub program_digest: Digest,
}

impl ProgramRecord {
    /// Finds the record of a guest.
    ///
    /// # Errors
    ///
    /// A fault where it is missing or of another ELF than the one built in.
    pub fn for_guest(guest: &Guest) -> Result<Self, StageRefusal> {
        let records = Self::parse_all(PROGRAMS_TEXT)?;
        let record = records.into_iter().find(|record| record.claim == guest.name);
        let sha256 = Digest(Sha256::digest(guest.elf).into());
        match record {
            Some(record) if record.elf_sha256 == sha256 => Ok(record),
            _ => Err(StageRefusal::new(
                RefusalReason::Fault,
                "keys are not of this program: make zkvm-keys",
            )),
        }
    }

    /// Reads all records of a file.
    ///
    /// # Errors
    ///
    /// A fault where it does not read.
    pub fn parse_all(text: &str) -> Result<Vec<Self>, StageRefusal> {
        serde_json::from_str(text).map_err(|e| StageRefusal::new(RefusalReason::Fault, e))
    }

    /// Returns the commitments by which the checker knows the program.
    pub fn program_commitment(&self) -> ProgramCommitment {
        ProgramCommitment { instructions: self.instructions.0, executable: self.executable.0 }
    }
}

/// Reads the keys of a guest's machine.
///
/// # Errors
///
/// A fault where they do not read.
pub fn decode_keys(guest: &Guest) -> Result<VerifyingKeys, StageRefusal> {
    VerifyingKeys::decode(guest.keys).map_err(|e| StageRefusal::new(RefusalReason::Fault, e))
}

/// SHA-256 over a tag, the machine (back end, version, instructions, parameters) and the executable.
pub fn program_digest(machine: &[u8; 32], commitment: &ProgramCommitment) -> Digest {
    let mut hash = Sha256::new();
    hash.update(b"confide/openvm/program/v1");
    hash.update(machine);
    hash.update(commitment.executable);
    Digest(hash.finalize().into())
}
