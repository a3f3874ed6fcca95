//! A hidden leaf under a public root, or two neighbouring ones, contain public bytes.
//!
//! Hidden: the chunks and their lengths, the salts, the index, the paths, and where in the chunks
//! the bytes stand. Public: root, depth, direction, the bytes looked for.
//!
//! Of two neighbours the second one's index is the first one's plus one, and the bytes begin in
//! the first one's chunk. Their paths are climbed side by side up to the root, the last node of
//! which is hashed once: where they meet is hidden.

use std::sync::Arc;

use bellpepper_core::{ConstraintSystem, SynthesisError, num::AllocatedNum};
use ff::Field;

use crate::{
    circuit::{Claim, DIGEST_WORDS, word_to_publish, words_of},
    curve::Scalar,
    path::{AllocatedPath, CHUNK_BYTES, LeafPath, parent},
    window::{self, HiddenPart, window},
    word::{Byte, Sum, Word, empty_name, number},
};

/// One leaf or two neighbours, and the place in their bytes where the needle begins.
pub(crate) struct LeafPosition {
    pub(crate) leaves: Vec<LeafPath>,
    /// The place where the needle begins in the first leaf's chunk.
    pub(crate) at: u32,
}

/// The number of leaves that are searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaves {
    Single,
    Neighbours,
}

/// The claim, for a tree of 2^depth leaves.
#[derive(Clone)]
pub(crate) struct ContainsClaim {
    pub(crate) depth: u8,
    pub(crate) leaves: Leaves,
    pub(crate) place: Option<Arc<LeafPosition>>,
    pub(crate) direction: u8,
    pub(crate) root: [u8; 32],
    pub(crate) needle: Vec<u8>,
}

impl Claim for ContainsClaim {
    fn allocate<CS: ConstraintSystem<Scalar>>(
        &self,
        cs: &mut CS,
    ) -> Result<Vec<AllocatedNum<Scalar>>, SynthesisError> {
        let place = self.place.as_deref();
        let direction_value = place.map(|_| self.direction);
        let direction = Byte::allocate(cs, direction_value)?;
        let count = if self.leaves == Leaves::Single { 1 } else { 2 };
        let (mut paths, mut hashes) = (Vec::new(), Vec::new());
        for number in 0..count {
            let leaf = place.and_then(|place| place.leaves.get(number));
            let path = AllocatedPath::allocate(cs, leaf, self.depth)?;
            hashes.push(path.leaf_hash(cs, direction)?);
            paths.push(path);
        }
        if let [first, second] = paths.as_slice() {
            follow(cs, &first.index, &second.index);
        }
        let digests = hashes.iter().map(|hashed| hashed.digest.clone()).collect();
        let root = root(cs, self.depth.into(), &paths, digests)?;
        let mut held =
            root.iter().map(|word| word_to_publish(cs, word)).collect::<Result<Vec<_>, _>>()?;
        held.push(byte_to_publish(cs, direction, direction_value)?);
        let parts: Vec<HiddenPart<'_>> = hashes
            .iter()
            .zip(&paths)
            .map(|(hashed, path)| HiddenPart {
                hashed,
                length: path.leaf.map(|leaf| leaf.chunk.len()),
            })
            .collect();
        held.extend(window(cs, &parts, CHUNK_BYTES, place.map(|place| place.at))?);
        Ok(held)
    }

    fn public(&self) -> Vec<u64> {
        let mut public = words_of(&self.root).to_vec();
        public.push(self.direction.into());
        public.extend(window::public_values(&self.needle));
        public
    }

    /// The root and the direction.
    fn exact_count(&self) -> usize {
        DIGEST_WORDS + 1
    }
}

/// The root to which all paths lead. The paths of different leaves meet at the root at the latest,
/// so the last node is hashed once for both.
fn root<CS: ConstraintSystem<Scalar>>(
    cs: &mut CS,
    depth: usize,
    paths: &[AllocatedPath<'_>],
    mut nodes: Vec<[Sum; 8]>,
) -> Result<[Sum; 8], SynthesisError> {
    for level in 0..depth.saturating_sub(1) {
        for (node, path) in nodes.iter_mut().zip(paths) {
            *node = parent(cs, level, &[(path, &*node)])?;
        }
    }
    match depth.checked_sub(1) {
        Some(level) => parent(cs, level, &paths.iter().zip(&nodes).collect::<Vec<_>>()),
        None => nodes.pop().ok_or(SynthesisError::Unsatisfiable),
    }
}

/// Constrains the second index to be the first plus one. Both are below 2^depth, so the first is
/// not the last leaf.
fn follow<CS: ConstraintSystem<Scalar>>(cs: &mut CS, first: &Word, second: &Word) {
    let one = CS::one();
    cs.enforce(
        empty_name,
        |form| second.add_to(first.add_to(form + one, one, Scalar::ONE), one, -Scalar::ONE),
        |form| form + one,
        |form| form,
    );
}

fn byte_to_publish<CS: ConstraintSystem<Scalar>>(
    cs: &mut CS,
    byte: Byte,
    value: Option<u8>,
) -> Result<AllocatedNum<Scalar>, SynthesisError> {
    let number = number(cs, value.map(u64::from))?;
    let one = CS::one();
    cs.enforce(
        empty_name,
        |form| byte.add_to(form, one, 1) - number.get_variable(),
        |form| form + one,
        |form| form,
    );
    Ok(number)
}
