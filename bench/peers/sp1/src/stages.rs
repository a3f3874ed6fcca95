//! The four stages on SP1.

use std::{collections::BTreeMap, fs, path::Path, time::Instant};

use confide_guest_programs::host;
use confide_prover::line::{
    Digest, PROTOCOL, ProgramDescription, ProofMode, ProofStrength, ProverDescription,
    ProverMessage, RefusalReason, Stage, StageResult,
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
const STRENGTH: ProofStrength =
    ProofStrength { proven_bits: 100, conjectured_bits: 100, zero_knowledge: false };

pub(crate) fn describe() -> ProverMessage {
    ProverMessage::Description(ProverDescription {
        protocol: PROTOCOL,
        backend: "sp1".to_string(),
        version: VERSION.to_string(),
        programs: vec![ProgramDescription {
            claim: GUEST.to_string(),
            program_digest: program_digest(),
            elf_sha256: program_digest(),
        }],
        modes: vec![ProofMode::App],
        strength: STRENGTH,
    })
}

pub(crate) fn run_native(work: &Work) -> Result<ProverMessage, StageRefusal> {
    let (_, statement) = read_input(work)?;
    fs::write(&work.out, &statement).map_err(internal_fault)?;
    Ok(ProverMessage::Result(make_result(Stage::Native, sha256_digest(&statement))))
}

pub(crate) fn emulate(work: &Work) -> Result<ProverMessage, StageRefusal> {
    let mut parts = StageDurations::start();
    let (input, statement) = read_input(work)?;
    let prover = LightProver::new();
    parts.record_part("start_s");
    let (public_values, cycles) = execute(&prover, &input)?;
    parts.record_part("execute_s");
    check_statement(&statement, &public_values)?;
    let result = make_result(Stage::Emulate, sha256_digest(&public_values));
    Ok(ProverMessage::Result(StageResult { cycles: Some(cycles), parts: parts.0, ..result }))
}

pub(crate) fn prove(work: &Work) -> Result<ProverMessage, StageRefusal> {
    let mut parts = StageDurations::start();
    check_mode(work.mode)?;
    let (input, statement) = read_input(work)?;
    memory::check_available()?;
    let client = CpuProver::new();
    parts.record_part("start_s");
    let key = client.setup(Elf::Static(ELF)).map_err(internal_fault)?;
    parts.record_part("set_up_s");
    let (_, cycles) = execute(&client, &input)?;
    parts.record_part("execute_s");
    let proof = client.prove(&key, stdin(&input)).core().run().map_err(internal_fault)?;
    parts.record_part("prove_s");
    check_statement(&statement, proof.public_values.as_slice())?;
    proof.save(&work.out).map_err(internal_fault)?;
    let result = make_result(Stage::Prove, sha256_digest(&statement));
    Ok(ProverMessage::Result(StageResult {
        cycles: Some(cycles),
        segments: count_shards(&proof),
        mode: Some(ProofMode::App),
        strength: Some(STRENGTH),
        parts: parts.0,
        ..result
    }))
}

pub(crate) fn verify_proof(work: &Work) -> Result<ProverMessage, StageRefusal> {
    let mut parts = StageDurations::start();
    check_guest(work)?;
    check_mode(work.mode)?;
    let proof = SP1ProofWithPublicValues::load(&work.proof)
        .map_err(|error| StageRefusal::new(RefusalReason::MalformedProof, error))?;
    let segments = count_shards(&proof);
    if segments.is_none() {
        return Err(StageRefusal::new(RefusalReason::MalformedProof, "wanted a core proof"));
    }
    let prover = LightProver::new();
    parts.record_part("start_s");
    let key = prover.setup(Elf::Static(ELF)).map_err(internal_fault)?;
    parts.record_part("set_up_s");
    prover
        .verify(&proof, sp1_sdk::ProvingKey::verifying_key(&key), None)
        .map_err(|error| StageRefusal::new(RefusalReason::Unsound, error))?;
    parts.record_part("check_s");
    let result = make_result(Stage::Check, sha256_digest(proof.public_values.as_slice()));
    Ok(ProverMessage::Result(StageResult {
        segments,
        mode: Some(ProofMode::App),
        strength: Some(STRENGTH),
        parts: parts.0,
        ..result
    }))
}

/// The input, and the statement that our own native run gives for it.
fn read_input(work: &Work) -> Result<(Vec<u8>, Vec<u8>), StageRefusal> {
    check_guest(work)?;
    let input = read_bounded(&work.input)?;
    let run =
        host::run(GUEST, &input).ok_or_else(|| internal_fault("native has no such program"))?;
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

fn check_mode(mode: ProofMode) -> Result<(), StageRefusal> {
    match mode {
        ProofMode::App => Ok(()),
        other => {
            Err(internal_fault(format!("mode: wanted app, the only one for SP1, got {other}")))
        }
    }
}

/// Runs the program in SP1's executor; gives what it committed and the number of its instructions.
fn execute(prover: &impl Prover, input: &[u8]) -> Result<(Vec<u8>, u64), StageRefusal> {
    // SP1 counts instructions only where it also calculates gas.
    let request = prover.execute(Elf::Static(ELF), stdin(input)).calculate_gas(true);
    let (public_values, report) = request.run().map_err(internal_fault)?;
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
        program_digest: program_digest(),
        public_values,
        cycles: None,
        segments: None,
        mode: None,
        strength: None,
        parts: BTreeMap::new(),
    }
}

/// The program is named by its file here; SP1's verifying key is made from it in every check.
fn program_digest() -> Digest {
    sha256_digest(ELF)
}

fn sha256_digest(bytes: &[u8]) -> Digest {
    Digest(Sha256::digest(bytes).into())
}

fn read_bounded(path: &Path) -> Result<Vec<u8>, StageRefusal> {
    let bytes = fs::read(path).map_err(internal_fault)?;
    if bytes.len() > confide_prover::INPUT_BYTES_MAX {
        return Err(StageRefusal::new(RefusalReason::MalformedInput, "input is too long"));
    }
    Ok(bytes)
}

fn internal_fault(reason: impl std::fmt::Display) -> StageRefusal {
    StageRefusal::new(RefusalReason::Fault, reason)
}

/// Wall clock of the parts of a stage.
struct StageDurations(BTreeMap<String, f64>, Instant);

impl StageDurations {
    fn start() -> Self {
        Self(BTreeMap::new(), Instant::now())
    }

    fn record_part(&mut self, name: &str) {
        self.0.insert(name.to_string(), self.1.elapsed().as_secs_f64());
        self.1 = Instant::now();
    }
}
