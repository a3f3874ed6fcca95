//! The four stages of `confide-prover`, and its description.

use std::{
    fs,
    io::{Read as _, Write as _},
    path::Path,
};

use confide_prover::line::{
    Description, Digest, Mode, PROTOCOL, Phase, ProverMessage, RefusalReason, Stage, StageResult,
    Strength,
};
use confide_zkvm_machine::{
    BACKEND, BODY_BYTES_MAX, FanIn, Fault, Machine, Plan, Program, Rejection, VERSION, aggregate,
    check_aggregated, check_segments, declared_digests,
};
use sha2::{Digest as _, Sha256};

use crate::{
    answer::{Parts, Refused, progress, step},
    arguments::Work,
    guests::{GUESTS, Guest},
    joins,
    records::{self, Record},
};

/// Both limits are the same, so that a body that fits a proof file is never too long to check.
const _: () = assert!(BODY_BYTES_MAX == confide_prover::BODY_BYTES_MAX);

/// The longest input of a guest. The longest that a claim takes, a quote with its endorsements, has
/// some 100 KiB.
const INPUT_BYTES_MAX: usize = 1 << 20;

/// Describes the back end and its programs.
///
/// # Errors
///
/// A fault where the keys that are built in do not read.
pub fn describe() -> Result<ProverMessage, Refused> {
    let mut programs = Vec::new();
    let mut proven_bits = u32::MAX;
    for guest in GUESTS {
        let record = Record::of_guest(guest)?;
        let keys = records::keys(guest)?;
        proven_bits = proven_bits.min(keys.bits(false)).min(keys.bits(true));
        programs.push(confide_prover::line::Program {
            claim: record.claim,
            program_digest: record.program_digest,
            elf_sha256: record.elf_sha256,
        });
    }
    Ok(ProverMessage::Description(Description {
        protocol: PROTOCOL,
        backend: BACKEND.to_string(),
        version: VERSION.to_string(),
        programs,
        modes: vec![Mode::App, Mode::Aggregated],
        strength: strength(proven_bits),
    }))
}

/// Runs the program outside the zkVM.
///
/// # Errors
///
/// A refusal by name.
pub fn native(work: &Work) -> Result<ProverMessage, Refused> {
    let mut parts = Parts::start();
    let guest = Guest::from_name(&work.guest)?;
    let input = read(&work.input, INPUT_BYTES_MAX, RefusalReason::MalformedInput)?;
    let record = Record::of_guest(guest)?;
    parts.end("set_up_s");
    let statement = (guest.native)(guest.name, &input)?.encode();
    parts.end("execute_s");
    write(&work.out, &statement)?;
    Ok(ProverMessage::Result(StageResult {
        stage: Stage::Native,
        program_digest: record.program_digest,
        public_values: Digest(Sha256::digest(&statement).into()),
        cycles: None,
        segments: None,
        mode: None,
        strength: None,
        parts: parts.seconds(),
    }))
}

/// Runs the program in the executor.
///
/// # Errors
///
/// A refusal by name.
pub fn emulate(work: &Work) -> Result<ProverMessage, Refused> {
    let mut parts = Parts::start();
    let (_, record, _, plan) = run(work, &mut parts)?;
    fan_in(work, &plan)?;
    Ok(ProverMessage::Result(StageResult {
        stage: Stage::Emulate,
        program_digest: record.program_digest,
        public_values: Digest(plan.public_values),
        cycles: Some(plan.cycles),
        segments: Some(plan.loads.len() as u32),
        mode: None,
        strength: None,
        parts: parts.seconds(),
    }))
}

/// Runs the program in the executor, then proves the run.
///
/// # Errors
///
/// A refusal by name.
pub fn prove(work: &Work) -> Result<ProverMessage, Refused> {
    let mut parts = Parts::start();
    let (guest, record, machine, plan) = run(work, &mut parts)?;
    let fan_in = fan_in(work, &plan)?;
    let input = read(&work.input, INPUT_BYTES_MAX, RefusalReason::MalformedInput)?;
    let (cycles, segments) = (plan.cycles, plan.loads.len() as u32);
    let public_values = Digest(plan.public_values);
    let prover = machine.prover()?;
    if prover.commitment() != record.commitment() {
        return Err(Refused::new(
            RefusalReason::Fault,
            "keys are not of this program: make zkvm-keys",
        ));
    }
    parts.end("commit_s");
    let proof = prover.prove(plan, &input, &mut step)?;
    parts.end("prove_s");
    let body = match work.mode {
        Mode::App => proof.encode()?,
        Mode::Aggregated => {
            let body = aggregate(proof, fan_in, &mut step)?;
            parts.end("aggregate_s");
            body
        }
    };
    write(&work.out, &body)?;
    let bits = records::keys(guest)?.bits(work.mode == Mode::Aggregated);
    Ok(ProverMessage::Result(StageResult {
        stage: Stage::Prove,
        program_digest: record.program_digest,
        public_values,
        cycles: Some(cycles),
        segments: Some(segments),
        mode: Some(work.mode),
        strength: Some(strength(bits)),
        parts: parts.seconds(),
    }))
}

