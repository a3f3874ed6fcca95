//! Proofs that one arm makes and another one checks.

use std::{
    fs,
    path::{Path, PathBuf},
};

use confide_arm_line::Outcome;
use confide_prover::{ProofPlan, line::Digest};

use super::work::GuestWork;

/// The result of the executor for a work.
pub(super) struct ExecutionResult {
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

    pub(super) fn read(&self, work: &GuestWork, plan: ProofPlan) -> Option<Vec<u8>> {
        fs::read(self.path(work, plan)).ok()
    }

    pub(super) fn write(&self, work: &GuestWork, plan: ProofPlan, proof: &[u8]) -> Outcome {
        replace_file(&self.path(work, plan), proof)
    }

    fn path(&self, work: &GuestWork, plan: ProofPlan) -> PathBuf {
        let memory = plan.memory_bytes.unwrap_or(0);
        self.0.join(file_name(&format!("proof-{}-{}-{memory}", work.name, plan.mode)))
    }
}

/// A text as the name of a file.
fn file_name(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).collect()
}

/// Writes to a file next to it and renames that: another arm never reads half a proof.
fn replace_file(path: &Path, bytes: &[u8]) -> Outcome {
    let part = path.with_extension(format!("part-{}", std::process::id()));
    let written = fs::write(&part, bytes).and_then(|()| fs::rename(&part, path));
    Ok(written.map_err(|error| format!("cannot write {}: {error}", path.display()))?)
}
