//! The tree of salted chunks of one direction of a transcript, and openings of byte ranges.

use std::ops::Range;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::{
    codec::{FormatError, Reader, Writer},
    seed::{SALT_BYTES, SaltPurpose, Seed, split_salts},
    tree::{self, DEPTH_MAX, Hash, MerkleTree},
};

/// The number of bytes in a chunk; bytes are opened in whole chunks.
pub const CHUNK_BYTES: usize = 64;

/// The greatest length of a direction in bytes: 16 MiB.
pub const TRANSCRIPT_BYTES_MAX: usize = CHUNK_BYTES << DEPTH_MAX;

/// The least number of leaves of a direction, 1 KiB, so that short messages look alike.
pub(crate) const LEAVES_MIN: u32 = 16;

const LEAF_TAG: u8 = 0x00;
const LENGTH_TAG: u8 = 0x04;

/// The direction of the bytes of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// The bytes that the notary sent to the host.
    Request,
    /// The bytes that the notary received from the host.
    Response,
}

impl Direction {
    /// The byte of the direction in a hash.
    pub fn byte(self) -> u8 {
        match self {
            Direction::Request => 1,
            Direction::Response => 2,
        }
    }

    /// `request` or `response`.
    pub fn as_str(self) -> &'static str {
        match self {
            Direction::Request => "request",
            Direction::Response => "response",
        }
    }

    /// The purpose of the salts of its chunks.
    pub fn chunk_purpose(self) -> SaltPurpose {
        match self {
            Direction::Request => SaltPurpose::RequestChunk,
            Direction::Response => SaltPurpose::ResponseChunk,
        }
    }

    /// The purpose of the salt of its length.
    pub fn length_purpose(self) -> SaltPurpose {
        match self {
            Direction::Request => SaltPurpose::RequestLength,
            Direction::Response => SaltPurpose::ResponseLength,
        }
    }
}

/// A leaf: SHA-256(0x00 ‖ direction ‖ index ‖ salt ‖ chunk), the index big-endian, four bytes.
///
/// A chunk has 64 bytes, the last one of a direction the rest, and the padding after it none.
pub(crate) fn transcript_leaf(
    direction: Direction,
    index: u32,
    salt: &[u8; SALT_BYTES],
    chunk: &[u8],
) -> [u8; 32] {
    let mut input = [LEAF_TAG; 6 + SALT_BYTES + CHUNK_BYTES];
    input[1] = direction.byte();
    input[2..6].copy_from_slice(&index.to_be_bytes());
    input[6..22].copy_from_slice(salt);
    let chunk = &chunk[..chunk.len().min(CHUNK_BYTES)];
    input[22..22 + chunk.len()].copy_from_slice(chunk);
    Sha256::digest(&input[..22 + chunk.len()]).into()
}

/// The commitment to one direction, which the notary signs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectionCommitment {
    /// The depth: the tree has 2^depth leaves. A statement reveals only this bucket of the length.
    pub depth: u8,
    /// The commitment to the true length.
    pub length: [u8; 32],
    /// The root of the tree.
    pub root: [u8; 32],
}

impl DirectionCommitment {
    /// The number of bytes for which the tree has leaves. The length is at most this and, above the
    /// smallest bucket, more than half of it.
    pub fn bucket_bytes(&self) -> u64 {
        (CHUNK_BYTES as u64) << self.depth.min(DEPTH_MAX)
    }

    /// Writes the encoding.
    pub fn write(&self, writer: &mut Writer) {
        writer.u8(self.depth).raw(&self.length).raw(&self.root);
    }

    /// Reads the encoding.
    ///
    /// # Errors
    /// [`FormatError`] if the bytes are not one within its limits.
    pub fn read(reader: &mut Reader<'_>) -> Result<Self, FormatError> {
        let depth = reader.u8("depth of a transcript")?;
        if !(LEAVES_MIN.ilog2() as u8..=DEPTH_MAX).contains(&depth) {
            let subject = "depth of a transcript";
            return Err(FormatError::Value { subject, got: depth.into() });
        }
        let length = reader.array("commitment to a length")?;
        Ok(Self { depth, length, root: reader.array("root of a transcript")? })
    }
}

