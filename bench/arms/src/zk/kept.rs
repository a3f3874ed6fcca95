//! Proofs that one arm makes and another one checks.

use std::{fs, path::PathBuf};

use confide_prover::{Plan, line::Digest};

use super::{file_name, work::Work, write};
use crate::Outcome;

/// What the executor said of a work.
pub(super) struct Known {
    pub(super) public_values: Digest,
    pub(super) cycles: u64,
    pub(super) segments: Option<u32>,
}

/// A folder of proofs, by work, mode and memory.
pub(super) struct ProofCache(PathBuf);

impl ProofCache {
    pub(super) fn new(folder: impl Into<PathBuf>) -> Self {
        Self(folder.into())
    }

    pub(super) fn read(&self, work: &Work, plan: Plan) -> Option<Vec<u8>> {
        fs::read(self.path(work, plan)).ok()
    }

    pub(super) fn write(&self, work: &Work, plan: Plan, proof: &[u8]) -> Outcome {
        write(&self.path(work, plan), proof)
    }

    fn path(&self, work: &Work, plan: Plan) -> PathBuf {
        let memory = plan.memory_bytes.unwrap_or(0);
        self.0.join(file_name(&format!("proof-{}-{}-{memory}", work.name, plan.mode)))
    }
}
