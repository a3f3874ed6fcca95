//! One quote for many sessions: a Merkle tree over their binders, and each session's path in it.
//!
//! A device makes about 25 quotes a second, one after the other. So the binders of all waiting
//! sessions become the leaves of a tree, the device signs the tree's root, and each session shows
//! the path from its own binder to that root. The argument is in `docs/channel.md`, "Batches".
//!
//! ```text
//! leaf        = SHA-256(0x00 || salt || binder)             1 + 32 + 64 bytes
//! node        = SHA-256(0x01 || left || right)              1 + 32 + 32 bytes
//! report data = SHA-512("confide batch v1" || 0x00 || size || root)   17 + 2 + 32 bytes
//! ```
//!
//! The shape is that of RFC 9162 section 2.1: an odd node at the end of a level moves up as it is
//! and is never doubled, so no two lists of leaves have the same tree. The size is in the report
//! data, so index and size of a path can be read in one way only.

use alloc::vec::Vec;

use sha2::{Digest, Sha256, Sha512};

use crate::report_data::ReportData;

/// Begins what is hashed to the root's report data. No session binder begins like this
/// (`binder::SESSION_DOMAIN`), so a binder is never taken for a root, nor a root for one.
const BATCH_DOMAIN: &[u8] = b"confide batch v1\0";

/// The first byte of an encoded path. Another format is another number and another domain.
const BATCH_VERSION: u8 = 1;

/// The most sessions under one quote: ten siblings in a path (320 bytes), and a tree that takes
/// about one millisecond to build next to a quote of 39 ms.
pub const BATCH_MAX: usize = 1024;

/// The fewest sessions under one quote: a session alone has its binder signed as it is and needs no path.
const BATCH_MIN: usize = 2;

/// The longest path, in siblings: the height of a tree with [`BATCH_MAX`] leaves.
const BATCH_DEPTH_MAX: usize = BATCH_MAX.ilog2() as usize;

/// Length in bytes of a leaf's salt.
pub const SALT_BYTES: usize = 32;

/// Length in bytes of version, size, index and salt, which precede the siblings.
const PATH_HEAD_BYTES: usize = 1 + 2 + 2 + SALT_BYTES;

/// Length in bytes of a node.
const NODE_BYTES: usize = 32;

/// The longest encoding of a path.
pub const BATCH_PATH_BYTES_MAX: usize = PATH_HEAD_BYTES + BATCH_DEPTH_MAX * NODE_BYTES;

/// SHA-256 in the tree: a forger needs a second preimage of a node that the attester made from
/// salts of its own, which takes 2^256 work (2^128 on a quantum computer), the strength of the rest
/// of the channel. SHA-512 would double the path for no gain. Only the root is widened to 64
/// bytes, by SHA-512, because report data has that length.
type Node = [u8; NODE_BYTES];

const LEAF_TAG: [u8; 1] = [0];
const NODE_TAG: [u8; 1] = [1];

/// The leaf of one session in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// The session's binder: what its quote would sign if it were alone.
    pub binder: ReportData,
    /// Random and used once. It goes into this session's path and nowhere else, so the sibling
    /// that others see tells nothing about the binder, not even to somebody who can guess it.
    pub salt: [u8; SALT_BYTES],
}

/// The tree over the binders of one batch.
#[derive(Clone, Debug)]
pub struct BatchTree {
    /// Level 0 holds the leaves' hashes, the last one the root.
    levels: Vec<Vec<Node>>,
    salts: Vec<[u8; SALT_BYTES]>,
}

