//! Makes proofs of statements.

use std::sync::Arc;

use bincode::Options;
use spartan2::{spartan_zk::SpartanPrepZkSNARK, traits::snark::R1CSSNARKTrait};
use zeroize::Zeroizing;

use crate::{
    check::{bincode_options, encode_public_values},
    circuit::ContextCircuit,
    claim::AnyClaim,
    contains::{ContainsClaim, NeedlePosition, SearchedLeaves},
    curve::Curve,
    error::CircuitError,
    field::{FieldClaim, FieldPredicate, FieldWitness},
    hash::HashClaim,
    keys::{BackEnd, CircuitKeys, SECURITY, back_end_error},
    kind::Circuit,
    layout::ProofLayout,
    path::CHUNK_BYTES,
    proof::ProofHeader,
    witness::{HiddenField, HiddenLeaf, PublicTree, check_needle, find_needle, sha256_parts},
};

/// An option of the back end: every value of the witness is below 2^64, on which it then relies.
const VALUES_ARE_SMALL: bool = true;

/// Proves that SHA-256 of `message` is `digest`. Of the message the proof reveals only the
/// circuit's limit on its length.
///
/// # Errors
///
/// As [`PreparedProof::for_sha256`], and as [`PreparedProof::prove`].
pub fn prove_sha256(
    message: &[u8],
    digest: &[u8; 32],
    context: &[u8; 32],
) -> Result<Vec<u8>, CircuitError> {
    PreparedProof::for_sha256(message, digest)?.prove(context)
}

/// Proves that `leaf`, which is under the root of `tree`, contains `needle`. The proof does not
/// reveal the rest of the leaf or its index.
///
/// # Errors
///
/// As [`PreparedProof::for_contains`], and as [`PreparedProof::prove`].
pub fn prove_contains(
    leaf: &HiddenLeaf<'_>,
    tree: &PublicTree<'_>,
    needle: &[u8],
    context: &[u8; 32],
) -> Result<Vec<u8>, CircuitError> {
    PreparedProof::for_contains(leaf, tree, needle)?.prove(context)
}

