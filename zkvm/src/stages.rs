//! The four stages of `confide-prover`, and its description.

use std::{
    fs,
    io::{Read as _, Write as _},
    path::Path,
};

use confide_prover::line::{
    Digest, PROTOCOL, Phase, ProofMode, ProofStrength, ProverDescription, ProverMessage,
    RefusalReason, Stage, StageResult,
};
use confide_zkvm_machine::{
    BACKEND, BODY_BYTES_MAX, FanIn, Fault, Machine, Program, Rejection, SegmentPlan, VERSION,
    aggregate, check_aggregated, check_segments, declared_digests,
};
use sha2::{Digest as _, Sha256};

use crate::{
    answer::{StageRefusal, StageTimer, print_progress, print_step},
    arguments::StageOptions,
    guests::{GUESTS, Guest},
    joins,
    records::{self, ProgramRecord},
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
pub fn describe_backend() -> Result<ProverMessage, StageRefusal> {
    let mut programs = Vec::new();
    let mut proven_bits = u32::MAX;
    for guest in GUESTS {
        let record = ProgramRecord::for_guest(guest)?;
        let keys = records::decode_keys(guest)?;
        proven_bits = proven_bits.min(keys.proven_bits(false)).min(keys.proven_bits(true));
        programs.push(confide_prover::line::ProgramDescription {
            claim: record.claim,
            program_digest: record.program_digest,
            elf_sha256: record.elf_sha256,
        });
    }
    Ok(ProverMessage::Description(ProverDescription {
        protocol: PROTOCOL,
        backend: BACKEND.to_string(),
        version: VERSION.to_string(),
        programs,
        modes: vec![ProofMode::App, ProofMode::Aggregated],
        strength: proof_strength(proven_bits),
    }))
}

/// Runs the program outside the zkVM.
///
/// # Errors
///
/// A refusal by name.
pub fn run_native(work: &StageOptions) -> Result<ProverMessage, StageRefusal> {
    let mut parts = StageTimer::start();
    let guest = Guest::from_name(&work.guest)?;
    let input = read_bounded(&work.input, INPUT_BYTES_MAX, RefusalReason::MalformedInput)?;
    let record = ProgramRecord::for_guest(guest)?;
    parts.record_part("set_up_s");
    let statement = (guest.native)(guest.name, &input)?.encode();
    parts.record_part("execute_s");
    write_atomically(&work.out, &statement)?;
    Ok(ProverMessage::Result(StageResult {
        stage: Stage::Native,
        program_digest: record.program_digest,
        public_values: Digest(Sha256::digest(&statement).into()),
        cycles: None,
        segments: None,
        mode: None,
        strength: None,
        parts: parts.into_seconds(),
    }))
}

/// Runs the program in the executor.
///
/// # Errors
///
/// A refusal by name.
pub fn emulate(work: &StageOptions) -> Result<ProverMessage, StageRefusal> {
    let mut parts = StageTimer::start();
    let (_, record, _, plan) = execute_and_plan(work, &mut parts)?;
    choose_fan_in(work, &plan)?;
    Ok(ProverMessage::Result(StageResult {
        stage: Stage::Emulate,
        program_digest: record.program_digest,
        public_values: Digest(plan.public_values),
        cycles: Some(plan.cycles),
        segments: Some(plan.loads.len() as u32),
        mode: None,
        strength: None,
        parts: parts.into_seconds(),
    }))
}

/// Runs the program in the executor, then proves the run.
///
/// # Errors
///
/// A refusal by name.
pub fn prove(work: &StageOptions) -> Result<ProverMessage, StageRefusal> {
    let mut parts = StageTimer::start();
    let (guest, record, machine, plan) = execute_and_plan(work, &mut parts)?;
    let fan_in = choose_fan_in(work, &plan)?;
    let input = read_bounded(&work.input, INPUT_BYTES_MAX, RefusalReason::MalformedInput)?;
    let (cycles, segments) = (plan.cycles, plan.loads.len() as u32);
    let public_values = Digest(plan.public_values);
    let prover = machine.into_prover()?;
    if prover.program_commitment() != record.program_commitment() {
        return Err(StageRefusal::new(
            RefusalReason::Fault,
            "keys are not of this program: make zkvm-keys",
        ));
    }
    parts.record_part("commit_s");
    let proof = prover.prove(plan, &input, &mut print_step)?;
    parts.record_part("prove_s");
    let body = match work.mode {
        ProofMode::App => proof.encode()?,
        ProofMode::Aggregated => {
            let body = aggregate(proof, fan_in, &mut print_step)?;
            parts.record_part("aggregate_s");
            body
        }
    };
    write_atomically(&work.out, &body)?;
    let bits = records::decode_keys(guest)?.proven_bits(work.mode == ProofMode::Aggregated);
    Ok(ProverMessage::Result(StageResult {
        stage: Stage::Prove,
        program_digest: record.program_digest,
        public_values,
        cycles: Some(cycles),
        segments: Some(segments),
        mode: Some(work.mode),
        strength: Some(proof_strength(bits)),
        parts: parts.into_seconds(),
    }))
}

/// Checks a proof with the keys that are built in.
///
/// # Errors
///
/// A refusal by name: the proof does not hold.
pub fn check_proof(work: &StageOptions) -> Result<ProverMessage, StageRefusal> {
    let mut parts = StageTimer::start();
    let guest = Guest::from_name(&work.guest)?;
    let body = read_bounded(&work.proof, BODY_BYTES_MAX, RefusalReason::MalformedProof)?;
    let record = ProgramRecord::for_guest(guest)?;
    let keys = records::decode_keys(guest)?;
    parts.record_part("set_up_s");
    let aggregated = work.mode == ProofMode::Aggregated;
    let check = if aggregated { check_aggregated } else { check_segments };
    let checked = check(&body, &keys, guest.blueprint, &record.program_commitment())
        .map_err(|rejection| refusal_of_rejection(rejection, &body, &record))?;
    parts.record_part("check_s");
    Ok(ProverMessage::Result(StageResult {
        stage: Stage::Check,
        program_digest: record.program_digest,
        public_values: Digest(checked.public_values),
        cycles: None,
        segments: checked.segments,
        mode: Some(work.mode),
        strength: Some(proof_strength(keys.proven_bits(aggregated))),
        parts: parts.into_seconds(),
    }))
}

/// A proof that names another machine is of another program if it names one of ours; else its
/// parameters are not ours.
fn refusal_of_rejection(rejection: Rejection, body: &[u8], asked: &ProgramRecord) -> StageRefusal {
    let executable = declared_digests(body).map(|(_, executable)| Digest(executable));
    let others = GUESTS.iter().filter_map(|guest| ProgramRecord::for_guest(guest).ok());
    let mut others = others.filter(|record| record.executable != asked.executable);
    if rejection == Rejection::Parameters
        && others.any(|record| Some(record.executable) == executable)
    {
        return Rejection::AnotherProgram.into();
    }
    rejection.into()
}

/// Said before anything is proved: what the proofs are joined with later needs memory too.
fn choose_fan_in(work: &StageOptions, plan: &SegmentPlan) -> Result<FanIn, Fault> {
    match work.mode {
        ProofMode::App => Ok(FanIn::MOST),
        ProofMode::Aggregated => joins::greatest_fan_in(work.memory, plan.loads.len()),
    }
}

/// What is named as the least has to suffice for the joins too.
fn include_join_memory(fault: Fault, mode: ProofMode) -> Fault {
    match (fault, mode) {
        (Fault::Memory { needed, given }, ProofMode::Aggregated) => {
            Fault::Memory { needed: needed.max(joins::LEAST_BYTES), given }
        }
        (fault, _) => fault,
    }
}

type PlannedRun = (&'static Guest, ProgramRecord, Machine, SegmentPlan);

fn execute_and_plan(
    work: &StageOptions,
    parts: &mut StageTimer,
) -> Result<PlannedRun, StageRefusal> {
    let guest = Guest::from_name(&work.guest)?;
    let record = ProgramRecord::for_guest(guest)?;
    let input = read_bounded(&work.input, INPUT_BYTES_MAX, RefusalReason::MalformedInput)?;
    print_progress(Phase::SetUp, 0, Some(1));
    let program = Program::load(guest.elf, guest.blueprint)?;
    let machine = Machine::new(&program)?;
    parts.record_part("set_up_s");
    print_progress(Phase::Execute, 0, Some(1));
    machine.run(&input)?;
    parts.record_part("execute_s");
    let plan = machine
        .plan_segments(&input, work.memory)
        .map_err(|fault| include_join_memory(fault, work.mode))?;
    parts.record_part("plan_s");
    Ok((guest, record, machine, plan))
}

/// The back end proves what it claims: its parameters lie within proven bounds, so nothing more is
/// conjectured. Its proofs are succinct, not zero-knowledge.
fn proof_strength(proven_bits: u32) -> ProofStrength {
    ProofStrength { proven_bits, conjectured_bits: proven_bits, zero_knowledge: false }
}

fn read_bounded(path: &Path, most: usize, why: RefusalReason) -> Result<Vec<u8>, StageRefusal> {
    let file = fs::File::open(path).map_err(|e| StageRefusal::new(RefusalReason::Fault, e))?;
    let mut bytes = Vec::new();
    file.take(most as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|e| StageRefusal::new(RefusalReason::Fault, e))?;
    if bytes.len() > most {
        return Err(StageRefusal::new(why, format!("file is too long: at most {most} bytes")));
    }
    Ok(bytes)
}

/// Writes a file under another name and renames it: what stands under `path` is whole.
fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), StageRefusal> {
    let mut part = path.as_os_str().to_owned();
    part.push(format!(".part-{}", std::process::id()));
    let part = std::path::PathBuf::from(part);
    let written = fs::File::create(&part)
        .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&part, path));
    written.map_err(|e| {
        let _ = fs::remove_file(&part);
        StageRefusal::new(RefusalReason::Fault, e)
    })
}
