//! Proving of statements.

use std::sync::Arc;

use bincode::Options;
use spartan2::{spartan_zk::SpartanPrepZkSNARK, traits::snark::R1CSSNARKTrait};
use zeroize::Zeroizing;

use crate::{
    check::{encode_public, encoding},
    circuit::InContext,
    claim::AnyClaim,
    contains::{ContainsClaim, LeafPosition, Leaves},
    curve::Curve,
    error::CircuitError,
    field::{FieldClaim, FieldPredicate, FieldSecret},
    hash::HashClaim,
    keys::{BackEnd, Keys, SECURITY, back_end},
    kind::Circuit,
    layout::Layout,
    path::CHUNK_BYTES,
    proof::Header,
    witness::{FieldValue, Leaf, Tree, check_needle, find, sha256},
};

/// Tells the back end that every value of the witness is below 2^64, which it then relies on.
const VALUES_ARE_SMALL: bool = true;

/// Proves that SHA-256 of `message` is `digest`, and reveals nothing else of it but a bound of its
/// length, the circuit's.
///
/// # Errors
///
/// As [`PreparedProof::sha256`], and as [`PreparedProof::prove`].
pub fn prove_sha256(
    message: &[u8],
    digest: &[u8; 32],
    context: &[u8; 32],
) -> Result<Vec<u8>, CircuitError> {
    PreparedProof::sha256(message, digest)?.prove(context)
}

/// Proves that `leaf`, which is under the root of `tree`, contains `needle`, and reveals nothing
/// else of the leaf, nor which one it is.
///
/// # Errors
///
/// As [`PreparedProof::contains`], and as [`PreparedProof::prove`].
pub fn prove_contains(
    leaf: &Leaf<'_>,
    tree: &Tree<'_>,
    needle: &[u8],
    context: &[u8; 32],
) -> Result<Vec<u8>, CircuitError> {
    PreparedProof::contains(leaf, tree, needle)?.prove(context)
}

