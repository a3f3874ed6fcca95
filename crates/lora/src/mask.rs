//! Masks of both ends: ChaCha20 streams that can be read from any token.
//!
//! A stream is divided into *tiles* of 32 columns (or rows of an answer). Tile `i` is the ChaCha20
//! stream (RFC 8439, 32-bit block counter) of nonce `i`. In it, token `n` has the 256 bytes from
//! `256·n` on, which are 32 words of 64 bits, least significant byte first, truncated to `k` bits. A
//! word truncated to its lowest `k` bits is uniform mod 2^k. Offline, a party reads one tile for all
//! tokens; online, it reads one token of all tiles. Both are whole blocks, so a party only stores the
//! key.

use std::ops::Range;

use chacha20::{
    ChaCha20,
    cipher::{KeyIvInit, StreamCipher, StreamCipherSeek},
};
use confide_rlwe::Rng;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use zeroize::{Zeroize, Zeroizing};

use crate::{int_matrix::low_mask, site::LayerInput};

/// The number of columns of one tile.
pub(crate) const TILE: usize = 32;

/// The number of bytes of a token in a tile.
const TOKEN_BYTES: usize = TILE * 8;

/// The number of tokens that are read from the cipher at once.
const TOKENS_AT_ONCE: usize = 16;

/// Separates the answers' masks from other uses of the process key.
const ANSWER_DOMAIN: &[u8] = b"confide lora answer mask v1";

/// A stream of masks from a secret key of 32 bytes, which is wiped when the stream is dropped.
pub(crate) struct MaskStream {
    key: Zeroizing<[u8; 32]>,
}

/// The key of one host process, from which the masks of its answers are derived. It exists in memory
/// only and cannot be cloned or exported.
pub struct ProcessKey {
    key: Zeroizing<[u8; 32]>,
    epoch: HostEpoch,
}

/// The id of one host process, drawn at random at its start. Requests of another epoch are refused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostEpoch(pub [u8; 16]);

/// The owner of a sequence of counters: one client, for one vector of one layer of one adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CounterSlot {
    /// The id of the client, or of the account that it belongs to.
    pub client: [u8; 32],
    /// The adapter, as the hash of its name or of its weights.
    pub adapter: [u8; 32],
    /// The layer, from 0.
    pub layer: u32,
    /// The vector of the layer.
    pub input: LayerInput,
}

impl MaskStream {
    /// Makes a stream under a fresh key.
    pub(crate) fn random(rng: &mut Rng) -> Self {
        let mut key = Zeroizing::new([0; 32]);
        rng.fill_bytes(key.as_mut());
        MaskStream { key }
    }

    /// The masks of one tile for all `tokens`: 32 vectors of one word for each token.
    pub(crate) fn column_masks(
        &self,
        tile: usize,
        tokens: Range<u32>,
        bits: u32,
    ) -> Vec<Zeroizing<Vec<u64>>> {
        let count = tokens.len();
        let mut columns: Vec<_> = (0..TILE).map(|_| Zeroizing::new(vec![0; count])).collect();
        self.for_each_token(tile, tokens, bits, |token, words| {
            for (column, word) in columns.iter_mut().zip(words) {
                column[token] = *word;
            }
        });
        columns
    }

    /// Writes rows of `columns` words for `tokens`, one token after the other, into `rows`.
    pub(crate) fn fill_row_masks(
        &self,
        tokens: Range<u32>,
        columns: usize,
        bits: u32,
        rows: &mut [u64],
    ) {
        debug_assert_eq!(rows.len(), tokens.len() * columns);
        for tile in 0..columns.div_ceil(TILE) {
            let first = tile * TILE;
            let width = TILE.min(columns - first);
            self.for_each_token(tile, tokens.clone(), bits, |token, words| {
                rows[token * columns + first..][..width].copy_from_slice(&words[..width]);
            });
        }
    }

