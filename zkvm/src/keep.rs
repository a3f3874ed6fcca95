//! Keys made again, for whoever changes a guest or the back end.

use std::{collections::BTreeSet, fs, path::Path};

use confide_prover::line::{Digest, Phase, Progress, ProverMessage, RefusalReason};
use confide_zkvm_machine::{Machine, Program, VerifyingKeys};
use sha2::{Digest as _, Sha256};

use crate::{
    answer::{StageRefusal, print_progress},
    guests::GUESTS,
    records::{PROGRAMS, ProgramRecord, program_digest},
};

/// Writes `MACHINE.keys` for each machine and `programs.json`, from the ELFs of a folder, and the
/// program digests into the list of the ELFs.
///
/// # Errors
///
/// A fault where an ELF is missing or a file cannot be written.
pub fn write_keys(
    elf: &Path,
    out: &Path,
    digests: Option<&Path>,
) -> Result<ProverMessage, StageRefusal> {
    let mut records = Vec::new();
    let mut made = BTreeSet::new();
    for (done, guest) in (0..).zip(GUESTS) {
        print_progress(Phase::SetUp, done, Some(GUESTS.len() as u32));
        let bytes = fs::read(elf.join(format!("{}.elf", guest.name))).map_err(fault_refusal)?;
        let prover = Machine::new(&Program::load(&bytes, guest.blueprint)?)?.into_prover()?;
        let (machine, commitment) = (prover.machine_digest(), prover.program_commitment());
        if made.insert(guest.blueprint.name) {
            let keys = VerifyingKeys::derive(guest.blueprint)?;
            let bytes = keys.encode().map_err(fault_refusal)?;
            fs::write(out.join(format!("{}.keys", guest.blueprint.name)), bytes)
                .map_err(fault_refusal)?;
        }
        records.push(ProgramRecord {
            claim: guest.name.to_string(),
            machine: guest.blueprint.name.to_string(),
            elf_sha256: Digest(Sha256::digest(&bytes).into()),
            instructions: Digest(commitment.instructions),
            executable: Digest(commitment.executable),
            program_digest: program_digest(&machine, &commitment),
        });
    }
    let mut text = serde_json::to_string_pretty(&records).map_err(fault_refusal)?;
    text.push('\n');
    fs::write(out.join(PROGRAMS), text).map_err(fault_refusal)?;
    if let Some(digests) = digests {
        let text = fs::read_to_string(digests).map_err(fault_refusal)?;
        fs::write(digests, fill_digests(&text, &records)).map_err(fault_refusal)?;
    }
    let all = GUESTS.len() as u32;
    Ok(ProverMessage::Progress(Progress { phase: Phase::SetUp, done: all, of: Some(all) }))
}

/// Fills each program's digest into its table of the list.
fn fill_digests(text: &str, records: &[ProgramRecord]) -> String {
    let mut digest = None;
    let mut filled = String::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            digest = records.iter().find(|r| r.claim == name).map(|r| r.program_digest);
        }
        match digest {
            Some(digest) if line.starts_with("program_digest") => {
                filled.push_str(&format!("program_digest = \"{digest}\""));
            }
            _ => filled.push_str(line),
        }
        filled.push('\n');
    }
    filled
}

fn fault_refusal(error: impl ToString) -> StageRefusal {
    StageRefusal::new(RefusalReason::Fault, error)
}
