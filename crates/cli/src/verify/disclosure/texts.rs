//! Proofs about hidden texts: the circuits of `confide-circuits`.

use confide_circuits::{
    BACK_END, Circuit, CircuitError, FieldValue, Header, Leaf, Tree, check_contains,
    check_contains_across, check_field_contains, check_field_sha256, prove_contains,
    prove_contains_across, prove_field_contains, prove_field_sha256,
};
use confide_disclosure::{LeafSecret, Security, TextProofs, TextSecret, TextStatement, TreePlace};

/// The circuits of this program.
pub(super) struct Circuits;

impl TextProofs for Circuits {
    fn prove(
        &self,
        context: &[u8; 32],
        statement: &TextStatement<'_>,
        secret: &TextSecret<'_>,
    ) -> Result<Vec<u8>, String> {
        let proof = match (*statement, *secret) {
            (TextStatement::BytesContain { tree: place, text }, TextSecret::Leaf(secret)) => {
                prove_contains(&leaf(&secret), &tree(&place), text.as_bytes(), context)
            }
            (TextStatement::BytesContain { tree: place, text }, TextSecret::Neighbours(both)) => {
                let leaves = both.each_ref().map(leaf);
                prove_contains_across(&leaves, &tree(&place), text.as_bytes(), context)
            }
            (TextStatement::FieldContains { digest, text }, TextSecret::Field { salt, value }) => {
                let field = FieldValue { salt, value };
                prove_field_contains(&field, digest, text.as_bytes(), context)
            }
            (TextStatement::FieldSha256 { digest, sha256 }, TextSecret::Field { salt, value }) => {
                prove_field_sha256(&FieldValue { salt, value }, digest, sha256, context)
            }
            _ => return Err("hidden part belongs to another statement".into()),
        };
        proof.map_err(describe)
    }

    fn verify(
        &self,
        context: &[u8; 32],
        statement: &TextStatement<'_>,
        proof: &[u8],
    ) -> Result<Security, String> {
        let checked = match *statement {
            TextStatement::BytesContain { tree: place, text } => {
                check_bytes(proof, &tree(&place), text.as_bytes(), context)
            }
            TextStatement::FieldContains { digest, text } => {
                check_field_contains(proof, digest, text.as_bytes(), context)
            }
            TextStatement::FieldSha256 { digest, sha256 } => {
                check_field_sha256(proof, digest, sha256, context)
            }
        };
        let security = checked.map_err(describe)?.security;
        Ok(Security {
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
    tree: &Tree<'_>,
    text: &[u8],
    context: &[u8; 32],
) -> Result<Header, CircuitError> {
    match Header::read(proof)?.0.circuit {
        Circuit::ContainsAcross { .. } => check_contains_across(proof, tree, text, context),
        _ => check_contains(proof, tree, text, context),
    }
}

fn tree<'a>(place: &TreePlace<'a>) -> Tree<'a> {
    let TreePlace { direction, depth, root } = *place;
    Tree { root, depth, direction: direction.byte() }
}

fn leaf<'a>(secret: &LeafSecret<'a>) -> Leaf<'a> {
    let LeafSecret { index, salt, chunk, siblings } = *secret;
    Leaf { index, salt, chunk, siblings }
}

fn describe(error: CircuitError) -> String {
    error.to_string()
}
