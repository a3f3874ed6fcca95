//! A Merkle tree over a power of two leaves, and openings of several leaves at once.

use sha2::{Digest, Sha256};

/// The greatest depth of a tree: 2^18 leaves of 64 bytes are 16 MiB.
pub const DEPTH_MAX: u8 = 18;

/// The first byte of the input of an inner node's hash (RFC 6962 section 2.1), which distinguishes
/// inner nodes from leaves.
const NODE_TAG: u8 = 0x01;

/// The hash of a node.
pub type Hash = [u8; 32];

/// Hashes an inner node: SHA-256(0x01 ‖ left ‖ right).
pub(crate) fn hash_node(left: &Hash, right: &Hash) -> Hash {
    let mut input = [NODE_TAG; 65];
    input[1..33].copy_from_slice(left);
    input[33..].copy_from_slice(right);
    Sha256::digest(input).into()
}

/// All levels of the tree, from the leaves to the root.
pub struct MerkleTree(Vec<Vec<Hash>>);

impl MerkleTree {
    /// Makes a tree over a power of two leaves.
    pub fn new(leaves: Vec<Hash>) -> Self {
        debug_assert!(leaves.len().is_power_of_two());
        let mut levels = vec![leaves];
        while let Some(level) = levels.last().filter(|level| level.len() > 1) {
            let above = level.chunks_exact(2).map(|pair| hash_node(&pair[0], &pair[1])).collect();
            levels.push(above);
        }
        Self(levels)
    }

    /// The number of leaves.
    pub fn leaf_count(&self) -> usize {
        self.0.first().map_or(1, Vec::len)
    }

    /// The hash of the root.
    pub fn root(&self) -> Hash {
        self.0.last().and_then(|level| level.first()).copied().unwrap_or_default()
    }

    /// The nodes that the computation of the root from the leaves at `indices` (ascending, without
    /// duplicates) needs in addition: level by level from the leaves, left to right.
    pub fn siblings(&self, indices: &[u32]) -> Vec<Hash> {
        let mut known = indices.to_vec();
        let mut siblings = Vec::new();
        for level in &self.0[..self.0.len() - 1] {
            let mut above = Vec::with_capacity(known.len());
            let mut place = 0;
            while let Some(&index) = known.get(place) {
                let both = index & 1 == 0 && known.get(place + 1) == Some(&(index + 1));
                if !both {
                    siblings.push(level[(index ^ 1) as usize]);
                }
                above.push(index >> 1);
                place += 1 + usize::from(both);
            }
            known = above;
        }
        siblings
    }
}

/// Computes the root from opened leaves; `None` if indices, siblings and depth do not match
/// exactly.
pub fn compute_root(depth: u8, opened: &[(u32, Hash)], siblings: &[Hash]) -> Option<Hash> {
    let leaves = 1u32.checked_shl(depth.into()).filter(|_| depth <= DEPTH_MAX)?;
    let fits = opened.last().is_some_and(|(last, _)| *last < leaves);
    let ascending = opened.windows(2).all(|pair| pair[0].0 < pair[1].0);
    if !fits || !ascending {
        return None;
    }
    let mut known = opened.to_vec();
    let mut siblings = siblings.iter();
    for _ in 0..depth {
        let (mut read, mut write) = (0, 0);
        while let Some(&(index, hash)) = known.get(read) {
            let right = known.get(read + 1).filter(|(next, _)| *next == index ^ 1);
            let above = match right {
                Some((_, right)) => {
                    read += 1;
                    hash_node(&hash, right)
                }
                None if index & 1 == 0 => hash_node(&hash, siblings.next()?),
                None => hash_node(siblings.next()?, &hash),
            };
            known[write] = (index >> 1, above);
            (read, write) = (read + 1, write + 1);
        }
        known.truncate(write);
    }
    match (known.as_slice(), siblings.next()) {
        ([(0, root)], None) => Some(*root),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaves(count: u32) -> Vec<Hash> {
        (0..count).map(|index| Sha256::digest(index.to_be_bytes()).into()).collect()
    }

    #[test]
    fn every_set_of_leaves_of_a_small_tree_leads_to_its_root() {
        let leaves = leaves(8);
        let tree = MerkleTree::new(leaves.clone());
        for set in 1u32..256 {
            let indices: Vec<u32> = (0..8).filter(|index| set >> index & 1 == 1).collect();
            let opened: Vec<_> = indices.iter().map(|i| (*i, leaves[*i as usize])).collect();
            let siblings = tree.siblings(&indices);
            assert_eq!(compute_root(3, &opened, &siblings), Some(tree.root()), "{indices:?}");
            let mut more = siblings.clone();
            more.push([0; 32]);
            assert_eq!(compute_root(3, &opened, &more), None);
            if let Some((_, fewer)) = siblings.split_last() {
                assert_eq!(compute_root(3, &opened, fewer), None);
            }
            assert_ne!(compute_root(4, &opened, &siblings), Some(tree.root()));
        }
    }

    #[test]
    fn indices_out_of_order_twice_or_outside_lead_nowhere() {
        let leaves = leaves(8);
        let tree = MerkleTree::new(leaves.clone());
        let siblings = tree.siblings(&[1, 4]);
        let (one, four) = ((1, leaves[1]), (4, leaves[4]));
        assert!(compute_root(3, &[one, four], &siblings).is_some());
        for wrong in [vec![four, one], vec![one, one], vec![one, (12, leaves[4])], vec![]] {
            assert_eq!(compute_root(3, &wrong, &siblings), None);
        }
        assert_ne!(compute_root(3, &[(0, leaves[1]), four], &siblings), Some(tree.root()));
    }

    #[test]
    fn an_inner_node_is_no_leaf() {
        let tree = MerkleTree::new(leaves(8));
        let above = MerkleTree::new(tree.0[1].clone());
        assert_eq!(above.root(), tree.root());
        // With the signed depth, only the true leaves lead to the root.
        let opened = [(0, above.0[0][0])];
        assert_ne!(compute_root(3, &opened, &above.siblings(&[0])), Some(tree.root()));
    }
}
