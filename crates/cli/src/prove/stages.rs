//! The stages of one guest, in order, and the proof file that they make.

use std::process::ExitCode;

use confide_prover::{
    BODY_BYTES_MAX, ExternalProver, Header, ProofFile, ProofPlan, Prover, ProverError, StageRun,
    line::{Digest, ProofStrength, ProverDescription, Stage, StageResult},
};
use confide_statement::Statement;

use super::{
    facts::{self, ProvedRun},
    options::ProveOptions,
    prover::{self, StageProgress, WorkFolder},
};
use crate::{error::CliError, new_file::NewFile};

pub(super) fn run(guest: &str, input: &[u8], options: &ProveOptions) -> Result<ExitCode, CliError> {
    let program = prover::find_prover(options.prover.as_deref())?;
    let (work, stop) = (WorkFolder::new()?, prover::stop_at_signal()?);
    // A place that cannot be written to fails before minutes of proving.
    let out = NewFile::create_next_to(&options.out)?;
    let progress = StageProgress::new();
    let on_progress = |stage, step| progress.show(stage, step);
    let back = prover::open_prover(program, &work, stop.clone(), &on_progress);
    let proved = prove(&back, guest, input, options, &progress);
    progress.clear();
    let proved = proved?;
    if stop.is_stop_requested() {
        return Err(prover::explain_error(&ProverError::Interrupted { stage: "prove" }));
    }
    out.save(&proved.file)?;
    facts::proof_report(&proved, &options.out).print(options.json)
}

fn prove(
    back: &ExternalProver<'_>,
    guest: &str,
    input: &[u8],
    options: &ProveOptions,
    progress: &StageProgress,
) -> Result<ProvedRun, CliError> {
    let explain = |error: ProverError| prover::explain_error(&error);
    let prover_sha256 = back.sha256().map_err(explain)?;
    let plan = ProofPlan { mode: options.mode, memory_bytes: options.memory };
    let description = back.describe().map_err(explain)?;
    progress.show_start(Stage::Native);
    let native = back.run_native(guest, input).map_err(explain)?;
    let statement = decode_native_statement(guest, &native)?;
    progress.show_start(Stage::Emulate);
    let emulate = back.emulate(guest, input, plan).map_err(explain)?;
    check_stage_result(&statement, &description, &emulate.done)?;
    progress.show_start(Stage::Prove);
    let prove = back.prove(guest, input, plan).map_err(explain)?;
    check_stage_result(&statement, &description, &prove.done)?;
    let header = build_header(&statement, &description, options, &prove.done, &emulate.done)?;
    progress.show_start(Stage::Check);
    // A proof that cannot be checked here is not written.
    let check = back.check_proof(guest, options.mode, &prove.output).map_err(explain)?;
    check_stage_result(&statement, &description, &check.done)?;
    let file = ProofFile { header, body: prove.output };
    let bytes =
        file.encode().map_err(|error| CliError::new(error).with_hint(describe_time_limit()))?;
    Ok(ProvedRun {
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

fn describe_time_limit() -> String {
    let limit = BODY_BYTES_MAX >> 20;
    format!("a proof file holds at most {limit} MiB: --mode aggregated makes a smaller one")
}

fn decode_native_statement(guest: &str, native: &StageRun<Vec<u8>>) -> Result<Statement, CliError> {
    let statement = Statement::decode(&native.output)
        .map_err(|error| internal_error(format!("the native stage gave no statement: {error}")))?;
    if statement.claim_name() != guest {
        return Err(internal_error(format!(
            "wanted a statement of {guest}, got {}",
            statement.claim_name()
        )));
    }
    let (wanted, got) = (Digest(statement.digest()), native.done.public_values);
    if wanted != got {
        return Err(internal_error(format!(
            "public values of the native stage: wanted {wanted}, got {got}"
        )));
    }
    Ok(statement)
}

/// Checks that a stage gives the same public values, of a known program.
fn check_stage_result(
    statement: &Statement,
    known: &ProverDescription,
    done: &StageResult,
) -> Result<(), CliError> {
    let (stage, claim) = (done.stage, statement.claim_name());
    let wanted = Digest(statement.digest());
    if done.public_values != wanted {
        let got = done.public_values;
        return Err(internal_error(format!(
            "public values of {stage}: wanted {wanted}, got {got}"
        )));
    }
    let mut programs = known.programs.iter().filter(|program| program.claim == claim);
    if !programs.any(|program| program.program_digest == done.program_digest) {
        let digest = done.program_digest;
        return Err(internal_error(format!(
            "{stage} ran the program {digest}, which is not a program for {claim}"
        )));
    }
    Ok(())
}

fn build_header(
    statement: &Statement,
    description: &ProverDescription,
    options: &ProveOptions,
    done: &StageResult,
    emulated: &StageResult,
) -> Result<Header, CliError> {
    let lacks = |what| internal_error(format!("the back end did not report {what} of its proof"));
    let strength: ProofStrength = done.strength.ok_or_else(|| lacks("the bits"))?;
    if done.mode != Some(options.mode) {
        return Err(internal_error(format!(
            "wanted a proof of mode {}, got another",
            options.mode
        )));
    }
    if done.cycles.is_some() && done.cycles != emulated.cycles {
        return Err(internal_error(
            "the executor counted different cycles while proving".to_string(),
        ));
    }
    Ok(Header {
        statement: statement.encode(),
        claim: statement.claim_name().to_string(),
        program_digest: done.program_digest,
        backend: description.backend.clone(),
        backend_version: description.version.clone(),
        mode: options.mode,
        strength,
        segments: done.segments.ok_or_else(|| lacks("the segments"))?,
        cycles: emulated.cycles.ok_or_else(|| lacks("the cycles"))?,
    })
}

fn internal_error(message: String) -> CliError {
    CliError::new(message).with_hint("this is a fault of confide-prover; nothing was written")
}
