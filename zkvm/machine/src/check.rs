//! Checking. What the back end's own functions leave open is closed here: which program it is, that
//! the segments are all there, and that public values are bytes.

use openvm_circuit::arch::{
    PROGRAM_AIR_ID, PROGRAM_CACHED_TRACE_INDEX, VmVerificationError,
    hasher::poseidon2::vm_poseidon2_hasher, verify_segments,
};
use openvm_stark_backend::{StarkEngine, p3_field::PrimeField32, proof::Proof};
use openvm_verify_stark_host::{
    VmStarkProof,
    error::VerifyStarkError,
    verify_vm_stark_proof_decoded,
    vk::{VerificationBaseline, VmStarkVerifyingKey},
};

use crate::{
    app_key::memory_dimensions,
    backend::{Digest, Engine, F, PUBLIC_VALUES_BYTES, SC},
    config::Blueprint,
    error::Rejection,
    keys::VerifyingKeys,
    program::{ProgramCommitment, digest_to_bytes},
    wire::{ProofBody, PublicValues},
};

/// The result of a check that passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckedProof {
    /// The public values that the program revealed.
    pub public_values: [u8; PUBLIC_VALUES_BYTES],
    /// Number of segments, where the proof shows them.
    pub segments: Option<u32>,
}

/// Checks the proofs of all segments of a run of `program`: each holds, each starts where the one before it stopped
/// (program counter and memory root), the first starts as the program does, only the last ends it, with status 0, and
/// the public values lie in the last one's memory.
///
/// # Errors
///
/// [`Rejection`], by the first thing that is wrong.
pub fn check_segments(
    bytes: &[u8],
    keys: &VerifyingKeys,
    blueprint: Blueprint,
    program: &ProgramCommitment,
) -> Result<CheckedProof, Rejection> {
    let body = decode_for_program(bytes, false, keys, program)?;
    for proof in &body.proofs {
        let instructions = instructions_commitment(proof).ok_or(Rejection::Malformed("a table"))?;
        if digest_to_bytes(&instructions) != program.instructions {
            return Err(Rejection::AnotherProgram);
        }
    }
    let engine: Engine = Engine::new(keys.app.inner.params.clone());
    let run = verify_segments(&engine, &keys.app, &body.proofs).map_err(app_rejection)?;
    if digest_to_bytes(&run.exe_commit) != program.executable {
        // The instructions are the program's: so memory or entry point are not those it starts with.
        return Err(Rejection::Segments("the first one does not start the program"));
    }
    let public_values = public_value_bytes(&body.public_values)?;
    body.public_values
        .verify(&vm_poseidon2_hasher(), memory_dimensions(blueprint), run.final_memory_root)
        .map_err(|_| Rejection::PublicValues)?;
    Ok(CheckedProof { public_values, segments: Some(body.proofs.len() as u32) })
}

/// Checks an aggregated proof of a run of `program`. That segments connect is part of what it proves.
///
/// # Errors
///
/// [`Rejection`], by the first thing that is wrong.
pub fn check_aggregated(
    bytes: &[u8],
    keys: &VerifyingKeys,
    blueprint: Blueprint,
    program: &ProgramCommitment,
) -> Result<CheckedProof, Rejection> {
    let mut body = decode_for_program(bytes, true, keys, program)?;
    let public_values = public_value_bytes(&body.public_values)?;
    let proof = VmStarkProof {
        inner: body.proofs.remove(0),
        user_pvs_proof: body.public_values,
        deferral_merkle_proofs: None,
    };
    let key = VmStarkVerifyingKey {
        mvk: keys.aggregated.clone(),
        baseline: VerificationBaseline {
            app_exe_commit: digest_from_bytes(&program.executable),
            memory_dimensions: memory_dimensions(blueprint),
            num_user_pvs: PUBLIC_VALUES_BYTES,
            app_vk_commit: keys.lineage.app,
            leaf_vk_commit: keys.lineage.leaf,
            internal_for_leaf_vk_commit: keys.lineage.internal_for_leaf,
            internal_recursive_vk_commit: keys.lineage.internal_recursive,
            expected_def_hook_commit: None,
        },
    };
    verify_vm_stark_proof_decoded(&key, &proof).map_err(aggregated_rejection)?;
    Ok(CheckedProof { public_values, segments: None })
}

