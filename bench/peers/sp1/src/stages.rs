//! The four stages on SP1.

use std::{collections::BTreeMap, fs, path::Path, time::Instant};

use confide_guest_programs::host;
use confide_prover::line::{
    Description, Digest, Line, Mode, PROTOCOL, Program, RefusalReason, Stage, StageResult, Strength,
};
use sha2::{Digest as _, Sha256};
use sp1_sdk::{
    Elf, SP1Proof, SP1ProofWithPublicValues, SP1Stdin,
    blocking::{CpuProver, LightProver, ProveRequest, Prover},
};

use crate::{
    memory,
    work::{StageRefusal, Work},
};

/// The program: `guest/build.sh` makes it.
const ELF: &[u8] = include_bytes!("../guest/sort.elf");

/// The only guest.
const GUEST: &str = "sort";

/// The `sp1-sdk` of the lock file.
const VERSION: &str = "6.10.0";

/// What SP1's makers claim proven for its core proofs, unchanged since 6.1.0 (soundcalc, May 2026);
/// nothing more is conjectured. Core proofs are succinct, not zero-knowledge.
const STRENGTH: Strength =
    Strength { proven_bits: 100, conjectured_bits: 100, zero_knowledge: false };

pub(crate) fn describe() -> Line {
    Line::Description(Description {
        protocol: PROTOCOL,
        backend: "sp1".to_string(),
        version: VERSION.to_string(),
        programs: vec![Program {
            claim: GUEST.to_string(),
            program_digest: program(),
            elf_sha256: program(),
        }],
        modes: vec![Mode::App],
        strength: STRENGTH,
    })
}

pub(crate) fn native(work: &Work) -> Result<Line, StageRefusal> {
    let (_, statement) = input(work)?;
    fs::write(&work.out, &statement).map_err(fault)?;
    Ok(Line::Result(make_result(Stage::Native, digest(&statement))))
}

pub(crate) fn emulate(work: &Work) -> Result<Line, StageRefusal> {
    let mut parts = Parts::start();
    let (input, statement) = input(work)?;
    let prover = LightProver::new();
    parts.end("start_s");
    let (public_values, cycles) = execute(&prover, &input)?;
    parts.end("execute_s");
    check_statement(&statement, &public_values)?;
    let result = make_result(Stage::Emulate, digest(&public_values));
    Ok(Line::Result(StageResult { cycles: Some(cycles), parts: parts.0, ..result }))
}

pub(crate) fn prove(work: &Work) -> Result<Line, StageRefusal> {
    let mut parts = Parts::start();
    check_mode(work.mode)?;
    let (input, statement) = input(work)?;
    memory::check_available()?;
    let client = CpuProver::new();
    parts.end("start_s");
    let key = client.setup(Elf::Static(ELF)).map_err(fault)?;
    parts.end("set_up_s");
    let (_, cycles) = execute(&client, &input)?;
    parts.end("execute_s");
    let proof = client.prove(&key, stdin(&input)).core().run().map_err(fault)?;
    parts.end("prove_s");
    check_statement(&statement, proof.public_values.as_slice())?;
    proof.save(&work.out).map_err(fault)?;
    let result = make_result(Stage::Prove, digest(&statement));
    Ok(Line::Result(StageResult {
        cycles: Some(cycles),
        segments: count_shards(&proof),
        mode: Some(Mode::App),
        strength: Some(STRENGTH),
        parts: parts.0,
        ..result
    }))
}

pub(crate) fn check(work: &Work) -> Result<Line, StageRefusal> {
    let mut parts = Parts::start();
    check_guest(work)?;
    check_mode(work.mode)?;
    let proof = SP1ProofWithPublicValues::load(&work.proof)
        .map_err(|error| StageRefusal::new(RefusalReason::MalformedProof, error))?;
    let segments = count_shards(&proof);
    if segments.is_none() {
        return Err(StageRefusal::new(RefusalReason::MalformedProof, "wanted a core proof"));
    }
    let prover = LightProver::new();
    parts.end("start_s");
    let key = prover.setup(Elf::Static(ELF)).map_err(fault)?;
    parts.end("set_up_s");
    prover
        .verify(&proof, sp1_sdk::ProvingKey::verifying_key(&key), None)
        .map_err(|error| StageRefusal::new(RefusalReason::Unsound, error))?;
    parts.end("check_s");
    let result = make_result(Stage::Check, digest(proof.public_values.as_slice()));
    Ok(Line::Result(StageResult {
        segments,
        mode: Some(Mode::App),
        strength: Some(STRENGTH),
        parts: parts.0,
        ..result
    }))
}

