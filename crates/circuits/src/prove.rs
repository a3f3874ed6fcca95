//! Prove and check the two statements.

use std::sync::Arc;

use bincode::Options;
use ff::PrimeField;
use sha2::{Digest, Sha256};
use spartan2::{
    spartan_zk::{SpartanPrepZkSNARK, SpartanZkSNARK},
    traits::snark::R1CSSNARKTrait,
};
use zeroize::Zeroizing;

use crate::{
    Circuit, Curve, Scalar,
    circuit::InContext,
    claim::AnyClaim,
    contains::{CHUNK_BYTES, ContainsClaim, LeafPath, SALT_BYTES},
    error::CircuitError,
    hash::HashClaim,
    keys::{BackEnd, Keys, back_end},
    layout::Layout,
    proof::{Header, Security},
};

/// Most bytes that can be looked for: they stand in one chunk.
pub const NEEDLE_BYTES_MOST: usize = CHUNK_BYTES;

/// Every value of the witness is below 2^64, which the back end may then rely on.
const VALUES_ARE_SMALL: bool = true;

/// A tree of transcript leaves, as `confide-disclosure` makes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tree<'a> {
    /// Its root.
    pub root: &'a [u8; 32],
    /// It has 2^depth leaves.
    pub depth: u8,
    /// The byte for the direction in the hash of a leaf.
    pub direction: u8,
}

/// A leaf with its path: the hidden part.
#[derive(Clone, Copy)]
pub struct Leaf<'a> {
    /// Its place, from 0.
    pub index: u32,
    /// Its salt.
    pub salt: &'a [u8; SALT_BYTES],
    /// Its bytes, at most 64.
    pub chunk: &'a [u8],
    /// The nodes beside its path, from below.
    pub siblings: &'a [[u8; 32]],
}

/// Proves that SHA-256 of `message` is `digest`, and shows nothing else of it but a bound of its
/// length, the circuit's.
pub fn prove_sha256(
    message: &[u8],
    digest: &[u8; 32],
    context: &[u8; 32],
) -> Result<Vec<u8>, CircuitError> {
    Prepared::sha256(message, digest)?.prove(context)
}

/// Checks that somebody knows bytes whose SHA-256 is `digest`, in this context.
pub fn check_sha256(
    proof: &[u8],
    digest: &[u8; 32],
    context: &[u8; 32],
) -> Result<Header, CircuitError> {
    let (header, body) = Header::read(proof)?;
    if !matches!(header.circuit, Circuit::Sha256 { .. }) {
        let (wanted, got) = ("sha256".to_owned(), header.circuit.to_string());
        return Err(CircuitError::OtherCircuit { wanted, got });
    }
    check(header, body, AnyClaim::from_public(header.circuit, digest, 0, &[])?, context)
}

/// Proves that `leaf`, which is under the root of `tree`, contains `needle`, and shows neither
/// which leaf it is nor anything of it but that.
pub fn prove_contains(
    leaf: &Leaf<'_>,
    tree: &Tree<'_>,
    needle: &[u8],
    context: &[u8; 32],
) -> Result<Vec<u8>, CircuitError> {
    Prepared::contains(leaf, tree, needle)?.prove(context)
}

/// Checks that a leaf under the root of `tree` contains `needle`, in this context.
pub fn check_contains(
    proof: &[u8],
    tree: &Tree<'_>,
    needle: &[u8],
    context: &[u8; 32],
) -> Result<Header, CircuitError> {
    let wanted = Circuit::for_tree(tree.depth)?;
    check_needle(needle)?;
    let (header, body) = Header::read(proof)?;
    if header.circuit != wanted {
        let (wanted, got) = (wanted.to_string(), header.circuit.to_string());
        return Err(CircuitError::OtherCircuit { wanted, got });
    }
    let claim = AnyClaim::from_public(wanted, tree.root, tree.direction, needle)?;
    check(header, body, claim, context)
}

/// A statement whose hidden part is committed to. What is left to do depends on the context.
///
/// It holds the hidden part, which the back end does not wipe.
pub struct Prepared {
    keys: Arc<Keys>,
    claim: AnyClaim,
    state: Option<SpartanPrepZkSNARK<Curve>>,
}

impl Prepared {
    /// Of [`prove_sha256`].
    pub fn sha256(message: &[u8], digest: &[u8; 32]) -> Result<Self, CircuitError> {
        let circuit = Circuit::for_message(message.len())?;
        let got: [u8; 32] = Sha256::digest(message).into();
        if got != *digest {
            return Err(CircuitError::Untrue { what: "message has another digest" });
        }
        let Circuit::Sha256 { bytes_most: room } = circuit else {
            return Err(CircuitError::Depth { got: 0 });
        };
        let message = Some(Arc::new(Zeroizing::new(message.to_vec())));
        Self::new(circuit, AnyClaim::Hash(HashClaim { room, message, digest: *digest }))
    }

    /// Of [`prove_contains`].
    pub fn contains(leaf: &Leaf<'_>, tree: &Tree<'_>, needle: &[u8]) -> Result<Self, CircuitError> {
        let circuit = Circuit::for_tree(tree.depth)?;
        check_needle(needle)?;
        let Leaf { index, salt, chunk, siblings } = *leaf;
        if chunk.len() > CHUNK_BYTES {
            let (subject, least, most, got) = ("chunk", 0, CHUNK_BYTES, chunk.len());
            return Err(CircuitError::Length { subject, least, most, got });
        }
        if root_of(leaf, tree) != Some(*tree.root) {
            return Err(CircuitError::Untrue { what: "leaf and path do not lead to the root" });
        }
        let at = chunk.windows(needle.len()).position(|window| window == needle);
        let at = at.ok_or(CircuitError::Untrue { what: "leaf does not contain the bytes" })?;
        let (chunk, siblings) = (chunk.to_vec(), siblings.to_vec());
        let path = LeafPath { index, salt: *salt, chunk, siblings, at: at as u32 };
        let claim = ContainsClaim {
            depth: tree.depth,
            leaf: Some(Arc::new(path)),
            direction: tree.direction,
            root: *tree.root,
            needle: needle.to_vec(),
        };
        Self::new(circuit, AnyClaim::Contains(claim))
    }