fn decode_for_program(
    bytes: &[u8],
    aggregated: bool,
    keys: &VerifyingKeys,
    program: &ProgramCommitment,
) -> Result<ProofBody, Rejection> {
    let body = ProofBody::decode(bytes, aggregated)?;
    if body.machine != keys.machine_digest() {
        return Err(Rejection::Parameters);
    }
    if body.executable != program.executable {
        return Err(Rejection::AnotherProgram);
    }
    Ok(body)
}

/// The commitment to the instructions that a segment ran.
fn instructions_commitment(proof: &Proof<SC>) -> Option<Digest> {
    let table = proof.trace_vdata.get(PROGRAM_AIR_ID)?.as_ref()?;
    table.cached_commitments.get(PROGRAM_CACHED_TRACE_INDEX).copied()
}

/// Reads public values as bytes. Each is a field element; one above 255 is not a byte of a digest.
fn public_value_bytes(values: &PublicValues) -> Result<[u8; PUBLIC_VALUES_BYTES], Rejection> {
    let mut bytes = [0; PUBLIC_VALUES_BYTES];
    if values.public_values.len() != bytes.len() {
        return Err(Rejection::PublicValues);
    }
    for (byte, value) in bytes.iter_mut().zip(&values.public_values) {
        *byte = u8::try_from(value.as_canonical_u32()).map_err(|_| Rejection::PublicValues)?;
    }
    Ok(bytes)
}

fn app_rejection(error: VmVerificationError<SC>) -> Rejection {
    use VmVerificationError as E;
    match error {
        E::ProgramCommitMismatch { .. } | E::ExeCommitMismatch { .. } => Rejection::AnotherProgram,
        E::ProofNotFound => Rejection::Segments("there is none"),
        E::InitialPcMismatch { .. } => Rejection::Segments("program counter"),
        E::InitialMemoryRootMismatch => Rejection::Segments("memory"),
        E::IsTerminateMismatch { .. } => Rejection::Segments("the end of the run"),
        E::ExitCodeMismatch { .. } => Rejection::Segments("status at the end"),
        E::UserPublicValuesError(_) => Rejection::PublicValues,
        other => Rejection::Unsound(other.to_string()),
    }
}

fn aggregated_rejection(error: VerifyStarkError) -> Rejection {
    use VerifyStarkError as E;
    match error {
        E::AppExeCommitMismatch { .. } => Rejection::AnotherProgram,
        E::UserPvsVerificationFailure(_) | E::UserPvsLengthMismatch { .. } => {
            Rejection::PublicValues
        }
        E::ExecutionUnsuccessful(_) => Rejection::Segments("status at the end"),
        E::AppVkCachedCommitMismatch { .. }
        | E::AppVkPreHashMismatch { .. }
        | E::LeafVkCachedCommitMismatch { .. }
        | E::LeafVkPreHashMismatch { .. }
        | E::InternalForLeafVkCachedCommitMismatch { .. }
        | E::InternalForLeafVkPreHashMismatch { .. }
        | E::InternalRecursiveVkCachedCommitMismatch { .. }
        | E::InternalRecursiveVkPreHashMismatch { .. }
        | E::ProofCachedCommitMismatch { .. } => Rejection::Parameters,
        other => Rejection::Unsound(other.to_string()),
    }
}

/// Reads the field elements of a commitment. Bytes that are none give zeros, which no program
/// commits to.
fn digest_from_bytes(bytes: &[u8; 32]) -> Digest {
    let mut digest = Digest::default();
    for (limb, four) in digest.iter_mut().zip(bytes.chunks_exact(4)) {
        let value = u32::from_le_bytes([four[0], four[1], four[2], four[3]]);
        if value < F::ORDER_U32 {
            *limb = openvm_stark_backend::p3_field::PrimeCharacteristicRing::from_u32(value);
        }
    }
    digest
}