/// Proves that two neighbouring leaves contain `needle`, which begins in the first of them. The
/// proof does not reveal the rest of the leaves or their indices.
///
/// # Errors
///
/// As [`PreparedProof::for_contains_across`], and as [`PreparedProof::prove`].
pub fn prove_contains_across(
    leaves: &[HiddenLeaf<'_>; 2],
    tree: &PublicTree<'_>,
    needle: &[u8],
    context: &[u8; 32],
) -> Result<Vec<u8>, CircuitError> {
    PreparedProof::for_contains_across(leaves, tree, needle)?.prove(context)
}

/// Proves that the value behind `digest` contains `needle`. Of the rest of the value the proof
/// reveals only the circuit's limit on its length.
///
/// # Errors
///
/// As [`PreparedProof::for_field_contains`], and as [`PreparedProof::prove`].
pub fn prove_field_contains(
    field: &HiddenField<'_>,
    digest: &[u8; 32],
    needle: &[u8],
    context: &[u8; 32],
) -> Result<Vec<u8>, CircuitError> {
    PreparedProof::for_field_contains(field, digest, needle)?.prove(context)
}

/// Proves that SHA-256 of the value behind `digest` is `value_digest`. Of the value the proof
/// reveals only the circuit's limit on its length.
///
/// # Errors
///
/// As [`PreparedProof::for_field_sha256`], and as [`PreparedProof::prove`].
pub fn prove_field_sha256(
    field: &HiddenField<'_>,
    digest: &[u8; 32],
    value_digest: &[u8; 32],
    context: &[u8; 32],
) -> Result<Vec<u8>, CircuitError> {
    PreparedProof::for_field_sha256(field, digest, value_digest)?.prove(context)
}

/// A statement whose hidden part is committed to. The rest of the proof depends on the context.
///
/// It contains the hidden part, which the back end does not erase when it is dropped.
pub struct PreparedProof {
    keys: Arc<CircuitKeys>,
    claim: AnyClaim,
    state: Option<SpartanPrepZkSNARK<Curve>>,
}

impl PreparedProof {
    /// Prepares a proof of [`prove_sha256`].
    ///
    /// # Errors
    ///
    /// [`CircuitError::FalseStatement`] if the witness does not make the statement true;
    /// [`CircuitError::BackEnd`] if the keys cannot be derived; [`CircuitError::Length`] if there
    /// is not a circuit for the length of the message.
    pub fn for_sha256(message: &[u8], digest: &[u8; 32]) -> Result<Self, CircuitError> {
        let circuit = Circuit::for_message(message.len())?;
        if sha256_parts(&[message]) != *digest {
            return Err(CircuitError::FalseStatement { what: "message has another digest" });
        }
        let mut claim = AnyClaim::without_values(circuit)?;
        if let AnyClaim::Hash(HashClaim { message: held, digest: wanted, .. }) = &mut claim {
            *held = Some(Arc::new(Zeroizing::new(message.to_vec())));
            *wanted = *digest;
        }
        Self::new(circuit, claim)
    }

    /// Prepares a proof of [`prove_contains`].
    ///
    /// # Errors
    ///
    /// [`CircuitError::FalseStatement`] if the witness does not make the statement true;
    /// [`CircuitError::BackEnd`] if the keys cannot be derived; [`CircuitError::Depth`] or
    /// [`CircuitError::Length`] if there is no circuit for the tree or the needle.
    pub fn for_contains(
        leaf: &HiddenLeaf<'_>,
        tree: &PublicTree<'_>,
        needle: &[u8],
    ) -> Result<Self, CircuitError> {
        let circuit = Circuit::for_tree(tree.depth)?;
        Self::for_leaves(circuit, SearchedLeaves::Single, &[*leaf], tree, needle)
    }

    /// Prepares a proof of [`prove_contains_across`].
    ///
    /// # Errors
    ///
    /// [`CircuitError::FalseStatement`] if the witness does not make the statement true;
    /// [`CircuitError::BackEnd`] if the keys cannot be derived; [`CircuitError::Depth`] or
    /// [`CircuitError::Length`] if there is no circuit for the tree or the needle.
    pub fn for_contains_across(
        leaves: &[HiddenLeaf<'_>; 2],
        tree: &PublicTree<'_>,
        needle: &[u8],
    ) -> Result<Self, CircuitError> {
        let circuit = Circuit::for_neighbours(tree.depth)?;
        let [first, second] = leaves;
        if first.index.checked_add(1) != Some(second.index) {
            return Err(CircuitError::FalseStatement { what: "leaves are not neighbours" });
        }
        Self::for_leaves(circuit, SearchedLeaves::Neighbours, leaves, tree, needle)
    }

    /// Prepares a proof of [`prove_field_contains`].
    ///
    /// # Errors
    ///
    /// [`CircuitError::FalseStatement`] if the witness does not make the statement true;
    /// [`CircuitError::BackEnd`] if the keys cannot be derived; [`CircuitError::Length`] if there
    /// is not a circuit for the value or the needle.
    pub fn for_field_contains(
        field: &HiddenField<'_>,
        digest: &[u8; 32],
        needle: &[u8],
    ) -> Result<Self, CircuitError> {
        let circuit = Circuit::for_field_text(field.value.len())?;
        check_needle(needle)?;
        let at = find_needle(field.value, needle);
        let at =
            at.ok_or(CircuitError::FalseStatement { what: "value does not contain the bytes" })?;
        Self::for_field(circuit, field, digest, FieldPredicate::Contains(needle.to_vec()), at)
    }

    /// Prepares a proof of [`prove_field_sha256`].
    ///
    /// # Errors
    ///
    /// [`CircuitError::FalseStatement`] if the witness does not make the statement true;
    /// [`CircuitError::BackEnd`] if the keys cannot be derived; [`CircuitError::Length`] if there
    /// is not a circuit for the length of the value.
    pub fn for_field_sha256(
        field: &HiddenField<'_>,
        digest: &[u8; 32],
        value_digest: &[u8; 32],
    ) -> Result<Self, CircuitError> {
        let circuit = Circuit::for_field_digest(field.value.len())?;
        if sha256_parts(&[field.value]) != *value_digest {
            return Err(CircuitError::FalseStatement { what: "value has another digest" });
        }
        Self::for_field(circuit, field, digest, FieldPredicate::Sha256(*value_digest), 0)
    }

    fn for_leaves(
        circuit: Circuit,
        leaves: SearchedLeaves,
        given: &[HiddenLeaf<'_>],
        tree: &PublicTree<'_>,
        needle: &[u8],
    ) -> Result<Self, CircuitError> {
        check_needle(needle)?;
        let paths: Result<Vec<_>, _> = given.iter().map(|leaf| leaf.to_leaf_path(tree)).collect();
        // Only a full chunk continues in the next leaf.
        let mut chunks = Zeroizing::new(Vec::new());
        for leaf in given {
            chunks.extend_from_slice(leaf.chunk);
            if leaf.chunk.len() < CHUNK_BYTES {
                break;
            }
        }
        let at = find_needle(&chunks, needle).filter(|at| *at < CHUNK_BYTES as u32);
        let untrue = CircuitError::FalseStatement { what: "leaf does not contain the bytes" };
        let place = NeedlePosition { leaves: paths?, at: at.ok_or(untrue)? };
        let claim = ContainsClaim {
            depth: tree.depth,
            leaves,
            place: Some(Arc::new(place)),
            direction: tree.direction,
            root: *tree.root,
            needle: needle.to_vec(),
        };
        Self::new(circuit, AnyClaim::Contains(claim))
    }

    fn for_field(
        circuit: Circuit,
        field: &HiddenField<'_>,
        digest: &[u8; 32],
        predicate: FieldPredicate,
        at: u32,
    ) -> Result<Self, CircuitError> {
        if field.digest() != *digest {
            return Err(CircuitError::FalseStatement {
                what: "salt and value have another digest",
            });
        }
        let mut claim = AnyClaim::without_values(circuit)?;
        if let AnyClaim::Field(FieldClaim { secret, digest: wanted, predicate: all, .. }) =
            &mut claim
        {
            let (salt, value) = (*field.salt, field.value.to_vec());
            *secret = Some(Arc::new(FieldWitness { salt, value, at }));
            (*wanted, *all) = (*digest, predicate);
        }
        Self::new(circuit, claim)
    }

    fn new(circuit: Circuit, claim: AnyClaim) -> Result<Self, CircuitError> {
        let keys = CircuitKeys::derive_cached(circuit)?;
        let circuit = ContextCircuit { claim: claim.clone(), context: [0; 32] };
        let state = BackEnd::prep_prove(&keys.prover, circuit, VALUES_ARE_SMALL);
        Ok(Self { keys, claim, state: Some(state.map_err(back_end_error)?) })
    }

    /// Makes a proof for `context`. The bytes of two proofs do not reveal a common `PreparedProof`.
    ///
    /// # Errors
    ///
    /// [`CircuitError::BackEnd`] if the back end fails.
    pub fn prove(&mut self, context: &[u8; 32]) -> Result<Vec<u8>, CircuitError> {
        let lost =
            || CircuitError::BackEnd("the prepared part was lost in an earlier error".to_owned());
        let state = self.state.take().ok_or_else(lost)?;
        let circuit = ContextCircuit { claim: self.claim.clone(), context: *context };
        let layout = ProofLayout::new(&self.keys.sizes, &encode_public_values(&circuit));
        let (proof, state) = BackEnd::prove(&self.keys.prover, circuit, state, VALUES_ARE_SMALL)
            .map_err(back_end_error)?;
        self.state = Some(state);
        let bytes = bincode_options().serialize(&proof);
        let body = bytes.ok().and_then(|bytes| layout.strip(&bytes));
        let body = body.ok_or_else(|| {
            CircuitError::BackEnd("the proof has an unexpected layout".to_owned())
        })?;
        let (circuit, security, key) = (self.keys.circuit, SECURITY, self.keys.digest);
        Ok(ProofHeader { circuit, security, key }.encode_proof(&body))
    }
}

#[cfg(test)]
#[path = "prove_tests.rs"]
mod tests;
