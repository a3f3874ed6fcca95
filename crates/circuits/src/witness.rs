//! The hidden part of a statement, which is checked before it is proved.

use sha2::{Digest, Sha256};

use crate::{
    error::CircuitError,
    path::{CHUNK_BYTES, LeafPath, SALT_BYTES},
    window::NEEDLE_BYTES,
};

/// The greatest length of the bytes that can be searched for.
pub const NEEDLE_BYTES_MOST: usize = NEEDLE_BYTES;

/// The public root and size of a tree of transcript leaves of `confide-disclosure`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublicTree<'a> {
    /// The root of the tree.
    pub root: &'a [u8; 32],
    /// The depth: the tree has 2^depth leaves.
    pub depth: u8,
    /// The byte for the direction in the hash of a leaf.
    pub direction: u8,
}

/// A leaf with its path, which stays hidden.
#[derive(Clone, Copy)]
pub struct HiddenLeaf<'a> {
    /// The index of the leaf, from 0.
    pub index: u32,
    /// The salt of the leaf.
    pub salt: &'a [u8; SALT_BYTES],
    /// The bytes of the leaf, at most 64.
    pub chunk: &'a [u8],
    /// The siblings of the nodes on its path, from the leaf upwards.
    pub siblings: &'a [[u8; 32]],
}

/// A field's salted value of `confide-disclosure`, which stays hidden.
#[derive(Clone, Copy)]
pub struct HiddenField<'a> {
    /// The salt of the value.
    pub salt: &'a [u8; SALT_BYTES],
    /// The canonical value, at most 1,024 bytes.
    pub value: &'a [u8],
}

impl HiddenLeaf<'_> {
    /// Converts the leaf to a witness, if it is under the root.
    pub(crate) fn to_leaf_path(self, tree: &PublicTree<'_>) -> Result<LeafPath, CircuitError> {
        let HiddenLeaf { index, salt, chunk, siblings } = self;
        if chunk.len() > CHUNK_BYTES {
            let (subject, least, most, got) = ("chunk", 0, CHUNK_BYTES, chunk.len());
            return Err(CircuitError::Length { subject, least, most, got });
        }
        if self.compute_root(tree) != Some(*tree.root) {
            return Err(CircuitError::FalseStatement {
                what: "leaf and path do not match the root",
            });
        }
        let (chunk, siblings) = (chunk.to_vec(), siblings.to_vec());
        Ok(LeafPath { index, salt: *salt, chunk, siblings })
    }

    /// The root computed from the leaf and its path.
    fn compute_root(&self, tree: &PublicTree<'_>) -> Option<[u8; 32]> {
        let HiddenLeaf { index, salt, chunk, siblings } = *self;
        if siblings.len() != usize::from(tree.depth) || index >> tree.depth != 0 {
            return None;
        }
        let index_bytes = index.to_be_bytes();
        let mut node = sha256_parts(&[&[0, tree.direction], &index_bytes, salt, chunk]);
        for (level, sibling) in siblings.iter().enumerate() {
            let (left, right) = match index >> level & 1 {
                0 => (&node, sibling),
                _ => (sibling, &node),
            };
            node = sha256_parts(&[&[1], left, right]);
        }
        Some(node)
    }
}

impl HiddenField<'_> {
    /// SHA-256(0x03 ‖ salt ‖ value).
    pub(crate) fn digest(&self) -> [u8; 32] {
        sha256_parts(&[&[3], self.salt, self.value])
    }
}

/// The index of the first occurrence of `needle` in `bytes`.
pub(crate) fn find_needle(bytes: &[u8], needle: &[u8]) -> Option<u32> {
    let place = bytes.windows(needle.len().max(1)).position(|window| window == needle)?;
    u32::try_from(place).ok()
}

pub(crate) fn check_needle(needle: &[u8]) -> Result<(), CircuitError> {
    let (subject, least, most, got) = ("text to search for", 1, NEEDLE_BYTES_MOST, needle.len());
    match (least..=most).contains(&got) {
        true => Ok(()),
        false => Err(CircuitError::Length { subject, least, most, got }),
    }
}

pub(crate) fn sha256_parts(parts: &[&[u8]]) -> [u8; 32] {
    let hash = parts.iter().fold(Sha256::new(), |hash, part| hash.chain_update(part));
    hash.finalize().into()
}