impl BatchTree {
    /// Builds the tree over `leaves`, two to [`BATCH_MAX`] of them.
    ///
    /// # Errors
    /// [`BatchPathError::Size`] if there are fewer than two leaves or more than [`BATCH_MAX`].
    pub fn new(leaves: &[Leaf]) -> Result<Self, BatchPathError> {
        check_size(leaves.len())?;
        let mut level: Vec<Node> = leaves.iter().map(leaf_hash).collect();
        let mut levels = Vec::with_capacity(BATCH_DEPTH_MAX + 1);
        while level.len() > 1 {
            let parents = level.chunks(2).map(|pair| match pair {
                [left, right] => node_hash(left, right),
                odd => odd[0],
            });
            let parents = parents.collect();
            levels.push(core::mem::replace(&mut level, parents));
        }
        levels.push(level);
        Ok(Self { levels, salts: leaves.iter().map(|leaf| leaf.salt).collect() })
    }

    /// The report data that the device has to sign for this batch.
    pub fn report_data(&self) -> ReportData {
        let root = self.levels.last().and_then(|level| level.first());
        root_report_data(self.salts.len(), root.unwrap_or(&[0; NODE_BYTES]))
    }

    /// The path of the leaf at `index`, if there is one.
    pub fn path(&self, index: usize) -> Option<BatchPath> {
        let salt = *self.salts.get(index)?;
        let size = self.salts.len();
        let siblings = PathSteps::new(index, size)
            .enumerate()
            .filter_map(|(height, side)| {
                let at = index >> height;
                match side {
                    SiblingSide::OnTheLeft => self.levels[height].get(at - 1),
                    SiblingSide::OnTheRight => self.levels[height].get(at + 1),
                    SiblingSide::None => None,
                }
            })
            .copied()
            .collect();
        Some(BatchPath { index: index as u16, size: size as u16, salt, siblings })
    }
}

/// The way from one leaf to the root: it proves one position in one tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchPath {
    index: u16,
    size: u16,
    salt: [u8; SALT_BYTES],
    /// The siblings from the leaf upwards; index and size determine their number.
    siblings: Vec<Node>,
}

impl BatchPath {
    /// The leaf's position, from 0.
    pub fn index(&self) -> usize {
        self.index.into()
    }

    /// The number of sessions that share the quote.
    pub fn size(&self) -> usize {
        self.size.into()
    }

    /// The report data that the quote must hold if `binder` is at this path's position.
    ///
    /// The verifier compares it with the report data of the quote.
    pub fn root_report_data(&self, binder: &ReportData) -> ReportData {
        let mut node = leaf_hash(&Leaf { binder: *binder, salt: self.salt });
        let mut siblings = self.siblings.iter();
        for side in PathSteps::new(self.index(), self.size()) {
            // Every path, built or decoded, has as many siblings as it has steps that need one.
            node = match (side, side.next_sibling(&mut siblings)) {
                (SiblingSide::OnTheLeft, Some(left)) => node_hash(left, &node),
                (SiblingSide::OnTheRight, Some(right)) => node_hash(&node, right),
                _ => node,
            };
        }
        root_report_data(self.size(), &node)
    }

    /// The one encoding: version, size and index (big-endian u16), salt, siblings.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(PATH_HEAD_BYTES + self.siblings.len() * NODE_BYTES);
        bytes.push(BATCH_VERSION);
        bytes.extend_from_slice(&self.size.to_be_bytes());
        bytes.extend_from_slice(&self.index.to_be_bytes());
        bytes.extend_from_slice(&self.salt);
        bytes.extend_from_slice(self.siblings.as_flattened());
        bytes
    }

    /// Reads a path. Version, size and index settle its length, so there is one encoding only.
    ///
    /// # Errors
    /// [`BatchPathError::Length`] if the bytes are not as long as size and index demand,
    /// [`BatchPathError::Version`], [`BatchPathError::Size`] and [`BatchPathError::Index`] if
    /// that field is out of range.
    pub fn decode(bytes: &[u8]) -> Result<Self, BatchPathError> {
        let got = bytes.len();
        let head = bytes.split_first_chunk::<PATH_HEAD_BYTES>();
        let (head, rest) = head.ok_or(BatchPathError::Length { wanted: PATH_HEAD_BYTES, got })?;
        let [version, size_high, size_low, index_high, index_low, salt @ ..] = *head;
        if version != BATCH_VERSION {
            return Err(BatchPathError::Version { wanted: BATCH_VERSION, got: version });
        }
        let size = u16::from_be_bytes([size_high, size_low]);
        check_size(size.into())?;
        let index = u16::from_be_bytes([index_high, index_low]);
        if index >= size {
            return Err(BatchPathError::Index { index: index.into(), size: size.into() });
        }
        let steps = PathSteps::new(index.into(), size.into());
        let depth = steps.filter(|side| *side != SiblingSide::None).count();
        let (siblings, odd) = rest.as_chunks::<NODE_BYTES>();
        if siblings.len() != depth || !odd.is_empty() {
            return Err(BatchPathError::Length {
                wanted: PATH_HEAD_BYTES + depth * NODE_BYTES,
                got,
            });
        }
        Ok(Self { index, size, salt, siblings: siblings.to_vec() })
    }
}