    fn for_each_token(
        &self,
        tile: usize,
        tokens: Range<u32>,
        bits: u32,
        mut each: impl FnMut(usize, &[u64; TILE]),
    ) {
        let mut nonce = [0; 12];
        nonce[..8].copy_from_slice(&(tile as u64).to_le_bytes());
        let mut cipher = ChaCha20::new((&*self.key).into(), (&nonce).into());
        cipher.seek(u64::from(tokens.start) * TOKEN_BYTES as u64);
        let (all, mut token) = (tokens.len(), 0);
        let mut next = |words: &[u64; TILE]| {
            each(token, words);
            token += 1;
        };
        // Wiping a buffer takes longer than filling it, so single tokens use a smaller one.
        let many = all / TOKENS_AT_ONCE * TOKENS_AT_ONCE;
        if many > 0 {
            read_token_masks::<{ TOKEN_BYTES * TOKENS_AT_ONCE }>(
                &mut cipher,
                many,
                bits,
                &mut next,
            );
        }
        if many < all {
            read_token_masks::<TOKEN_BYTES>(&mut cipher, all - many, bits, &mut next);
        }
    }
}

/// Reads `tokens` tokens from the cipher, in chunks of `BYTES` bytes.
fn read_token_masks<const BYTES: usize>(
    cipher: &mut ChaCha20,
    tokens: usize,
    bits: u32,
    each: &mut impl FnMut(&[u64; TILE]),
) {
    let mask = low_mask(bits);
    let mut bytes = Zeroizing::new([0u8; BYTES]);
    let mut words = Zeroizing::new([0u64; TILE]);
    for _ in 0..tokens / (BYTES / TOKEN_BYTES) {
        cipher.write_keystream(&mut *bytes);
        for part in bytes.as_chunks::<TOKEN_BYTES>().0 {
            for (word, bytes) in words.iter_mut().zip(part.as_chunks::<8>().0) {
                *word = u64::from_le_bytes(*bytes) & mask;
            }
            each(&words);
        }
    }
}

impl ProcessKey {
    /// Draws a fresh key and epoch.
    pub fn random(rng: &mut Rng) -> Self {
        let mut key = Zeroizing::new([0; 32]);
        rng.fill_bytes(key.as_mut());
        let mut epoch = [0; 16];
        rng.fill_bytes(&mut epoch);
        ProcessKey { key, epoch: HostEpoch(epoch) }
    }

    /// The epoch of this process.
    pub fn epoch(&self) -> HostEpoch {
        self.epoch
    }

    /// The masks of the answers of one batch: a pseudo-random function of slot, batch, row and token.
    ///
    /// HMAC-SHA-256 under the process key is a PRF (RFC 2104; its input here has one length for one
    /// domain, so that no two inputs share an encoding) and gives each batch a key of its own.
    /// ChaCha20's block function under that key is a PRF of (nonce, counter), which are (tile of
    /// rows, token). The composition is a PRF as long as no key is used for two batches. `nonce` is
    /// drawn for each sequence of batches, so this holds even if a sequence is started again.
    pub(crate) fn answer_masks(
        &self,
        slot: &CounterSlot,
        nonce: &[u8; 16],
        batch: u64,
    ) -> MaskStream {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(&*self.key).expect("HMAC takes keys of any length");
        mac.update(ANSWER_DOMAIN);
        mac.update(&self.epoch.0);
        mac.update(&slot.client);
        mac.update(&slot.adapter);
        mac.update(&slot.layer.to_le_bytes());
        mac.update(&[slot.input as u8]);
        mac.update(nonce);
        mac.update(&batch.to_le_bytes());
        let mut digest: [u8; 32] = mac.finalize().into_bytes().into();
        let key = Zeroizing::new(digest);
        digest.zeroize();
        MaskStream { key }
    }
}

impl std::fmt::Debug for ProcessKey {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "ProcessKey of {:?}", self.epoch)
    }
}

impl std::fmt::Debug for HostEpoch {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "epoch {:032x}", u128::from_be_bytes(self.0))
    }
}

impl std::fmt::Display for HostEpoch {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{:032x}", u128::from_be_bytes(self.0))
    }
}

