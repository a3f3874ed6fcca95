//! The stages of one guest, in order, and the file that comes of them.

use std::process::ExitCode;

use confide_prover::{
    BODY_BYTES_MAX, External, Header, Plan, ProofFile, Prover, ProverError, StageRun,
    line::{Description, Digest, Stage, StageResult, Strength},
};
use confide_statement::Statement;

use super::{
    Order,
    prover::{self, Shown, WorkFolder},
    shown::{self, Proved},
};
use crate::{error::CliError, new_file::NewFile, process::print_whole};

pub(super) fn run(guest: &str, input: &[u8], order: &Order) -> Result<ExitCode, CliError> {
    let program = prover::find(order.prover.as_deref())?;
    let (work, stop) = (WorkFolder::new()?, prover::stop_at_signal()?);
    // Minutes of proving are not for a place that cannot be written to.
    let out = NewFile::beside(&order.out)?;
    let progress = Shown::new();
    let told = |stage, step| progress.show(stage, step);
    let back = prover::back_end(program, &work, stop.clone(), &told);
    let proved = prove(&back, guest, input, order, &progress);
    progress.end();
    let proved = proved?;
    if stop.is_asked() {
        return Err(prover::explained(&ProverError::Interrupted { stage: "prove" }));
    }
    out.save(&proved.file)?;
    let text = match order.json {
        true => format!("{}\n", shown::json(&proved, &order.out)),
        false => shown::text(&proved, &order.out),
    };
    print_whole(&text).map(|()| ExitCode::SUCCESS)
}

fn prove(
    back: &External<'_>,
    guest: &str,
    input: &[u8],
    order: &Order,
    progress: &Shown,
) -> Result<Proved, CliError> {
    let explained = |error: ProverError| prover::explained(&error);
    let prover_sha256 = back.sha256().map_err(explained)?;
    let plan = Plan { mode: order.mode, memory_bytes: order.memory };
    let description = back.describe().map_err(explained)?;
    progress.start(Stage::Native);
    let native = back.native(guest, input).map_err(explained)?;
    let statement = statement_of(guest, &native)?;
    progress.start(Stage::Emulate);
    let emulate = back.emulate(guest, input, plan).map_err(explained)?;
    same(&statement, &description, &emulate.done)?;
    progress.start(Stage::Prove);
    let prove = back.prove(guest, input, plan).map_err(explained)?;
    same(&statement, &description, &prove.done)?;
    let header = header(&statement, &description, order, &prove.done, &emulate.done)?;
    progress.start(Stage::Check);
    // What cannot be checked here is no proof, whoever made it.
    let check = back.check(guest, order.mode, &prove.output).map_err(explained)?;
    same(&statement, &description, &check.done)?;
    let file = ProofFile { header, body: prove.output };
    let bytes = file.encode().map_err(|error| CliError::new(error).hint(too_long()))?;
    Ok(Proved {
        statement,
        header: file.header,
        body_bytes: file.body.len(),
        file: bytes,
        prover_sha256,
        stages: [
            (native.done, native.used),
            (emulate.done, emulate.used),
            (prove.done, prove.used),
            (check.done, check.used),
        ],
    })
}

fn too_long() -> String {
    let limit = BODY_BYTES_MAX >> 20;
    format!("a proof file holds at most {limit} MiB: --mode aggregated makes it small")
}

fn statement_of(guest: &str, native: &StageRun<Vec<u8>>) -> Result<Statement, CliError> {
    let statement = Statement::decode(&native.output)
        .map_err(|error| fault(format!("the native stage gave no statement: {error}")))?;
    if statement.claim() != guest {
        return Err(fault(format!("wanted a statement of {guest}, got {}", statement.claim())));
    }
    let (wanted, got) = (Digest(statement.digest()), native.done.public_values);
    match wanted == got {
        true => Ok(statement),
        false => Err(fault(format!("the native stage says {got}, its statement is {wanted}"))),
    }
}

/// Every stage has to say the same of the same program.
fn same(statement: &Statement, known: &Description, done: &StageResult) -> Result<(), CliError> {
    let (stage, claim) = (done.stage, statement.claim());
    let wanted = Digest(statement.digest());
    if done.public_values != wanted {
        let got = done.public_values;
        return Err(fault(format!("{stage} gave {got}, the native stage {wanted}")));
    }
    let mut programs = known.programs.iter().filter(|program| program.claim == claim);
    match programs.any(|program| program.program_digest == done.program_digest) {
        true => Ok(()),
        false => Err(fault(format!("{stage} ran a program {} of no {claim}", done.program_digest))),
    }
}

fn header(
    statement: &Statement,
    description: &Description,
    order: &Order,
    done: &StageResult,
    emulated: &StageResult,
) -> Result<Header, CliError> {
    let lacks = |what| fault(format!("the back end does not say {what} of its proof"));
    let strength: Strength = done.strength.ok_or_else(|| lacks("the bits"))?;
    if done.mode != Some(order.mode) {
        return Err(fault(format!("wanted a proof of mode {}, got another", order.mode)));
    }
    if done.cycles.is_some() && done.cycles != emulated.cycles {
        return Err(fault("the executor counted other cycles when it proved".to_string()));
    }
    Ok(Header {
        statement: statement.encode(),
        claim: statement.claim().to_string(),
        program_digest: done.program_digest,
        backend: description.backend.clone(),
        backend_version: description.version.clone(),
        mode: order.mode,
        strength,
        segments: done.segments.ok_or_else(|| lacks("the segments"))?,
        cycles: emulated.cycles.ok_or_else(|| lacks("the cycles"))?,
    })
}

fn fault(message: String) -> CliError {
    CliError::new(message).hint("a fault of confide-prover: nothing was written")
}