/// Proves that two neighbouring leaves contain `needle`, which begins in the first of them, and
/// reveals nothing else of the leaves, nor which ones they are.
///
/// # Errors
///
/// As [`PreparedProof::contains_across`], and as [`PreparedProof::prove`].
pub fn prove_contains_across(
    leaves: &[Leaf<'_>; 2],
    tree: &Tree<'_>,
    needle: &[u8],
    context: &[u8; 32],
) -> Result<Vec<u8>, CircuitError> {
    PreparedProof::contains_across(leaves, tree, needle)?.prove(context)
}

/// Proves that the value behind `digest` contains `needle`, and reveals nothing else of it but a
/// bound of its length, the circuit's.
///
/// # Errors
///
/// As [`PreparedProof::field_contains`], and as [`PreparedProof::prove`].
pub fn prove_field_contains(
    field: &FieldValue<'_>,
    digest: &[u8; 32],
    needle: &[u8],
    context: &[u8; 32],
) -> Result<Vec<u8>, CircuitError> {
    PreparedProof::field_contains(field, digest, needle)?.prove(context)
}

/// Proves that SHA-256 of the value behind `digest` is `value_digest`, and reveals nothing else of
/// it but a bound of its length, the circuit's.
///
/// # Errors
///
/// As [`PreparedProof::field_sha256`], and as [`PreparedProof::prove`].
pub fn prove_field_sha256(
    field: &FieldValue<'_>,
    digest: &[u8; 32],
    value_digest: &[u8; 32],
    context: &[u8; 32],
) -> Result<Vec<u8>, CircuitError> {
    PreparedProof::field_sha256(field, digest, value_digest)?.prove(context)
}

/// A statement whose hidden part is committed to. The remaining work depends on the context.
///
/// It holds the hidden part, which the back end does not wipe.
pub struct PreparedProof {
    keys: Arc<Keys>,
    claim: AnyClaim,
    state: Option<SpartanPrepZkSNARK<Curve>>,
}

impl PreparedProof {
    /// Prepares a proof of [`prove_sha256`].
    ///
    /// # Errors
    ///
    /// [`CircuitError::Untrue`] if the witness does not make the statement true;
    /// [`CircuitError::BackEnd`] if the keys cannot be derived; [`CircuitError::Length`] if there
    /// is not a circuit for the length of the message.
    pub fn sha256(message: &[u8], digest: &[u8; 32]) -> Result<Self, CircuitError> {
        let circuit = Circuit::for_message(message.len())?;
        if sha256(&[message]) != *digest {
            return Err(CircuitError::Untrue { what: "message has another digest" });
        }
        let mut claim = AnyClaim::shape(circuit)?;
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
    /// [`CircuitError::Untrue`] if the witness does not make the statement true;
    /// [`CircuitError::BackEnd`] if the keys cannot be derived; [`CircuitError::Depth`] or
    /// [`CircuitError::Length`] if there is no circuit for the tree or the needle.
    pub fn contains(leaf: &Leaf<'_>, tree: &Tree<'_>, needle: &[u8]) -> Result<Self, CircuitError> {
        let circuit = Circuit::for_tree(tree.depth)?;
        Self::in_leaves(circuit, Leaves::Single, &[*leaf], tree, needle)
    }

    /// Prepares a proof of [`prove_contains_across`].
    ///
    /// # Errors
    ///
    /// [`CircuitError::Untrue`] if the witness does not make the statement true;
    /// [`CircuitError::BackEnd`] if the keys cannot be derived; [`CircuitError::Depth`] or
    /// [`CircuitError::Length`] if there is no circuit for the tree or the needle.
    pub fn contains_across(
        leaves: &[Leaf<'_>; 2],
        tree: &Tree<'_>,
        needle: &[u8],
    ) -> Result<Self, CircuitError> {
        let circuit = Circuit::for_neighbours(tree.depth)?;
        let [first, second] = leaves;
        if first.index.checked_add(1) != Some(second.index) {
            return Err(CircuitError::Untrue { what: "leaves are not neighbours" });
        }
        Self::in_leaves(circuit, Leaves::Neighbours, leaves, tree, needle)
    }

    /// Prepares a proof of [`prove_field_contains`].
    ///
    /// # Errors
    ///
    /// [`CircuitError::Untrue`] if the witness does not make the statement true;
    /// [`CircuitError::BackEnd`] if the keys cannot be derived; [`CircuitError::Length`] if there
    /// is not a circuit for the value or the needle.
    pub fn field_contains(
        field: &FieldValue<'_>,
        digest: &[u8; 32],
        needle: &[u8],
    ) -> Result<Self, CircuitError> {
        let circuit = Circuit::for_field_text(field.value.len())?;
        check_needle(needle)?;
        let at = find(field.value, needle);
        let at = at.ok_or(CircuitError::Untrue { what: "value does not contain the bytes" })?;
        Self::of_field(circuit, field, digest, FieldPredicate::Contains(needle.to_vec()), at)
    }

    /// Prepares a proof of [`prove_field_sha256`].
    ///
    /// # Errors
    ///
    /// [`CircuitError::Untrue`] if the witness does not make the statement true;
    /// [`CircuitError::BackEnd`] if the keys cannot be derived; [`CircuitError::Length`] if there
    /// is not a circuit for the length of the value.
    pub fn field_sha256(
        field: &FieldValue<'_>,
        digest: &[u8; 32],
        value_digest: &[u8; 32],
    ) -> Result<Self, CircuitError> {
        let circuit = Circuit::for_field_digest(field.value.len())?;
        if sha256(&[field.value]) != *value_digest {
            return Err(CircuitError::Untrue { what: "value has another digest" });
        }
        Self::of_field(circuit, field, digest, FieldPredicate::Sha256(*value_digest), 0)
    }

    fn in_leaves(
        circuit: Circuit,
        leaves: Leaves,
        given: &[Leaf<'_>],
        tree: &Tree<'_>,
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
        let at = find(&chunks, needle).filter(|at| *at < CHUNK_BYTES as u32);
        let untrue = CircuitError::Untrue { what: "leaf does not contain the bytes" };
        let place = LeafPosition { leaves: paths?, at: at.ok_or(untrue)? };
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

    fn of_field(
        circuit: Circuit,
        field: &FieldValue<'_>,
        digest: &[u8; 32],
        predicate: FieldPredicate,
        at: u32,
    ) -> Result<Self, CircuitError> {
        if field.digest() != *digest {
            return Err(CircuitError::Untrue { what: "salt and value have another digest" });
        }
        let mut claim = AnyClaim::shape(circuit)?;
        if let AnyClaim::Field(FieldClaim { secret, digest: wanted, predicate: all, .. }) =
            &mut claim
        {
            let (salt, value) = (*field.salt, field.value.to_vec());
            *secret = Some(Arc::new(FieldSecret { salt, value, at }));
            (*wanted, *all) = (*digest, predicate);
        }
        Self::new(circuit, claim)
    }

    fn new(circuit: Circuit, claim: AnyClaim) -> Result<Self, CircuitError> {
        let keys = Keys::derive_cached(circuit)?;
        let circuit = InContext { claim: claim.clone(), context: [0; 32] };
        let state = BackEnd::prep_prove(&keys.prover, circuit, VALUES_ARE_SMALL);
        Ok(Self { keys, claim, state: Some(state.map_err(back_end)?) })
    }

    /// Makes a proof in `context`. Proofs of one `PreparedProof` cannot be linked by their bytes.
    ///
    /// # Errors
    ///
    /// [`CircuitError::BackEnd`] if the back end makes no proof.
    pub fn prove(&mut self, context: &[u8; 32]) -> Result<Vec<u8>, CircuitError> {
        let lost = || CircuitError::BackEnd("prepared part lost in an earlier error".to_owned());
        let state = self.state.take().ok_or_else(lost)?;
        let circuit = InContext { claim: self.claim.clone(), context: *context };
        let layout = Layout::new(&self.keys.sizes, &encode_public(&circuit));
        let (proof, state) = BackEnd::prove(&self.keys.prover, circuit, state, VALUES_ARE_SMALL)
            .map_err(back_end)?;
        self.state = Some(state);
        let bytes = encoding().serialize(&proof);
        let body = bytes.ok().and_then(|bytes| layout.strip(&bytes));
        let body =
            body.ok_or_else(|| CircuitError::BackEnd("proof of another layout".to_owned()))?;
        let (circuit, security, key) = (self.keys.circuit, SECURITY, self.keys.digest);
        Ok(Header { circuit, security, key }.write(&body))
    }
}

#[cfg(test)]
#[path = "prove_tests.rs"]
mod tests;