#[cfg(test)]
mod tests {
    use sha2::Digest;

    use super::*;

    fn slot() -> CounterSlot {
        CounterSlot { client: [1; 32], adapter: [2; 32], layer: 3, input: LayerInput::Attention }
    }

    #[test]
    fn rows_and_columns_are_one_stream() {
        let stream = MaskStream::random(&mut Rng::from_seed([9; 32]));
        let (columns, tokens) = (70, 40);
        let mut rows = vec![0; tokens * columns];
        stream.fill_row_masks(0..tokens as u32, columns, 33, &mut rows);
        for column in 0..columns {
            let tile = stream.column_masks(column / TILE, 0..tokens as u32, 33);
            for token in 0..tokens {
                assert_eq!(rows[token * columns + column], tile[column % TILE][token]);
            }
        }
        let mut window = vec![0; 3 * columns];
        stream.fill_row_masks(17..20, columns, 33, &mut window);
        assert_eq!(window, rows[17 * columns..20 * columns]);
    }

    #[test]
    fn a_tile_is_the_stream_of_rfc_8439() {
        // Section 2.3.2 has another nonce; appendix A.1, vectors 1 and 2: key and nonce zero, blocks
        // 0 and 1.
        let stream = MaskStream { key: Zeroizing::new([0; 32]) };
        let mut row = vec![0; 32];
        stream.fill_row_masks(0..1, 32, 64, &mut row);
        assert_eq!(row[0], u64::from_le_bytes([0x76, 0xb8, 0xe0, 0xad, 0xa0, 0xf1, 0x3d, 0x90]));
        assert_eq!(row[8], u64::from_le_bytes([0x9f, 0x07, 0xe7, 0xbe, 0x55, 0x51, 0x38, 0x7a]));
    }

    #[test]
    fn rows_are_those_of_the_committed_vectors() {
        let file = include_str!("../../../vectors/rlwe/mask.json");
        let vectors: serde_json::Value = serde_json::from_str(file).unwrap();
        let number = |name: &str| vectors[name].as_u64().unwrap() as usize;
        let (tokens, columns) = (number("tokens"), number("columns"));
        let stream = MaskStream { key: Zeroizing::new([number("key") as u8; 32]) };
        for wanted in vectors["streams"].as_array().unwrap() {
            let mut rows = vec![0; tokens * columns];
            let bits = wanted["bits"].as_u64().unwrap() as u32;
            stream.fill_row_masks(0..tokens as u32, columns, bits, &mut rows);
            let mut digest = Sha256::new();
            rows.iter().for_each(|word| digest.update(word.to_le_bytes()));
            let digest: [u8; 32] = digest.finalize().into();
            let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(wanted["rows"]["sha256"], hex);
        }
    }

    #[test]
    fn every_part_of_a_slot_changes_the_masks_of_answers() {
        let key = ProcessKey::random(&mut Rng::from_seed([4; 32]));
        let first = |key: &ProcessKey, slot: &CounterSlot, nonce: [u8; 16], batch| {
            let mut row = [0; 1];
            key.answer_masks(slot, &nonce, batch).fill_row_masks(0..1, 1, 64, &mut row);
            row[0]
        };
        let other_key = ProcessKey::random(&mut Rng::from_seed([5; 32]));
        let mut seen = vec![
            first(&key, &slot(), [0; 16], 0),
            first(&key, &slot(), [0; 16], 1),
            first(&key, &slot(), [1; 16], 0),
            first(&other_key, &slot(), [0; 16], 0),
            first(&key, &CounterSlot { client: [9; 32], ..slot() }, [0; 16], 0),
            first(&key, &CounterSlot { adapter: [9; 32], ..slot() }, [0; 16], 0),
            first(&key, &CounterSlot { layer: 9, ..slot() }, [0; 16], 0),
            first(&key, &CounterSlot { input: LayerInput::FeedForward, ..slot() }, [0; 16], 0),
        ];
        assert_eq!(first(&key, &slot(), [0; 16], 0), seen[0]);
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 8);
    }
}