/// The reason why bytes could not be committed to or opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TranscriptError {
    /// A direction has more bytes than the deepest tree can have.
    #[error("{} has {got} bytes, wanted at most {limit}", .direction.as_str())]
    TooLong {
        /// The direction of the bytes.
        direction: Direction,
        /// The greatest number of bytes, [`TRANSCRIPT_BYTES_MAX`].
        limit: usize,
        /// The number of bytes that were given.
        got: usize,
    },
    /// A range is empty, reversed or not within the bytes.
    #[error("range {start}-{end} is not within the {length} bytes of the {}", .direction.as_str())]
    Range {
        /// The direction of the bytes.
        direction: Direction,
        /// The number of bytes in the direction.
        length: usize,
        /// The first byte that was wanted.
        start: u64,
        /// The byte after the last one.
        end: u64,
    },
}

/// A direction with its tree, which notary and holder both compute.
pub struct CommittedDirection<'a> {
    direction: Direction,
    seed: &'a Seed,
    bytes: &'a [u8],
    tree: MerkleTree,
}

impl<'a> CommittedDirection<'a> {
    /// Commits to `bytes`, under salts from `seed`.
    ///
    /// # Errors
    ///
    /// [`TranscriptError::TooLong`] for more than [`TRANSCRIPT_BYTES_MAX`] bytes.
    pub fn new(
        seed: &'a Seed,
        direction: Direction,
        bytes: &'a [u8],
    ) -> Result<Self, TranscriptError> {
        if bytes.len() > TRANSCRIPT_BYTES_MAX {
            let (limit, got) = (TRANSCRIPT_BYTES_MAX, bytes.len());
            return Err(TranscriptError::TooLong { direction, limit, got });
        }
        let chunks = bytes.len().div_ceil(CHUNK_BYTES);
        let count = chunks.next_power_of_two().max(LEAVES_MIN as usize);
        let mut leaves = Vec::with_capacity(count);
        for pair in 0..count as u32 / 2 {
            let salts = split_salts(&seed.derive(direction.chunk_purpose(), pair));
            for (index, salt) in [2 * pair, 2 * pair + 1].into_iter().zip(&salts) {
                leaves.push(transcript_leaf(direction, index, salt, chunk_at(bytes, index)));
            }
        }
        Ok(Self { direction, seed, bytes, tree: MerkleTree::new(leaves) })
    }

    /// The commitment that the notary signs.
    pub fn commitment(&self) -> DirectionCommitment {
        let LengthOpening { length, salt } = self.open_length();
        DirectionCommitment {
            depth: self.depth(),
            length: length_commitment(self.direction, self.depth(), &salt, length),
            root: self.tree.root(),
        }
    }

    /// Opens half-open ranges, extended to whole chunks.
    ///
    /// # Errors
    ///
    /// [`TranscriptError::Range`] for a range that is empty, reversed or beyond the bytes.
    pub fn open(&self, ranges: &[Range<u64>]) -> Result<TranscriptOpening, TranscriptError> {
        let mut indices = std::collections::BTreeSet::new();
        for range in ranges {
            let length = self.bytes.len();
            if range.start >= range.end || range.end > length as u64 {
                let (start, end) = (range.start, range.end);
                return Err(TranscriptError::Range {
                    direction: self.direction,
                    length,
                    start,
                    end,
                });
            }
            let chunk = CHUNK_BYTES as u64;
            indices.extend((range.start / chunk) as u32..=((range.end - 1) / chunk) as u32);
        }
        let indices: Vec<u32> = indices.into_iter().collect();
        let leaves = indices.iter().map(|index| self.open_leaf(*index)).collect();
        let siblings = match indices.as_slice() {
            [] => Vec::new(),
            indices => self.tree.siblings(indices),
        };
        Ok(TranscriptOpening { leaves, siblings })
    }

    /// Opens the true length, but no content.
    pub fn open_length(&self) -> LengthOpening {
        let salt = self.seed.salt(self.direction.length_purpose(), 0);
        LengthOpening { length: self.bytes.len() as u64, salt }
    }

