use std::fmt;

use chacha20::{
    ChaCha20,
    cipher::{KeyIvInit, StreamCipher},
};
use zeroize::{Zeroize, Zeroizing};

use crate::RlweError;

/// Key of a generator.
pub type Seed = [u8; 32];

/// Bytes made at a time.
const BUFFER_BYTES: usize = 4096;

/// Nonce label of a generator's own stream; derived seeds use other labels.
const STREAM: [u8; 4] = [0; 4];

/// ChaCha20 (RFC 8439) as a random generator: the keystream of its seed. One generator gives at
/// most 256 GiB. The seed and what was not yet given are wiped when it is dropped.
///
/// Words are little-endian. Given one seed, the same calls give the same values on every machine.
pub struct Rng {
    cipher: ChaCha20,
    buffer: Box<[u8; BUFFER_BYTES]>,
    used: usize,
}

impl Rng {
    /// A generator seeded by the operating system.
    ///
    /// # Errors
    /// Where it gives no randomness.
    pub fn from_os() -> Result<Rng, RlweError> {
        let mut seed = Zeroizing::new([0; 32]);
        getrandom::fill(&mut *seed)
            .map_err(|error| RlweError::NoRandomness { reason: error.to_string() })?;
        Ok(Rng::from_seed(*seed))
    }

    /// The generator of a seed.
    pub fn from_seed(seed: Seed) -> Rng {
        let seed = Zeroizing::new(seed);
        Rng::keystream(&seed, STREAM, 0)
    }

    /// The generator of a seed for one purpose: independent of [`Rng::from_seed`] and of every
    /// other label and counter. `label` must not be four zero bytes.
    pub fn derived(seed: &Seed, label: [u8; 4], counter: u64) -> Rng {
        debug_assert_ne!(label, STREAM, "the label of the seed's own stream");
        Rng::keystream(seed, label, counter)
    }

    /// A seed derived from a seed for one purpose: the first 32 bytes of [`Rng::derived`].
    pub fn derived_seed(seed: &Seed, label: [u8; 4], counter: u64) -> Seed {
        Rng::derived(seed, label, counter).seed()
    }

    /// A fresh seed from this generator.
    pub fn seed(&mut self) -> Seed {
        let mut seed = [0; 32];
        self.fill_bytes(&mut seed);
        seed
    }

    /// A generator of its own, seeded from this one.
    pub fn fork(&mut self) -> Rng {
        Rng::from_seed(self.seed())
    }

    /// Fills with random bytes.
    pub fn fill_bytes(&mut self, mut bytes: &mut [u8]) {
        while !bytes.is_empty() {
            let left = self.refilled();
            let count = left.len().min(bytes.len());
            bytes[..count].copy_from_slice(&left[..count]);
            bytes = &mut bytes[count..];
            self.use_up(count);
        }
    }

    /// Calls `each` with random words, eight bytes each, until it has had `count`.
    pub(crate) fn words(&mut self, mut count: usize, mut each: impl FnMut(u64)) {
        while count > 0 {
            let left = self.refilled();
            let take = (left.len() / 8).min(count);
            if take == 0 {
                // A tail of fewer than eight bytes, left by a call for bytes: goes unused.
                let rest = left.len();
                self.use_up(rest);
                continue;
            }
            for word in left[..8 * take].chunks_exact(8) {
                each(u64::from_le_bytes(word.try_into().expect("eight bytes")));
            }
            count -= take;
            self.use_up(8 * take);
        }
    }

    /// A random word.
    pub fn next_u64(&mut self) -> u64 {
        let mut word = 0;
        self.words(1, |random| word = random);
        word
    }

    fn keystream(seed: &Seed, label: [u8; 4], counter: u64) -> Rng {
        let mut nonce = [0; 12];
        nonce[..4].copy_from_slice(&label);
        nonce[4..].copy_from_slice(&counter.to_le_bytes());
        let cipher = ChaCha20::new(seed.into(), &nonce.into());
        Rng { cipher, buffer: Box::new([0; BUFFER_BYTES]), used: BUFFER_BYTES }
    }

