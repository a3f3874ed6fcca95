//! The bytes of a proof's body.
//!
//! ```text
//! tag (16) | machine (32) | executable (32) | count u32 | count x (length u32 | proof)
//!          | length u32 | public values with their path
//! ```
//!
//! Integers are little-endian. Proofs and public values are in the back end's own encoding. `count` is the number
//! of segments; 1 in an aggregated proof. Machine and executable only name what the maker says it is, so that a
//! refusal can be named; the proof itself decides.

use std::io::Cursor;

use openvm_circuit::system::memory::merkle::public_values::UserPublicValuesProof;
use openvm_stark_backend::{
    codec::{Decode, Encode},
    proof::Proof,
};
use openvm_stark_sdk::config::baby_bear_poseidon2::DIGEST_SIZE;

use crate::{
    backend::{F, SC},
    error::Rejection,
};

/// The longest body: that of a proof file (`confide_prover::BODY_BYTES_MAX`, with which the binary compares
/// it when it is built).
pub const BODY_BYTES_MAX: usize = 64 << 20;
/// The largest number of segments of a proof: none was measured at less than 256 KiB.
pub const SEGMENTS_MAX: usize = BODY_BYTES_MAX >> 18;
const TAG_BYTES: usize = 16;
const APP: &[u8; TAG_BYTES] = b"openvm2 app v1\0\0";
const AGGREGATED: &[u8; TAG_BYTES] = b"openvm2 aggr v1\0";

/// Reads what a body says that it is of: machine and executable. Nothing of it is checked.
pub fn declared_digests(bytes: &[u8]) -> Option<([u8; 32], [u8; 32])> {
    let mut rest = bytes;
    take_bytes(&mut rest, TAG_BYTES).ok()?;
    Some((take_32(&mut rest).ok()?, take_32(&mut rest).ok()?))
}

pub(crate) type PublicValues = UserPublicValuesProof<DIGEST_SIZE, F>;

/// A body, taken apart.
#[derive(Clone)]
pub(crate) struct ProofBody {
    pub aggregated: bool,
    pub machine: [u8; 32],
    pub executable: [u8; 32],
    pub proofs: Vec<Proof<SC>>,
    pub public_values: PublicValues,
}

impl ProofBody {
    pub fn encode(&self) -> std::io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(if self.aggregated { AGGREGATED } else { APP });
        bytes.extend_from_slice(&self.machine);
        bytes.extend_from_slice(&self.executable);
        self.proofs.len().encode(&mut bytes)?;
        for proof in &self.proofs {
            let proof = proof.encode_to_vec()?;
            proof.len().encode(&mut bytes)?;
            bytes.extend_from_slice(&proof);
        }
        let mut values = Vec::new();
        self.public_values.encode::<SC, _>(&mut values)?;
        values.len().encode(&mut bytes)?;
        bytes.extend_from_slice(&values);
        Ok(bytes)
    }

    /// Reads a body. There is one encoding of each: what does not encode back to the same bytes is refused.
    pub fn decode(bytes: &[u8], aggregated: bool) -> Result<Self, Rejection> {
        if bytes.len() > BODY_BYTES_MAX {
            return Err(Rejection::Malformed("body is too long"));
        }
        let mut rest = bytes;
        let tag = if aggregated { AGGREGATED } else { APP };
        if take_bytes(&mut rest, TAG_BYTES)? != tag {
            return Err(Rejection::Malformed("tag is of another kind or version"));
        }
        let machine = take_32(&mut rest)?;
        let executable = take_32(&mut rest)?;
        let count = take_length(&mut rest)?;
        if count == 0 || count > SEGMENTS_MAX || (aggregated && count != 1) {
            return Err(Rejection::Malformed("number of proofs"));
        }
        let mut proofs = Vec::new();
        for _ in 0..count {
            let length = take_length(&mut rest)?;
            let proof = Proof::<SC>::decode_from_bytes(take_bytes(&mut rest, length)?)
                .map_err(|_| Rejection::Malformed("a segment's encoding"))?;
            proofs.push(proof);
        }
        let length = take_length(&mut rest)?;
        let mut values = Cursor::new(take_bytes(&mut rest, length)?);
        let public_values = PublicValues::decode::<SC, _>(&mut values)
            .map_err(|_| Rejection::Malformed("encoding of the public values"))?;
        let body = Self { aggregated, machine, executable, proofs, public_values };
        match body.encode() {
            Ok(again) if again == bytes => Ok(body),
            _ => Err(Rejection::Malformed("encoding is not the canonical one")),
        }
    }
}

fn take_bytes<'a>(rest: &mut &'a [u8], length: usize) -> Result<&'a [u8], Rejection> {
    let (taken, left) =
        rest.split_at_checked(length).ok_or(Rejection::Malformed("body ends early"))?;
    *rest = left;
    Ok(taken)
}

fn take_32(rest: &mut &[u8]) -> Result<[u8; 32], Rejection> {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(take_bytes(rest, 32)?);
    Ok(bytes)
}

fn take_length(rest: &mut &[u8]) -> Result<usize, Rejection> {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(take_bytes(rest, 4)?);
    Ok(u32::from_le_bytes(bytes) as usize)
}