/// The input, and the statement that our own native run gives for it.
fn input(work: &Work) -> Result<(Vec<u8>, Vec<u8>), StageRefusal> {
    check_guest(work)?;
    let input = read(&work.input)?;
    let run = host::run(GUEST, &input).ok_or_else(|| fault("native has no such program"))?;
    let statement = run.map_err(|error| StageRefusal::new(RefusalReason::ClaimRefused, error))?;
    Ok((input, statement.encode()))
}

fn check_guest(work: &Work) -> Result<(), StageRefusal> {
    match work.guest.as_str() {
        GUEST => Ok(()),
        other => Err(StageRefusal::new(
            RefusalReason::UnknownGuest,
            format!("guest: wanted {GUEST}, the only one for SP1, got {other}"),
        )),
    }
}

fn check_mode(mode: Mode) -> Result<(), StageRefusal> {
    match mode {
        Mode::App => Ok(()),
        other => Err(fault(format!("mode: wanted app, the only one for SP1, got {other}"))),
    }
}

/// Runs the program in SP1's executor; gives what it committed and the number of its instructions.
fn execute(prover: &impl Prover, input: &[u8]) -> Result<(Vec<u8>, u64), StageRefusal> {
    // SP1 counts instructions only where it also calculates gas.
    let request = prover.execute(Elf::Static(ELF), stdin(input)).calculate_gas(true);
    let (public_values, report) = request.run().map_err(fault)?;
    match report.exit_code {
        0 => Ok((public_values.as_slice().to_vec(), report.total_instruction_count())),
        status => Err(StageRefusal::new(
            RefusalReason::ClaimRefused,
            format!("the program ended with {status}"),
        )),
    }
}

fn stdin(input: &[u8]) -> SP1Stdin {
    SP1Stdin::from(input)
}

/// Refuses a run of SP1 that committed to another statement than our native run.
fn check_statement(statement: &[u8], public_values: &[u8]) -> Result<(), StageRefusal> {
    if statement == public_values {
        return Ok(());
    }
    Err(StageRefusal::new(
        RefusalReason::PublicValues,
        "SP1's run gave another statement than the native run",
    ))
}

fn count_shards(proof: &SP1ProofWithPublicValues) -> Option<u32> {
    match &proof.proof {
        SP1Proof::Core(shards) => u32::try_from(shards.len()).ok(),
        _ => None,
    }
}

fn make_result(stage: Stage, public_values: Digest) -> StageResult {
    StageResult {
        stage,
        program_digest: program(),
        public_values,
        cycles: None,
        segments: None,
        mode: None,
        strength: None,
        parts: BTreeMap::new(),
    }
}

/// The program is named by its file here; SP1's verifying key is made from it in every check.
fn program() -> Digest {
    digest(ELF)
}

fn digest(bytes: &[u8]) -> Digest {
    Digest(Sha256::digest(bytes).into())
}

fn read(path: &Path) -> Result<Vec<u8>, StageRefusal> {
    let bytes = fs::read(path).map_err(fault)?;
    if bytes.len() > confide_prover::INPUT_BYTES_MAX {
        return Err(StageRefusal::new(RefusalReason::MalformedInput, "input is too long"));
    }
    Ok(bytes)
}

fn fault(reason: impl std::fmt::Display) -> StageRefusal {
    StageRefusal::new(RefusalReason::Fault, reason)
}

/// Wall clock of the parts of a stage.
struct Parts(BTreeMap<String, f64>, Instant);

impl Parts {
    fn start() -> Self {
        Self(BTreeMap::new(), Instant::now())
    }

    fn end(&mut self, name: &str) {
        self.0.insert(name.to_string(), self.1.elapsed().as_secs_f64());
        self.1 = Instant::now();
    }
}