    fn new(circuit: Circuit, claim: AnyClaim) -> Result<Self, CircuitError> {
        let keys = Keys::of(circuit)?;
        let circuit = InContext { claim: claim.clone(), context: [0; 32] };
        let state = BackEnd::prep_prove(&keys.prover, circuit, VALUES_ARE_SMALL);
        Ok(Self { keys, claim, state: Some(state.map_err(back_end)?) })
    }

    /// A proof in `context`. Proofs of one `Prepared` cannot be linked by their bytes.
    pub fn prove(&mut self, context: &[u8; 32]) -> Result<Vec<u8>, CircuitError> {
        let lost = || CircuitError::BackEnd("prepared part lost in an earlier error".to_owned());
        let state = self.state.take().ok_or_else(lost)?;
        let circuit = InContext { claim: self.claim.clone(), context: *context };
        let layout = Layout::new(&self.keys.sizes, &encoded(&circuit));
        let (proof, state) = BackEnd::prove(&self.keys.prover, circuit, state, VALUES_ARE_SMALL)
            .map_err(back_end)?;
        self.state = Some(state);
        let bytes = encoding().serialize(&proof);
        let body = bytes.ok().and_then(|bytes| layout.stripped(&bytes));
        let body =
            body.ok_or_else(|| CircuitError::BackEnd("proof of another layout".to_owned()))?;
        let (circuit, security, key) = (self.keys.circuit, BackEnd::SECURITY, self.keys.digest);
        Ok(Header { circuit, security, key }.write(&body))
    }
}

/// What a proof system gives, said of its type.
trait Secures {
    const SECURITY: Security;
}

impl Secures for SpartanZkSNARK<Curve> {
    const SECURITY: Security = Security { conjectured_bits: 128, zero_knowledge: true };
}

fn check(
    header: Header,
    body: &[u8],
    claim: AnyClaim,
    context: &[u8; 32],
) -> Result<Header, CircuitError> {
    if header.security != BackEnd::SECURITY {
        let (wanted, got) = (BackEnd::SECURITY.to_string(), header.security.to_string());
        return Err(CircuitError::OtherSecurity { wanted, got });
    }
    let keys = Keys::of(header.circuit)?;
    if header.key != keys.digest {
        return Err(CircuitError::OtherKey { circuit: header.circuit.to_string() });
    }
    let circuit = InContext { claim, context: *context };
    let bytes = Layout::new(&keys.sizes, &encoded(&circuit)).filled(body)?;
    let proof: BackEnd = encoding().deserialize(&bytes).map_err(|_| CircuitError::Encoding)?;
    let again = encoding().serialize(&proof).map_err(|_| CircuitError::Encoding)?;
    if again != bytes {
        return Err(CircuitError::Encoding);
    }
    let shown = proof.verify(&keys.verifier).map_err(|_| CircuitError::Refused)?;
    let wanted: Vec<Scalar> = circuit.public().into_iter().map(Scalar::from).collect();
    match shown == wanted {
        true => Ok(header),
        false => Err(CircuitError::Refused),
    }
}

fn check_needle(needle: &[u8]) -> Result<(), CircuitError> {
    let (subject, least, most, got) = ("what is looked for", 1, NEEDLE_BYTES_MOST, needle.len());
    match (least..=most).contains(&got) {
        true => Ok(()),
        false => Err(CircuitError::Length { subject, least, most, got }),
    }
}

/// The root that a leaf and its path lead to, by ordinary hashing.
fn root_of(leaf: &Leaf<'_>, tree: &Tree<'_>) -> Option<[u8; 32]> {
    let fits = leaf.siblings.len() == usize::from(tree.depth) && leaf.index >> tree.depth == 0;
    if !fits {
        return None;
    }
    let hash =
        Sha256::new().chain_update([0, tree.direction]).chain_update(leaf.index.to_be_bytes());
    let mut node: [u8; 32] =
        hash.chain_update(leaf.salt).chain_update(leaf.chunk).finalize().into();
    for (level, sibling) in leaf.siblings.iter().enumerate() {
        let (left, right) = match leaf.index >> level & 1 {
            0 => (&node, sibling),
            _ => (sibling, &node),
        };
        node = Sha256::new()
            .chain_update([1])
            .chain_update(left)
            .chain_update(right)
            .finalize()
            .into();
    }
    Some(node)
}

fn encoded(circuit: &InContext<AnyClaim>) -> Vec<[u8; 32]> {
    circuit.public().into_iter().map(|value| Scalar::from(value).to_repr().into()).collect()
}

/// The back end's encoding: little-endian, lengths of eight bytes, nothing after the end.
fn encoding() -> impl Options {
    bincode::DefaultOptions::new()
        .with_fixint_encoding()
        .with_little_endian()
        .with_limit(crate::PROOF_BYTES_MOST as u64)
        .reject_trailing_bytes()
}

#[cfg(test)]
#[path = "prove_tests.rs"]
mod tests;
