//! Checks proofs against a statement and a context.

use bincode::Options;
use ff::PrimeField;
use spartan2::traits::snark::R1CSSNARKTrait;

use crate::{
    circuit::ContextCircuit,
    claim::{AnyClaim, PublicInputs},
    curve::Scalar,
    error::CircuitError,
    keys::{BackEnd, CircuitKeys, SECURITY},
    kind::Circuit,
    layout::ProofLayout,
    proof::ProofHeader,
    witness::{PublicTree, check_needle},
};

/// Checks that the prover knows bytes whose SHA-256 is `digest`, in this context.
///
/// # Errors
///
/// [`CircuitError::Magic`], [`CircuitError::UnknownField`] or [`CircuitError::ProofLength`] if the
/// bytes are not a proof; [`CircuitError::OtherCircuit`], [`CircuitError::OtherKey`] or
/// [`CircuitError::OtherSecurity`] if it was made for another circuit, key or security;
/// [`CircuitError::Encoding`] if a point or number is not in its canonical encoding;
/// [`CircuitError::Refused`] if it is not valid for the statement in this context.
pub fn check_sha256(
    proof: &[u8],
    digest: &[u8; 32],
    context: &[u8; 32],
) -> Result<ProofHeader, CircuitError> {
    let public = PublicInputs { digest: *digest, ..PublicInputs::default() };
    let is_wanted = |circuit: &Circuit| matches!(circuit, Circuit::Sha256 { .. });
    check_proof(proof, "sha256", is_wanted, &public, context)
}

/// Checks that a leaf under the root of `tree` contains `needle`, in this context.
///
/// # Errors
///
/// [`CircuitError::Depth`] or [`CircuitError::Length`] if there is no circuit for the tree or the
/// needle; otherwise as [`check_sha256`].
pub fn check_contains(
    proof: &[u8],
    tree: &PublicTree<'_>,
    needle: &[u8],
    context: &[u8; 32],
) -> Result<ProofHeader, CircuitError> {
    check_tree_proof(proof, Circuit::for_tree(tree.depth)?, tree, needle, context)
}

/// Checks that two neighbouring leaves under the root of `tree` contain `needle`, in this context.
///
/// # Errors
///
/// As [`check_contains`].
pub fn check_contains_across(
    proof: &[u8],
    tree: &PublicTree<'_>,
    needle: &[u8],
    context: &[u8; 32],
) -> Result<ProofHeader, CircuitError> {
    check_tree_proof(proof, Circuit::for_neighbours(tree.depth)?, tree, needle, context)
}

/// Checks that the value behind a salted digest contains `needle`, in this context.
///
/// # Errors
///
/// [`CircuitError::Length`] if the needle is empty or too long; otherwise as [`check_sha256`].
pub fn check_field_contains(
    proof: &[u8],
    digest: &[u8; 32],
    needle: &[u8],
    context: &[u8; 32],
) -> Result<ProofHeader, CircuitError> {
    check_needle(needle)?;
    let public = PublicInputs { digest: *digest, needle, ..PublicInputs::default() };
    let is_wanted = |circuit: &Circuit| matches!(circuit, Circuit::FieldContains { .. });
    check_proof(proof, "a field contains", is_wanted, &public, context)
}

/// Checks that SHA-256 of the value behind a salted digest is `value_digest`, in this context.
///
/// # Errors
///
/// As [`check_sha256`].
pub fn check_field_sha256(
    proof: &[u8],
    digest: &[u8; 32],
    value_digest: &[u8; 32],
    context: &[u8; 32],
) -> Result<ProofHeader, CircuitError> {
    let public =
        PublicInputs { digest: *digest, value_digest: *value_digest, ..PublicInputs::default() };
    let is_wanted = |circuit: &Circuit| matches!(circuit, Circuit::FieldSha256 { .. });
    check_proof(proof, "sha256 of a field", is_wanted, &public, context)
}

fn check_tree_proof(
    proof: &[u8],
    wanted: Circuit,
    tree: &PublicTree<'_>,
    needle: &[u8],
    context: &[u8; 32],
) -> Result<ProofHeader, CircuitError> {
    check_needle(needle)?;
    let (digest, direction) = (*tree.root, tree.direction);
    let public = PublicInputs { digest, direction, needle, ..PublicInputs::default() };
    check_proof(proof, &wanted.to_string(), |circuit| *circuit == wanted, &public, context)
}

fn check_proof(
    proof: &[u8],
    wanted: &str,
    is_wanted: impl Fn(&Circuit) -> bool,
    public: &PublicInputs<'_>,
    context: &[u8; 32],
) -> Result<ProofHeader, CircuitError> {
    let (header, body) = ProofHeader::parse(proof)?;
    if !is_wanted(&header.circuit) {
        let (wanted, got) = (wanted.to_owned(), header.circuit.to_string());
        return Err(CircuitError::OtherCircuit { wanted, got });
    }
    if header.security != SECURITY {
        let (wanted, got) = (SECURITY.to_string(), header.security.to_string());
        return Err(CircuitError::OtherSecurity { wanted, got });
    }
    let keys = CircuitKeys::derive_cached(header.circuit)?;
    if header.key != keys.digest {
        return Err(CircuitError::OtherKey { circuit: header.circuit.to_string() });
    }
    let claim = AnyClaim::from_public_inputs(header.circuit, public)?;
    let circuit = ContextCircuit { claim, context: *context };
    let bytes = ProofLayout::new(&keys.sizes, &encode_public_values(&circuit)).restore(body)?;
    let proof: BackEnd =
        bincode_options().deserialize(&bytes).map_err(|_| CircuitError::Encoding)?;
    let again = bincode_options().serialize(&proof).map_err(|_| CircuitError::Encoding)?;
    if again != bytes {
        return Err(CircuitError::Encoding);
    }
    let shown = proof.verify(&keys.verifier).map_err(|_| CircuitError::Refused)?;
    let wanted: Vec<Scalar> = circuit.public_integers().into_iter().map(Scalar::from).collect();
    if shown == wanted { Ok(header) } else { Err(CircuitError::Refused) }
}

/// The public values in the back end's encoding.
pub(crate) fn encode_public_values(circuit: &ContextCircuit<AnyClaim>) -> Vec<[u8; 32]> {
    circuit
        .public_integers()
        .into_iter()
        .map(|value| Scalar::from(value).to_repr().into())
        .collect()
}

/// The options of the back end's encoding: little-endian, lengths of eight bytes, no trailing
/// bytes.
pub(crate) fn bincode_options() -> impl Options {
    bincode::DefaultOptions::new()
        .with_fixint_encoding()
        .with_little_endian()
        .with_limit(crate::proof::PROOF_BYTES_MOST as u64)
        .reject_trailing_bytes()
}