/// Why bytes are no path, or sessions no batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchPathError {
    /// The path has another version of this format.
    #[error("batch path is of version {got}, wanted {wanted}")]
    Version {
        /// The version that is read.
        wanted: u8,
        /// The version that came.
        got: u8,
    },
    /// A batch has too few or too many sessions.
    #[error("batch holds {got} sessions, wanted 2 to 1024")]
    Size {
        /// The number that came.
        got: usize,
    },
    /// The position lies outside the tree.
    #[error("batch path is for position {index}, wanted one below {size}")]
    Index {
        /// The position that came.
        index: usize,
        /// The number of leaves of the tree.
        size: usize,
    },
    /// The path is longer or shorter than index and size demand.
    #[error("batch path is {got} bytes, wanted {wanted}")]
    Length {
        /// Bytes that were wanted.
        wanted: usize,
        /// Bytes that came.
        got: usize,
    },
}

/// The side on which a node's sibling stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SiblingSide {
    OnTheLeft,
    OnTheRight,
    /// The odd node at the end of a level, which moves up as it is.
    None,
}

impl SiblingSide {
    fn next_sibling<'a>(self, siblings: &mut core::slice::Iter<'a, Node>) -> Option<&'a Node> {
        if self == SiblingSide::None { None } else { siblings.next() }
    }
}

/// One step per level, from the leaf upwards (RFC 9162 section 2.1.3.2).
struct PathSteps {
    at: usize,
    last: usize,
}

impl PathSteps {
    fn new(index: usize, size: usize) -> Self {
        Self { at: index, last: size - 1 }
    }
}

impl Iterator for PathSteps {
    type Item = SiblingSide;

    fn next(&mut self) -> Option<SiblingSide> {
        if self.last == 0 {
            return None;
        }
        let side = match self.at {
            at if at % 2 == 1 => SiblingSide::OnTheLeft,
            at if at < self.last => SiblingSide::OnTheRight,
            _ => SiblingSide::None,
        };
        self.at /= 2;
        self.last /= 2;
        Some(side)
    }
}

fn check_size(got: usize) -> Result<(), BatchPathError> {
    match got {
        BATCH_MIN..=BATCH_MAX => Ok(()),
        _ => Err(BatchPathError::Size { got }),
    }
}

fn leaf_hash(leaf: &Leaf) -> Node {
    let hash = Sha256::new().chain_update(LEAF_TAG).chain_update(leaf.salt);
    hash.chain_update(leaf.binder).finalize().into()
}

fn node_hash(left: &Node, right: &Node) -> Node {
    Sha256::new().chain_update(NODE_TAG).chain_update(left).chain_update(right).finalize().into()
}

fn root_report_data(size: usize, root: &Node) -> ReportData {
    let hash = Sha512::new().chain_update(BATCH_DOMAIN).chain_update((size as u16).to_be_bytes());
    ReportData(hash.chain_update(root).finalize().into())
}

#[cfg(test)]
mod tests {
    use alloc::{format, vec};

    use super::*;
    use crate::binder::{Role, session_report_data};

