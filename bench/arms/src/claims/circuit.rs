//! Statements over bytes that stay hidden.

use confide_arm_line::Outcome;
use confide_circuits::{
    Circuit, CircuitKeys, HiddenLeaf, PublicTree, check_contains, check_sha256, prove_contains,
    prove_sha256,
};
use confide_disclosure::{Direction, DirectionCommitment, OpenedLeaf};
use sha2::{Digest, Sha256};

use super::{bytes, method::ClaimMethod};

/// The context to which proofs are bound.
const CONTEXT: [u8; 32] = [3; 32];

/// The claim that a digest is that of some text of 1 KiB.
pub(super) struct PreimageProof {
    message: Vec<u8>,
    digest: [u8; 32],
    proof: Vec<u8>,
}

impl PreimageProof {
    pub(super) fn new() -> Outcome<Self> {
        let message = bytes::sample_text(1024);
        let circuit = Circuit::for_message(message.len())?;
        CircuitKeys::derive_cached(circuit)?;
        Ok(Self { digest: Sha256::digest(&message).into(), message, proof: Vec::new() })
    }
}

impl ClaimMethod for PreimageProof {
    fn describe_disclosure(&self) -> &'static str {
        "the text; its digest and a bound on its length are public (zero-knowledge: yes)"
    }

    fn prove(&mut self) -> Outcome<Option<usize>> {
        let proof = prove_sha256(&self.message, &self.digest, &CONTEXT);
        self.proof = proof?;
        Ok(Some(self.proof.len()))
    }

    fn verify_claim(&mut self) -> Outcome {
        let header = check_sha256(&self.proof, &self.digest, &CONTEXT);
        Ok(header.map(drop)?)
    }

    fn repetitions(&self) -> u32 {
        1
    }
}

/// The claim that one leaf of 1,024 contains some bytes.
pub(super) struct ContainsProof {
    leaf: OpenedLeaf,
    siblings: Vec<[u8; 32]>,
    commitment: DirectionCommitment,
    proof: Vec<u8>,
}

impl ContainsProof {
    pub(super) fn new() -> Outcome<Self> {
        let committed = bytes::commit_transcript()?;
        let (leaf, siblings) = committed.witness(17).ok_or("no leaf 17")?;
        let commitment = committed.commitment();
        let circuit = Circuit::for_tree(commitment.depth)?;
        CircuitKeys::derive_cached(circuit)?;
        Ok(Self { leaf, siblings, commitment, proof: Vec::new() })
    }

    fn tree(&self) -> PublicTree<'_> {
        let DirectionCommitment { root, depth, .. } = &self.commitment;
        PublicTree { root, depth: *depth, direction: Direction::Response.byte() }
    }

    fn needle(&self) -> &[u8] {
        &self.leaf.chunk[20..32]
    }
}

impl ClaimMethod for ContainsProof {
    fn describe_disclosure(&self) -> &'static str {
        "which leaf it is and its other bytes; root and found bytes are public (zero-knowledge: yes)"
    }

    fn prove(&mut self) -> Outcome<Option<usize>> {
        let OpenedLeaf { index, salt, chunk } = &self.leaf;
        let leaf = HiddenLeaf { index: *index, salt, chunk, siblings: &self.siblings };
        let proof = prove_contains(&leaf, &self.tree(), self.needle(), &CONTEXT);
        self.proof = proof?;
        Ok(Some(self.proof.len()))
    }

    fn verify_claim(&mut self) -> Outcome {
        let header = check_contains(&self.proof, &self.tree(), self.needle(), &CONTEXT);
        Ok(header.map(drop)?)
    }

    fn repetitions(&self) -> u32 {
        1
    }
}
