//! The commitment to one direction while its bytes arrive, in memory that does not grow with them.

use zeroize::Zeroizing;

use crate::{
    seed::{SALT_BYTES, Seed, split_salts},
    transcript::{
        CHUNK_BYTES, Direction, DirectionCommitment, LEAVES_MIN, TRANSCRIPT_BYTES_MAX,
        TranscriptError, length_commitment, transcript_leaf,
    },
    tree::{Hash, hash_node},
};

/// Computes the commitment of a [`CommittedDirection`](crate::CommittedDirection) from bytes that come
/// in pieces.
#[derive(Clone)]
pub struct DirectionHasher {
    direction: Direction,
    seed: Seed,
    /// The bytes of a chunk that is not full.
    chunk: Zeroizing<[u8; CHUNK_BYTES]>,
    /// The number of all bytes.
    length: usize,
    /// The number of leaves.
    leaves: u32,
    /// The salt of the next leaf, if that has an odd index.
    salt: [u8; SALT_BYTES],
    /// The roots of whole subtrees, the largest and leftmost first: one for each bit of `leaves`.
    roots: Vec<Hash>,
}

impl DirectionHasher {
    /// A hasher without bytes, under salts from `seed`.
    pub fn new(seed: Seed, direction: Direction) -> Self {
        let chunk = Zeroizing::new([0; CHUNK_BYTES]);
        Self {
            direction,
            seed,
            chunk,
            length: 0,
            leaves: 0,
            salt: [0; SALT_BYTES],
            roots: Vec::new(),
        }
    }

    /// Takes the next bytes. Those beyond [`TRANSCRIPT_BYTES_MAX`] are counted and not hashed.
    pub fn update(&mut self, mut bytes: &[u8]) {
        let room = TRANSCRIPT_BYTES_MAX.saturating_sub(self.length);
        if bytes.len() > room {
            self.length = self.length.saturating_add(bytes.len());
            return;
        }
        while !bytes.is_empty() {
            let filled = self.length % CHUNK_BYTES;
            let count = bytes.len().min(CHUNK_BYTES - filled);
            let (taken, rest) = bytes.split_at(count);
            self.chunk[filled..filled + count].copy_from_slice(taken);
            self.length += count;
            bytes = rest;
            if self.length.is_multiple_of(CHUNK_BYTES) {
                self.add_leaf(CHUNK_BYTES);
            }
        }
    }

    /// The commitment to all bytes.
    ///
    /// # Errors
    ///
    /// [`TranscriptError::TooLong`] if there were more than [`TRANSCRIPT_BYTES_MAX`] bytes.
    pub fn finish(mut self) -> Result<DirectionCommitment, TranscriptError> {
        let (direction, length) = (self.direction, self.length);
        if length > TRANSCRIPT_BYTES_MAX {
            let limit = TRANSCRIPT_BYTES_MAX;
            return Err(TranscriptError::TooLong { direction, limit, got: length });
        }
        if !length.is_multiple_of(CHUNK_BYTES) {
            self.add_leaf(length % CHUNK_BYTES);
        }
        let count = self.leaves.next_power_of_two().max(LEAVES_MIN);
        while self.leaves < count {
            self.add_leaf(0);
        }
        let depth = count.ilog2() as u8;
        let salt = self.seed.salt(direction.length_purpose(), 0);
        let length = length_commitment(direction, depth, &salt, length as u64);
        Ok(DirectionCommitment { depth, length, root: self.roots[0] })
    }

    /// Adds a leaf with the first `count` bytes of the chunk.
    fn add_leaf(&mut self, count: usize) {
        let index = self.leaves;
        let salt = match index & 1 {
            0 => {
                let derived = self.seed.derive(self.direction.chunk_purpose(), index >> 1);
                let [salt, next] = split_salts(&derived);
                self.salt = next;
                salt
            }
            _ => self.salt,
        };
        let mut node = transcript_leaf(self.direction, index, &salt, &self.chunk[..count]);
        self.leaves += 1;
        // Each subtree that is now whole joins with its left neighbour of the same size.
        for _ in 0..self.leaves.trailing_zeros() {
            if let Some(left) = self.roots.pop() {
                node = hash_node(&left, &node);
            }
        }
        self.roots.push(node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transcript::CommittedDirection;

    #[test]
    fn pieces_give_the_commitment_of_the_whole() {
        let seed = Seed::from_bytes([3; 32]);
        let bytes: Vec<u8> = (0..40_000u32).map(|at| (at * 7 / 3) as u8).collect();
        let edges = [0, 1, 63, 64, 65, 1023, 1024, 1025, 4096, 4097, 40_000];
        for direction in [Direction::Request, Direction::Response] {
            for length in edges {
                let whole = CommittedDirection::new(&seed, direction, &bytes[..length]).unwrap();
                for piece in [1, 64, 100, 50_000] {
                    let mut hasher = DirectionHasher::new(seed.clone(), direction);
                    bytes[..length].chunks(piece).for_each(|piece| hasher.update(piece));
                    assert_eq!(hasher.finish().as_ref(), Ok(&whole.commitment()), "{length}");
                }
            }
        }
    }

    #[test]
    fn the_longest_direction_has_a_commitment_and_a_longer_one_none() {
        let block = vec![9; 1 << 20];
        let mut hasher = DirectionHasher::new(Seed::from_bytes([3; 32]), Direction::Response);
        for _ in 0..16 {
            hasher.update(&block);
        }
        let commitment = hasher.clone().finish().unwrap();
        assert_eq!(commitment.bucket_bytes(), TRANSCRIPT_BYTES_MAX as u64);
        hasher.update(&[9]);
        hasher.update(&block);
        let got = TRANSCRIPT_BYTES_MAX + 1 + block.len();
        let refused = hasher.finish();
        assert!(matches!(refused, Err(TranscriptError::TooLong { got: is, .. }) if is == got));
    }
}