    /// Sizes around every power of two, small ones all, and the largest.
    const SIZES: [usize; 22] =
        [2, 3, 4, 5, 6, 7, 8, 9, 13, 15, 16, 17, 31, 33, 64, 100, 127, 128, 129, 513, 1023, 1024];

    fn leaves(size: usize) -> Vec<Leaf> {
        let leaf = |n: usize| {
            let exporter = Sha256::digest(format!("exporter {n}")).into();
            let binder = session_report_data(Role::Server, &[1; 32], &exporter, b"claims");
            Leaf { binder, salt: Sha256::digest(format!("salt {n}")).into() }
        };
        (0..size).map(leaf).collect()
    }

    /// What the fast and the slow way have in common.
    trait Tree {
        fn report_data(leaves: &[Leaf]) -> ReportData;
        fn paths(leaves: &[Leaf]) -> Vec<BatchPath>;
    }

    struct Fast;

    impl Tree for Fast {
        fn report_data(leaves: &[Leaf]) -> ReportData {
            BatchTree::new(leaves).unwrap().report_data()
        }

        fn paths(leaves: &[Leaf]) -> Vec<BatchPath> {
            let tree = BatchTree::new(leaves).unwrap();
            (0..leaves.len()).map(|index| tree.path(index).unwrap()).collect()
        }
    }

    /// The recursive definitions of RFC 9162 sections 2.1.1 and 2.1.3.1, word for word.
    struct Slow;

    impl Slow {
        fn split(size: usize) -> usize {
            let mut k = 1;
            while k * 2 < size {
                k *= 2;
            }
            k
        }

        fn hash(leaves: &[Leaf]) -> Node {
            match leaves {
                [leaf] => leaf_hash(leaf),
                _ => {
                    let (left, right) = leaves.split_at(Self::split(leaves.len()));
                    node_hash(&Self::hash(left), &Self::hash(right))
                }
            }
        }

        fn siblings(index: usize, leaves: &[Leaf]) -> Vec<Node> {
            if leaves.len() == 1 {
                return Vec::new();
            }
            let k = Self::split(leaves.len());
            let (left, right) = leaves.split_at(k);
            let (mut path, other) = match index < k {
                true => (Self::siblings(index, left), Self::hash(right)),
                false => (Self::siblings(index - k, right), Self::hash(left)),
            };
            path.push(other);
            path
        }
    }

    impl Tree for Slow {
        fn report_data(leaves: &[Leaf]) -> ReportData {
            root_report_data(leaves.len(), &Self::hash(leaves))
        }

        fn paths(leaves: &[Leaf]) -> Vec<BatchPath> {
            let path = |(index, leaf): (usize, &Leaf)| BatchPath {
                index: index as u16,
                size: leaves.len() as u16,
                salt: leaf.salt,
                siblings: Self::siblings(index, leaves),
            };
            // All of them would take minutes at 1,024; both ends and a stride between them do.
            let stride = leaves.len().div_ceil(40);
            leaves.iter().enumerate().filter(|(n, _)| n % stride == 0).map(path).collect()
        }
    }

    fn every_path_leads_to_the_root<T: Tree>() {
        for size in SIZES {
            let leaves = leaves(size);
            let root = T::report_data(&leaves);
            for path in T::paths(&leaves) {
                let binder = &leaves[path.index()].binder;
                assert_eq!(path.root_report_data(binder), root, "{size}");
                assert_eq!(BatchPath::decode(&path.encode()), Ok(path.clone()));
                assert!(path.encode().len() <= BATCH_PATH_BYTES_MAX);
                let other = &leaves[(path.index() + 1) % size].binder;
                assert_ne!(path.root_report_data(other), root, "{size}");
            }
        }
    }

    #[test]
    fn every_path_leads_to_the_root_both_ways() {
        every_path_leads_to_the_root::<Fast>();
        every_path_leads_to_the_root::<Slow>();
    }