    /// What is left in the buffer, never nothing.
    fn refilled(&mut self) -> &[u8] {
        if self.used == BUFFER_BYTES {
            self.buffer.fill(0);
            self.cipher.apply_keystream(&mut *self.buffer);
            self.used = 0;
        }
        &self.buffer[self.used..]
    }

    fn use_up(&mut self, count: usize) {
        self.used += count;
    }
}

impl Drop for Rng {
    fn drop(&mut self) {
        self.buffer.zeroize();
    }
}

impl fmt::Debug for Rng {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Rng(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8439, appendix A.1: key, nonce, block counter, first 16 bytes of the keystream block.
    const RFC_8439_BLOCKS: &[([u8; 32], u64, u32, &str)] = &[
        ([0; 32], 0, 0, "76b8e0ada0f13d90405d6ae55386bd28"),
        ([0; 32], 0, 1, "9f07e7be5551387a98ba977c732d080d"),
        (last_byte(1), 0, 1, "3aeb5224ecf849929b9d828db1ced4dd"),
        (second_byte(255), 0, 2, "72d54dfbf12ec44b362692df94137f32"),
        ([0; 32], 2 << 56, 0, "c2c64d378cd536374ae204b9ef933fcd"),
    ];

    const fn last_byte(value: u8) -> [u8; 32] {
        let mut key = [0; 32];
        key[31] = value;
        key
    }

    const fn second_byte(value: u8) -> [u8; 32] {
        let mut key = [0; 32];
        key[1] = value;
        key
    }

    #[test]
    fn the_stream_is_that_of_rfc_8439() {
        for (key, counter, block, wanted) in RFC_8439_BLOCKS {
            let mut rng = Rng::keystream(key, STREAM, *counter);
            let mut bytes = vec![0; 64 * (*block as usize + 1)];
            rng.fill_bytes(&mut bytes);
            let start = &bytes[64 * *block as usize..][..16];
            let hex: String = start.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(&hex, wanted);
        }
    }

    #[test]
    fn reading_in_pieces_gives_the_same_bytes() {
        let mut whole = vec![0; 20_000];
        Rng::from_seed([7; 32]).fill_bytes(&mut whole);
        let mut rng = Rng::from_seed([7; 32]);
        let mut pieces = vec![0; 20_000];
        let mut rest = &mut pieces[..];
        for size in [1, 7, 8, 63, 64, 65, 4000, 4096, 5000].into_iter().cycle() {
            let (piece, after) = rest.split_at_mut(size.min(rest.len()));
            rng.fill_bytes(piece);
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
        assert_eq!(whole, pieces);
        let mut words = Vec::new();
        Rng::from_seed([7; 32]).words(2500, |word| words.extend(word.to_le_bytes()));
        assert_eq!(whole, words);
    }

    #[test]
    fn seeds_labels_and_counters_separate_streams() {
        let mut firsts: Vec<u64> = Vec::new();
        for seed in [[0; 32], [1; 32]] {
            firsts.push(Rng::from_seed(seed).next_u64());
            firsts.push(Rng::from_seed(seed).fork().next_u64());
            for label in [*b"mask", *b"errs"] {
                for counter in [0, 1, 1 << 40] {
                    firsts.push(Rng::derived(&seed, label, counter).next_u64());
                    let child = Rng::derived_seed(&seed, label, counter);
                    firsts.push(Rng::from_seed(child).next_u64());
                }
            }
        }
        let count = firsts.len();
        firsts.sort_unstable();
        firsts.dedup();
        assert_eq!(firsts.len(), count);
        assert_eq!(Rng::from_seed([9; 32]).next_u64(), Rng::from_seed([9; 32]).next_u64());
        assert_ne!(Rng::from_os().unwrap().next_u64(), Rng::from_os().unwrap().next_u64());
    }

    #[test]
    fn debug_output_shows_nothing() {
        assert_eq!(format!("{:?}", Rng::from_seed([9; 32])), "Rng(..)");
    }
}