    /// The salt and the chunk of one leaf, with the siblings on its path from the leaf upwards: a
    /// witness for a circuit, whose proof hides them.
    pub fn witness(&self, index: u32) -> Option<(OpenedLeaf, Vec<[u8; 32]>)> {
        let inside = (index as usize) < self.tree.leaf_count();
        inside.then(|| (self.open_leaf(index), self.tree.siblings(&[index])))
    }

    fn open_leaf(&self, index: u32) -> OpenedLeaf {
        let salt = self.seed.salt(self.direction.chunk_purpose(), index);
        OpenedLeaf { index, salt, chunk: chunk_at(self.bytes, index).to_vec() }
    }

    fn depth(&self) -> u8 {
        self.tree.leaf_count().ilog2() as u8
    }
}

/// An opened leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenedLeaf {
    /// The index of the leaf, from 0.
    pub index: u32,
    /// The salt of the leaf, which opens only this leaf.
    pub salt: [u8; SALT_BYTES],
    /// The bytes of the leaf, 0 to 64.
    pub chunk: Vec<u8>,
}

/// Leaves of one direction, and the nodes that are needed to compute its root from them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TranscriptOpening {
    /// The opened leaves, in ascending order of their index.
    pub leaves: Vec<OpenedLeaf>,
    /// The nodes that the computation of the root needs and the leaves do not determine, level by
    /// level from the leaves, left to right.
    pub siblings: Vec<[u8; 32]>,
}

/// The true length of a direction, and the salt of its commitment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LengthOpening {
    /// The number of bytes in the direction.
    pub length: u64,
    /// The salt of the commitment to the length.
    pub salt: [u8; SALT_BYTES],
}

/// Bytes that a third party may rely on, with their offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownBytes {
    /// The offset of the first byte in its direction.
    pub start: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// The reason why an opening does not belong to the signed commitment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpeningError {
    /// The opened leaves and nodes have another root.
    #[error("opened {what} do not match the signed root")]
    Root {
        /// The part that was opened: `request bytes`, `response bytes` or `fields`.
        what: &'static str,
    },
    /// A chunk follows one that is not full.
    #[error("opened {what} continue after the end of the transcript")]
    AfterEnd {
        /// The part that was opened: `request bytes` or `response bytes`.
        what: &'static str,
    },
    /// The length does not match the signed commitment.
    #[error("opened length of the {what} does not match the signed commitment")]
    Length {
        /// The direction of the length: `request` or `response`.
        what: &'static str,
    },
}

impl TranscriptOpening {
    /// Checks this opening against a signed commitment, and returns the opened bytes of
    /// `direction`.
    ///
    /// # Errors
    ///
    /// [`OpeningError::Root`] if leaves and siblings do not match the signed root, or a chunk is
    /// longer than [`CHUNK_BYTES`]; [`OpeningError::AfterEnd`] if a chunk follows one that is not
    /// full.
    pub fn check(
        &self,
        direction: Direction,
        commitment: &DirectionCommitment,
    ) -> Result<Vec<ShownBytes>, OpeningError> {
        let what = match direction {
            Direction::Request => "request bytes",
            Direction::Response => "response bytes",
        };
        let hash = |leaf: &OpenedLeaf| {
            (leaf.index, transcript_leaf(direction, leaf.index, &leaf.salt, &leaf.chunk))
        };
        if self.leaves.iter().any(|leaf| leaf.chunk.len() > CHUNK_BYTES) {
            return Err(OpeningError::Root { what });
        }
        let opened: Vec<(u32, Hash)> = self.leaves.iter().map(hash).collect();
        if tree::compute_root(commitment.depth, &opened, &self.siblings) != Some(commitment.root) {
            return Err(OpeningError::Root { what });
        }
        let ended =
            |pair: &[OpenedLeaf]| pair[0].chunk.len() < CHUNK_BYTES && !pair[1].chunk.is_empty();
        if self.leaves.windows(2).any(ended) {
            return Err(OpeningError::AfterEnd { what });
        }
        Ok(join_chunks(&self.leaves))
    }

