//! Proofs about hidden texts: the circuits of `confide-circuits`.

use confide_circuits::{
    BACK_END, Circuit, CircuitError, HiddenField, HiddenLeaf, ProofHeader, PublicTree,
    check_contains, check_contains_across, check_field_contains, check_field_sha256,
    prove_contains, prove_contains_across, prove_field_contains, prove_field_sha256,
};
use confide_disclosure::{
    LeafWitness, ProofSecurity, SignedTree, TextProofs, TextStatement, TextWitness,
};

/// The circuits of this program.
pub(super) struct CircuitTextProofs;

impl TextProofs for CircuitTextProofs {
    fn prove(
        &self,
        context: &[u8; 32],
        statement: &TextStatement<'_>,
        secret: &TextWitness<'_>,
    ) -> Result<Vec<u8>, String> {
        let proof = match (*statement, *secret) {
            (TextStatement::BytesContain { tree: place, text }, TextWitness::Leaf(secret)) => {
                prove_contains(
                    &hidden_leaf(&secret),
                    &public_tree(&place),
                    text.as_bytes(),
                    context,
                )
            }
            (TextStatement::BytesContain { tree: place, text }, TextWitness::Neighbours(both)) => {
                let leaves = both.each_ref().map(hidden_leaf);
                prove_contains_across(&leaves, &public_tree(&place), text.as_bytes(), context)
            }
            (TextStatement::FieldContains { digest, text }, TextWitness::Field { salt, value }) => {
                let field = HiddenField { salt, value };
                prove_field_contains(&field, digest, text.as_bytes(), context)
            }
            (TextStatement::FieldSha256 { digest, sha256 }, TextWitness::Field { salt, value }) => {
                prove_field_sha256(&HiddenField { salt, value }, digest, sha256, context)
            }
            _ => return Err("hidden part belongs to another statement".into()),
        };
        proof.map_err(describe_error)
    }

    fn verify(
        &self,
        context: &[u8; 32],
        statement: &TextStatement<'_>,
        proof: &[u8],
    ) -> Result<ProofSecurity, String> {
        let checked = match *statement {
            TextStatement::BytesContain { tree: place, text } => {
                check_bytes(proof, &public_tree(&place), text.as_bytes(), context)
            }
            TextStatement::FieldContains { digest, text } => {
                check_field_contains(proof, digest, text.as_bytes(), context)
            }
            TextStatement::FieldSha256 { digest, sha256 } => {
                check_field_sha256(proof, digest, sha256, context)
            }
        };
        let security = checked.map_err(describe_error)?.security;
        Ok(ProofSecurity {
            back_end: BACK_END,
            proven_bits: None,
            conjectured_bits: security.conjectured_bits,
            basis: "discrete logarithms of T256 are hard, the hash is a random oracle",
            zero_knowledge: security.zero_knowledge,
        })
    }
}

/// Checks with the circuit that the proof names: one chunk, or two neighbours.
fn check_bytes(
    proof: &[u8],
    tree: &PublicTree<'_>,
    text: &[u8],
    context: &[u8; 32],
) -> Result<ProofHeader, CircuitError> {
    match ProofHeader::parse(proof)?.0.circuit {
        Circuit::ContainsAcross { .. } => check_contains_across(proof, tree, text, context),
        _ => check_contains(proof, tree, text, context),
    }
}

fn public_tree<'a>(place: &SignedTree<'a>) -> PublicTree<'a> {
    let SignedTree { direction, depth, root } = *place;
    PublicTree { root, depth, direction: direction.byte() }
}

fn hidden_leaf<'a>(secret: &LeafWitness<'a>) -> HiddenLeaf<'a> {
    let LeafWitness { index, salt, chunk, siblings } = *secret;
    HiddenLeaf { index, salt, chunk, siblings }
}

fn describe_error(error: CircuitError) -> String {
    error.to_string()
}
