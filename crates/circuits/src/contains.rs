//! The claim that a hidden leaf under a public root, or two neighbouring ones, contain public
//! bytes.
//!
//! Hidden: the chunks and their lengths, the salts, the index, the paths, and the position of the
//! bytes in the chunks. Public: root, depth, direction, the bytes.
//!
//! Of two neighbours the second index is the first one plus one, and the bytes begin in the first
//! chunk. Both paths are hashed up to the children of the root in parallel, and the root is hashed
//! once, so that the node at which they meet stays hidden.

use std::sync::Arc;

use bellpepper_core::{ConstraintSystem, SynthesisError, num::AllocatedNum};
use ff::Field;

use crate::{
    circuit::{CircuitClaim, DIGEST_WORDS, digest_words, sum_to_variable},
    curve::Scalar,
    path::{AllocatedPath, CHUNK_BYTES, LeafPath, hash_parent},
    window::{self, HiddenBytes, allocate_window},
    word::{Byte, Word, WordSum, allocate_number, empty_name},
};

/// One leaf or two neighbours, and the position of the needle in their bytes.
pub(crate) struct NeedlePosition {
    pub(crate) leaves: Vec<LeafPath>,
    /// The index in the first leaf's chunk at which the needle begins.
    pub(crate) at: u32,
}

/// The number of leaves that are searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SearchedLeaves {
    Single,
    Neighbours,
}

/// The claim, for a tree of 2^depth leaves.
#[derive(Clone)]
pub(crate) struct ContainsClaim {
    pub(crate) depth: u8,
    pub(crate) leaves: SearchedLeaves,
    pub(crate) place: Option<Arc<NeedlePosition>>,
    pub(crate) direction: u8,
    pub(crate) root: [u8; 32],
    pub(crate) needle: Vec<u8>,
}

impl CircuitClaim for ContainsClaim {
    fn allocate<CS: ConstraintSystem<Scalar>>(
        &self,
        cs: &mut CS,
    ) -> Result<Vec<AllocatedNum<Scalar>>, SynthesisError> {
        let place = self.place.as_deref();
        let direction_value = place.map(|_| self.direction);
        let direction = Byte::allocate(cs, direction_value)?;
        let count = if self.leaves == SearchedLeaves::Single { 1 } else { 2 };
        let (mut paths, mut hashes) = (Vec::new(), Vec::new());
        for number in 0..count {
            let leaf = place.and_then(|place| place.leaves.get(number));
            let path = AllocatedPath::allocate(cs, leaf, self.depth)?;
            hashes.push(path.hash_leaf(cs, direction)?);
            paths.push(path);
        }
        if let [first, second] = paths.as_slice() {
            constrain_neighbours(cs, &first.index, &second.index);
        }
        let digests = hashes.iter().map(|hashed| hashed.digest.clone()).collect();
        let root = hash_to_root(cs, self.depth.into(), &paths, digests)?;
        let mut held =
            root.iter().map(|word| sum_to_variable(cs, word)).collect::<Result<Vec<_>, _>>()?;
        held.push(byte_to_variable(cs, direction, direction_value)?);
        let parts: Vec<HiddenBytes<'_>> = hashes
            .iter()
            .zip(&paths)
            .map(|(hashed, path)| HiddenBytes {
                hashed,
                length: path.leaf.map(|leaf| leaf.chunk.len()),
            })
            .collect();
        held.extend(allocate_window(cs, &parts, CHUNK_BYTES, place.map(|place| place.at))?);
        Ok(held)
    }

    fn public_integers(&self) -> Vec<u64> {
        let mut public = digest_words(&self.root).to_vec();
        public.push(self.direction.into());
        public.extend(window::needle_public_values(&self.needle));
        public
    }

    /// The root and the direction.
    fn exact_public_count(&self) -> usize {
        DIGEST_WORDS + 1
    }
}

/// Hashes all paths up to their common root. Two paths meet at the root at the latest, so the root
/// is hashed once for both.
fn hash_to_root<CS: ConstraintSystem<Scalar>>(
    cs: &mut CS,
    depth: usize,
    paths: &[AllocatedPath<'_>],
    mut nodes: Vec<[WordSum; 8]>,
) -> Result<[WordSum; 8], SynthesisError> {
    for level in 0..depth.saturating_sub(1) {
        for (node, path) in nodes.iter_mut().zip(paths) {
            *node = hash_parent(cs, level, &[(path, &*node)])?;
        }
    }
    match depth.checked_sub(1) {
        Some(level) => hash_parent(cs, level, &paths.iter().zip(&nodes).collect::<Vec<_>>()),
        None => nodes.pop().ok_or(SynthesisError::Unsatisfiable),
    }
}

/// Constrains the second index to be the first plus one. Both are below 2^depth, so the first leaf
/// is not the last one of the tree.
fn constrain_neighbours<CS: ConstraintSystem<Scalar>>(cs: &mut CS, first: &Word, second: &Word) {
    let one = CS::one();
    cs.enforce(
        empty_name,
        |form| second.add_to(first.add_to(form + one, one, Scalar::ONE), one, -Scalar::ONE),
        |form| form + one,
        |form| form,
    );
}

fn byte_to_variable<CS: ConstraintSystem<Scalar>>(
    cs: &mut CS,
    byte: Byte,
    value: Option<u8>,
) -> Result<AllocatedNum<Scalar>, SynthesisError> {
    let number = allocate_number(cs, value.map(u64::from))?;
    let one = CS::one();
    cs.enforce(
        empty_name,
        |form| byte.add_to(form, one, 1) - number.get_variable(),
        |form| form + one,
        |form| form,
    );
    Ok(number)
}