    /// Writes the encoding.
    pub fn write(&self, writer: &mut Writer) {
        writer.u32(self.leaves.len() as u32);
        for OpenedLeaf { index, salt, chunk } in &self.leaves {
            writer.u32(*index).raw(salt).u8(chunk.len() as u8).raw(chunk);
        }
        write_siblings(writer, &self.siblings);
    }

    /// Reads the encoding.
    ///
    /// # Errors
    /// [`FormatError`] if the bytes are not one within its limits.
    pub fn read(reader: &mut Reader<'_>) -> Result<Self, FormatError> {
        let mut leaves = Vec::new();
        for _ in 0..reader.limited_count(1 << DEPTH_MAX, "opened leaves")? {
            let index = reader.u32("index of a leaf")?;
            let salt = reader.array("salt of a leaf")?;
            let length = usize::from(reader.u8("length of a chunk")?);
            if length > CHUNK_BYTES {
                let subject = "length of a chunk";
                return Err(FormatError::TooLong { subject, limit: CHUNK_BYTES, got: length });
            }
            let chunk = reader.raw(length, "chunk")?.to_vec();
            leaves.push(OpenedLeaf { index, salt, chunk });
        }
        if leaves.windows(2).any(|pair| pair[0].index >= pair[1].index) {
            return Err(FormatError::Order { subject: "opened leaves" });
        }
        Ok(Self { leaves, siblings: read_siblings(reader)? })
    }
}

impl LengthOpening {
    /// Checks this opening against a signed commitment, and returns the opened length.
    ///
    /// # Errors
    ///
    /// [`OpeningError::Length`] if length and salt do not match the commitment.
    pub fn check(
        &self,
        direction: Direction,
        commitment: &DirectionCommitment,
    ) -> Result<u64, OpeningError> {
        let got = length_commitment(direction, commitment.depth, &self.salt, self.length);
        match bool::from(got.ct_eq(&commitment.length)) {
            true => Ok(self.length),
            false => Err(OpeningError::Length { what: direction.as_str() }),
        }
    }
}

/// Writes nodes, after their number.
pub fn write_siblings(writer: &mut Writer, siblings: &[Hash]) {
    writer.u32(siblings.len() as u32);
    for sibling in siblings {
        writer.raw(sibling);
    }
}

/// Reads nodes, after their number.
///
/// # Errors
/// [`FormatError`] if there are too many or too few.
pub fn read_siblings(reader: &mut Reader<'_>) -> Result<Vec<Hash>, FormatError> {
    let count = reader.limited_count(1 << DEPTH_MAX, "nodes of an opening")?;
    (0..count).map(|_| reader.array("node of an opening")).collect()
}

/// SHA-256(0x04 ‖ direction ‖ depth ‖ salt ‖ length), the length big-endian, eight bytes.
pub(crate) fn length_commitment(
    direction: Direction,
    depth: u8,
    salt: &[u8; SALT_BYTES],
    length: u64,
) -> [u8; 32] {
    Sha256::new()
        .chain_update([LENGTH_TAG, direction.byte(), depth])
        .chain_update(salt)
        .chain_update(length.to_be_bytes())
        .finalize()
        .into()
}

fn chunk_at(bytes: &[u8], index: u32) -> &[u8] {
    let start = (index as usize * CHUNK_BYTES).min(bytes.len());
    &bytes[start..(start + CHUNK_BYTES).min(bytes.len())]
}

/// Joins neighbouring chunks to one piece.
fn join_chunks(leaves: &[OpenedLeaf]) -> Vec<ShownBytes> {
    let mut shown: Vec<ShownBytes> = Vec::new();
    for leaf in leaves {
        let start = u64::from(leaf.index) * CHUNK_BYTES as u64;
        match shown.last_mut() {
            Some(last) if last.start + last.bytes.len() as u64 == start => {
                last.bytes.extend_from_slice(&leaf.chunk);
            }
            _ => shown.push(ShownBytes { start, bytes: leaf.chunk.clone() }),
        }
    }
    shown
}

#[cfg(test)]
#[path = "transcript_tests.rs"]
mod tests;