/// Checks a proof with the keys that are built in.
///
/// # Errors
///
/// A refusal by name: the proof does not hold.
pub fn check(work: &Work) -> Result<ProverMessage, Refused> {
    let mut parts = Parts::start();
    let guest = Guest::from_name(&work.guest)?;
    let body = read(&work.proof, BODY_BYTES_MAX, RefusalReason::MalformedProof)?;
    let record = Record::of_guest(guest)?;
    let keys = records::keys(guest)?;
    parts.end("set_up_s");
    let aggregated = work.mode == Mode::Aggregated;
    let check = if aggregated { check_aggregated } else { check_segments };
    let checked = check(&body, &keys, guest.blueprint, &record.commitment())
        .map_err(|rejection| name(rejection, &body, &record))?;
    parts.end("check_s");
    Ok(ProverMessage::Result(StageResult {
        stage: Stage::Check,
        program_digest: record.program_digest,
        public_values: Digest(checked.public_values),
        cycles: None,
        segments: checked.segments,
        mode: Some(work.mode),
        strength: Some(strength(keys.bits(aggregated))),
        parts: parts.seconds(),
    }))
}

/// A proof that names another machine is of another program if it names one of ours; else its
/// parameters are not ours.
fn name(rejection: Rejection, body: &[u8], asked: &Record) -> Refused {
    let executable = declared_digests(body).map(|(_, executable)| Digest(executable));
    let others = GUESTS.iter().filter_map(|guest| Record::of_guest(guest).ok());
    let mut others = others.filter(|record| record.executable != asked.executable);
    if rejection == Rejection::Parameters
        && others.any(|record| Some(record.executable) == executable)
    {
        return Rejection::AnotherProgram.into();
    }
    rejection.into()
}

/// Said before anything is proved: what the proofs are joined with later needs memory too.
fn fan_in(work: &Work, plan: &Plan) -> Result<FanIn, Fault> {
    match work.mode {
        Mode::App => Ok(FanIn::MOST),
        Mode::Aggregated => joins::fan_in(work.memory, plan.loads.len()),
    }
}

/// What is named as the least has to suffice for the joins too.
fn with_joins(fault: Fault, mode: Mode) -> Fault {
    match (fault, mode) {
        (Fault::Memory { needed, given }, Mode::Aggregated) => {
            Fault::Memory { needed: needed.max(joins::LEAST_BYTES), given }
        }
        (fault, _) => fault,
    }
}

type Run = (&'static Guest, Record, Machine, Plan);

fn run(work: &Work, parts: &mut Parts) -> Result<Run, Refused> {
    let guest = Guest::from_name(&work.guest)?;
    let record = Record::of_guest(guest)?;
    let input = read(&work.input, INPUT_BYTES_MAX, RefusalReason::MalformedInput)?;
    progress(Phase::SetUp, 0, Some(1));
    let program = Program::load(guest.elf, guest.blueprint)?;
    let machine = Machine::new(&program)?;
    parts.end("set_up_s");
    progress(Phase::Execute, 0, Some(1));
    machine.run(&input)?;
    parts.end("execute_s");
    let plan = machine.plan(&input, work.memory).map_err(|fault| with_joins(fault, work.mode))?;
    parts.end("plan_s");
    Ok((guest, record, machine, plan))
}

/// The back end proves what it claims: its parameters lie within proven bounds, so nothing more is
/// conjectured. Its proofs are succinct, not zero-knowledge.
fn strength(proven_bits: u32) -> Strength {
    Strength { proven_bits, conjectured_bits: proven_bits, zero_knowledge: false }
}

fn read(path: &Path, most: usize, why: RefusalReason) -> Result<Vec<u8>, Refused> {
    let file = fs::File::open(path).map_err(|e| Refused::new(RefusalReason::Fault, e))?;
    let mut bytes = Vec::new();
    file.take(most as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|e| Refused::new(RefusalReason::Fault, e))?;
    if bytes.len() > most {
        return Err(Refused::new(why, format!("file is too long: at most {most} bytes")));
    }
    Ok(bytes)
}

/// Writes a file under another name and renames it: what stands under `path` is whole.
fn write(path: &Path, bytes: &[u8]) -> Result<(), Refused> {
    let mut part = path.as_os_str().to_owned();
    part.push(format!(".part-{}", std::process::id()));
    let part = std::path::PathBuf::from(part);
    let written = fs::File::create(&part)
        .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&part, path));
    written.map_err(|e| {
        let _ = fs::remove_file(&part);
        Refused::new(RefusalReason::Fault, e)
    })
}
