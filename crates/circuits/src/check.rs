//! Checks of proofs against a statement and a context.

use bincode::Options;
use ff::PrimeField;
use spartan2::traits::snark::R1CSSNARKTrait;

use crate::{
    circuit::InContext,
    claim::{AnyClaim, Public},
    curve::Scalar,
    error::CircuitError,
    keys::{BackEnd, Keys, SECURITY},
    kind::Circuit,
    layout::Layout,
    proof::Header,
    witness::{Tree, check_needle},
};

/// Checks that the prover knows bytes whose SHA-256 is `digest`, in this context.
///
/// # Errors
///
/// [`CircuitError::Magic`], [`CircuitError::Header`] or [`CircuitError::Size`] if the bytes are not
/// one proof; [`CircuitError::OtherCircuit`], [`CircuitError::OtherKey`] or
/// [`CircuitError::OtherSecurity`] if it was made for another circuit, key or security;
/// [`CircuitError::Encoding`] if a point or number is not in its one encoding;
/// [`CircuitError::Refused`] if it does not show the statement in this context.
pub fn check_sha256(
    proof: &[u8],
    digest: &[u8; 32],
    context: &[u8; 32],
) -> Result<Header, CircuitError> {
    let public = Public { digest: *digest, ..Public::default() };
    let is_wanted = |circuit: &Circuit| matches!(circuit, Circuit::Sha256 { .. });
    check(proof, "sha256", is_wanted, &public, context)
}

/// Checks that a leaf under the root of `tree` contains `needle`, in this context.
///
/// # Errors
///
/// [`CircuitError::Depth`] or [`CircuitError::Length`] if there is no circuit for the tree or the
/// needle; otherwise as [`check_sha256`].
pub fn check_contains(
    proof: &[u8],
    tree: &Tree<'_>,
    needle: &[u8],
    context: &[u8; 32],
) -> Result<Header, CircuitError> {
    check_tree(proof, Circuit::for_tree(tree.depth)?, tree, needle, context)
}

/// Checks that two neighbouring leaves under the root of `tree` contain `needle`, in this context.
///
/// # Errors
///
/// As [`check_contains`].
pub fn check_contains_across(
    proof: &[u8],
    tree: &Tree<'_>,
    needle: &[u8],
    context: &[u8; 32],
) -> Result<Header, CircuitError> {
    check_tree(proof, Circuit::for_neighbours(tree.depth)?, tree, needle, context)
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
) -> Result<Header, CircuitError> {
    check_needle(needle)?;
    let public = Public { digest: *digest, needle, ..Public::default() };
    let is_wanted = |circuit: &Circuit| matches!(circuit, Circuit::FieldContains { .. });
    check(proof, "a field contains", is_wanted, &public, context)
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
) -> Result<Header, CircuitError> {
    let public = Public { digest: *digest, value_digest: *value_digest, ..Public::default() };
    let is_wanted = |circuit: &Circuit| matches!(circuit, Circuit::FieldSha256 { .. });
    check(proof, "sha256 of a field", is_wanted, &public, context)
}

fn check_tree(
    proof: &[u8],
    wanted: Circuit,
    tree: &Tree<'_>,
    needle: &[u8],
    context: &[u8; 32],
) -> Result<Header, CircuitError> {
    check_needle(needle)?;
    let (digest, direction) = (*tree.root, tree.direction);
    let public = Public { digest, direction, needle, ..Public::default() };
    check(proof, &wanted.to_string(), |circuit| *circuit == wanted, &public, context)
}

fn check(
    proof: &[u8],
    wanted: &str,
    is_wanted: impl Fn(&Circuit) -> bool,
    public: &Public<'_>,
    context: &[u8; 32],
) -> Result<Header, CircuitError> {
    let (header, body) = Header::read(proof)?;
    if !is_wanted(&header.circuit) {
        let (wanted, got) = (wanted.to_owned(), header.circuit.to_string());
        return Err(CircuitError::OtherCircuit { wanted, got });
    }
    if header.security != SECURITY {
        let (wanted, got) = (SECURITY.to_string(), header.security.to_string());
        return Err(CircuitError::OtherSecurity { wanted, got });
    }
    let keys = Keys::derive_cached(header.circuit)?;
    if header.key != keys.digest {
        return Err(CircuitError::OtherKey { circuit: header.circuit.to_string() });
    }
    let claim = AnyClaim::from_public(header.circuit, public)?;
    let circuit = InContext { claim, context: *context };
    let bytes = Layout::new(&keys.sizes, &encode_public(&circuit)).restore(body)?;
    let proof: BackEnd = encoding().deserialize(&bytes).map_err(|_| CircuitError::Encoding)?;
    let again = encoding().serialize(&proof).map_err(|_| CircuitError::Encoding)?;
    if again != bytes {
        return Err(CircuitError::Encoding);
    }
    let shown = proof.verify(&keys.verifier).map_err(|_| CircuitError::Refused)?;
    let wanted: Vec<Scalar> = circuit.public().into_iter().map(Scalar::from).collect();
    if shown == wanted { Ok(header) } else { Err(CircuitError::Refused) }
}

/// The public values in the back end's encoding.
pub(crate) fn encode_public(circuit: &InContext<AnyClaim>) -> Vec<[u8; 32]> {
    circuit.public().into_iter().map(|value| Scalar::from(value).to_repr().into()).collect()
}

/// The back end's encoding: little-endian, lengths of eight bytes, nothing after the end.
pub(crate) fn encoding() -> impl Options {
    bincode::DefaultOptions::new()
        .with_fixint_encoding()
        .with_little_endian()
        .with_limit(crate::proof::PROOF_BYTES_MOST as u64)
        .reject_trailing_bytes()
}
