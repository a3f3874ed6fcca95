//! Proofs that hidden bytes contain a text: the circuits of `confide-circuits`.

use confide_circuits::{Leaf, Tree, check_contains, prove_contains};
use confide_disclosure::{LeafSecret, TextProofs, TreePlace};

/// The circuits of this program.
pub(super) struct Circuits;

impl TextProofs for Circuits {
    fn prove_bytes(
        &self,
        context: &[u8; 32],
        place: TreePlace<'_>,
        text: &str,
        secret: LeafSecret<'_>,
    ) -> Result<Vec<u8>, String> {
        let LeafSecret { index, salt, chunk, siblings } = secret;
        let leaf = Leaf { index, salt, chunk, siblings };
        prove_contains(&leaf, &tree(&place), text.as_bytes(), context)
            .map_err(|error| error.to_string())
    }

    fn verify_bytes(
        &self,
        context: &[u8; 32],
        place: TreePlace<'_>,
        text: &str,
        proof: &[u8],
    ) -> Result<(), String> {
        check_contains(proof, &tree(&place), text.as_bytes(), context)
            .map(|_| ())
            .map_err(|error| error.to_string())
    }
}

fn tree<'a>(place: &TreePlace<'a>) -> Tree<'a> {
    let TreePlace { direction, depth, root } = *place;
    Tree { root, depth, direction: direction.byte() }
}
