//! Keys made anew, for whoever changes a guest or the back end.

use std::{collections::BTreeSet, fs, path::Path};

use confide_prover::line::{Digest, Line, Phase, Progress, Why};
use confide_zkvm_machine::{Keys, Machine, Program};
use sha2::{Digest as _, Sha256};

use crate::{
    answer::{Refused, progress},
    guests::GUESTS,
    records::{PROGRAMS, Record, program_digest},
};

/// Writes `MACHINE.keys` for each machine and `programs.json`, from the ELFs of a folder.
///
/// # Errors
///
/// A fault where an ELF is missing or a file cannot be written.
pub fn keys(elf: &Path, out: &Path) -> Result<Line, Refused> {
    let mut records = Vec::new();
    let mut made = BTreeSet::new();
    for (done, guest) in (0..).zip(GUESTS) {
        progress(Phase::SetUp, done, Some(GUESTS.len() as u32));
        let bytes = fs::read(elf.join(format!("{}.elf", guest.name))).map_err(fault)?;
        let prover = Machine::new(&Program::load(&bytes, guest.blueprint)?)?.prover()?;
        let (machine, commitment) = (prover.machine(), prover.commitment());
        if made.insert(guest.blueprint.name) {
            let keys = Keys::derive(guest.blueprint)?;
            let bytes = keys.encode().map_err(fault)?;
            fs::write(out.join(format!("{}.keys", guest.blueprint.name)), bytes).map_err(fault)?;
        }
        records.push(Record {
            claim: guest.name.to_string(),
            machine: guest.blueprint.name.to_string(),
            elf_sha256: Digest(Sha256::digest(&bytes).into()),
            instructions: Digest(commitment.instructions),
            executable: Digest(commitment.executable),
            program_digest: program_digest(&machine, &commitment),
        });
    }
    let mut text = serde_json::to_string_pretty(&records).map_err(fault)?;
    text.push('\n');
    fs::write(out.join(PROGRAMS), text).map_err(fault)?;
    let all = GUESTS.len() as u32;
    Ok(Line::Progress(Progress { phase: Phase::SetUp, done: all, of: Some(all) }))
}

fn fault(error: impl ToString) -> Refused {
    Refused::new(Why::Fault, error)
}