    #[test]
    fn the_fast_tree_is_the_slow_tree() {
        for size in SIZES {
            let leaves = leaves(size);
            assert_eq!(Fast::report_data(&leaves), Slow::report_data(&leaves), "{size}");
            let fast = Fast::paths(&leaves);
            for path in Slow::paths(&leaves) {
                assert_eq!(fast[path.index()], path, "{size}");
            }
        }
    }

    #[test]
    fn a_batch_of_none_of_one_and_of_too_many_is_refused() {
        for got in [0, 1, 1025] {
            let result = BatchTree::new(&leaves(got)).map(drop);
            assert_eq!(result, Err(BatchPathError::Size { got }));
        }
        assert!(BatchTree::new(&leaves(2)).unwrap().path(2).is_none());
    }

    #[test]
    fn every_bit_of_a_path_counts() {
        for size in [2, 3, 7, 128] {
            let leaves = leaves(size);
            let tree = BatchTree::new(&leaves).unwrap();
            for index in [0, size / 2, size - 1] {
                let bytes = tree.path(index).unwrap().encode();
                for bit in 0..bytes.len() * 8 {
                    let mut flipped = bytes.clone();
                    flipped[bit / 8] ^= 1 << (bit % 8);
                    if let Ok(path) = BatchPath::decode(&flipped) {
                        assert_eq!(path.encode(), flipped);
                        let root = path.root_report_data(&leaves[index].binder);
                        assert_ne!(root, tree.report_data(), "bit {bit} of {index}/{size}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_path_is_read_in_one_length_only() {
        let path = BatchTree::new(&leaves(7)).unwrap().path(3).unwrap();
        let bytes = path.encode();
        for len in 0..bytes.len() {
            let result = BatchPath::decode(&bytes[..len]);
            assert!(matches!(result, Err(BatchPathError::Length { .. })), "{len}");
        }
        for more in [1, 32] {
            let longer = [bytes.clone(), vec![0; more]].concat();
            let (wanted, got) = (bytes.len(), longer.len());
            let result = BatchPath::decode(&longer);
            assert_eq!(result, Err(BatchPathError::Length { wanted, got }));
        }
    }

    #[test]
    fn version_size_and_index_out_of_bounds_are_named() {
        let good = BatchTree::new(&leaves(4)).unwrap().path(1).unwrap().encode();
        let with = |at: usize, value: u16| {
            let mut bytes = good.clone();
            bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
            BatchPath::decode(&bytes)
        };
        for got in [0, 1, 1025, u16::MAX] {
            assert_eq!(with(1, got), Err(BatchPathError::Size { got: got.into() }));
        }
        for index in [4, u16::MAX] {
            let index = usize::from(index);
            let wanted = BatchPathError::Index { index, size: 4 };
            assert_eq!(with(3, index as u16), Err(wanted));
        }
        let mut other = good.clone();
        other[0] = 2;
        let wanted = BatchPathError::Version { wanted: 1, got: 2 };
        assert_eq!(BatchPath::decode(&other), Err(wanted));
    }

    #[test]
    fn the_same_nodes_in_a_tree_of_another_size_have_another_root() {
        // A tree that doubles its odd leaf would have the same root for both.
        let three = leaves(3);
        let four = [three[0], three[1], three[2], three[2]];
        assert_ne!(Fast::report_data(&three), Fast::report_data(&four));
        // An inner node presented as a leaf: the tag and the length of a leaf tell them apart.
        let tree = BatchTree::new(&leaves(4)).unwrap();
        let mut short = tree.path(0).unwrap();
        short.size = 2;
        short.siblings.remove(0);
        assert_ne!(short.root_report_data(&leaves(4)[0].binder), tree.report_data());
    }

    #[test]
    fn a_salt_hides_a_binder_from_its_neighbours() {
        let mut leaves = leaves(2);
        let before = BatchTree::new(&leaves).unwrap().path(1).unwrap();
        leaves[0].salt = [9; 32];
        let after = BatchTree::new(&leaves).unwrap().path(1).unwrap();
        assert_ne!(before.siblings, after.siblings);
        assert_eq!(before.salt, after.salt);
    }
}
