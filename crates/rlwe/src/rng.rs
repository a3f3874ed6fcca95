//! The random generator: ChaCha20's keystream, read as words.

#[cfg(target_arch = "x86_64")]
mod avx512;
mod keystream;
mod stream;

use std::fmt;

use zeroize::{Zeroize, Zeroizing};

pub use self::keystream::Seed;
use self::{keystream::STREAM_WORDS, stream::Keystream};
use crate::error::RlweError;

/// Nonce label of a generator's own stream; derived seeds use other labels.
const STREAM: [u8; 4] = [0; 4];

/// ChaCha20 (RFC 8439) as a random generator: the keystream of its seed. One generator yields at
/// most 256 GiB, then it panics. The seed and unread words are wiped when it is dropped.
///
/// Every call takes whole words of eight bytes from the stream. Words are little-endian. Given one
/// seed, the same calls give the same values on every machine.
pub struct Rng {
    stream: Keystream,
    buffer: Box<[u64; STREAM_WORDS]>,
    /// The number of words of the buffer that were read.
    used: usize,
}

impl Rng {
    /// Makes a generator with a seed from the operating system.
    ///
    /// # Errors
    /// If the system's generator fails.
    pub fn from_os() -> Result<Rng, RlweError> {
        let mut seed = Zeroizing::new([0; 32]);
        getrandom::fill(&mut *seed)
            .map_err(|error| RlweError::NoRandomness { reason: error.to_string() })?;
        Ok(Rng::from_seed(*seed))
    }

    /// Makes the generator of a seed.
    pub fn from_seed(seed: Seed) -> Rng {
        let seed = Zeroizing::new(seed);
        Rng::keystream(&seed, STREAM, 0)
    }

    /// Makes the generator of a seed, a label and a counter. Its stream is independent of that of
    /// [`Rng::from_seed`] and of those of other labels and counters. `label` must not be four zero
    /// bytes.
    pub fn derive(seed: &Seed, label: [u8; 4], counter: u64) -> Rng {
        debug_assert_ne!(label, STREAM, "the label of the seed's own stream");
        Rng::keystream(seed, label, counter)
    }

    /// Draws a fresh seed from this generator.
    pub fn next_seed(&mut self) -> Seed {
        let mut seed = [0; 32];
        self.fill_bytes(&mut seed);
        seed
    }

    /// Makes another generator, whose seed is drawn from this one.
    pub fn fork(&mut self) -> Rng {
        let seed = Zeroizing::new(self.next_seed());
        Rng::from_seed(*seed)
    }

    /// Fills a buffer with random bytes.
    pub fn fill_bytes(&mut self, bytes: &mut [u8]) {
        let mut rest = bytes;
        self.draw_words(rest.len().div_ceil(8), |words| {
            for word in words {
                let count = rest.len().min(8);
                let (taken, after) = std::mem::take(&mut rest).split_at_mut(count);
                taken.copy_from_slice(&word.to_le_bytes()[..count]);
                rest = after;
            }
        });
    }

    /// Draws `count` random words and passes them to `each` in consecutive slices.
    pub(crate) fn draw_words(&mut self, mut count: usize, mut each: impl FnMut(&[u64])) {
        while count > 0 {
            if self.used == STREAM_WORDS {
                self.stream.fill(&mut self.buffer);
                self.used = 0;
            }
            let take = (STREAM_WORDS - self.used).min(count);
            each(&self.buffer[self.used..][..take]);
            self.used += take;
            count -= take;
        }
    }

    /// Draws a random word.
    pub fn next_u64(&mut self) -> u64 {
        let mut word = 0;
        self.draw_words(1, |words| word = words[0]);
        word
    }

    fn keystream(seed: &Seed, label: [u8; 4], counter: u64) -> Rng {
        Rng::from_keystream(Keystream::new(seed, &nonce(label, counter)))
    }

    fn from_keystream(stream: Keystream) -> Rng {
        Rng { stream, buffer: Box::new([0; STREAM_WORDS]), used: STREAM_WORDS }
    }
}

fn nonce(label: [u8; 4], counter: u64) -> [u8; 12] {
    let mut nonce = [0; 12];
    nonce[..4].copy_from_slice(&label);
    nonce[4..].copy_from_slice(&counter.to_le_bytes());
    nonce
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

    /// The portable generator, and the fastest one of this machine.
    fn both_paths(seed: &Seed, label: [u8; 4], counter: u64) -> [Rng; 2] {
        let portable = Keystream::new_portable(seed, &nonce(label, counter));
        [Rng::from_keystream(portable), Rng::keystream(seed, label, counter)]
    }

    #[test]
    fn every_stream_is_that_of_rfc_8439() {
        for (key, counter, block, wanted) in RFC_8439_BLOCKS {
            for mut rng in both_paths(key, STREAM, *counter) {
                let mut bytes = vec![0; 64 * (*block as usize + 1)];
                rng.fill_bytes(&mut bytes);
                let start = &bytes[64 * *block as usize..][..16];
                let hex: String = start.iter().map(|byte| format!("{byte:02x}")).collect();
                assert_eq!(&hex, wanted);
            }
        }
    }

    #[test]
    fn every_stream_and_every_way_of_reading_gives_the_same_bytes() {
        let [mut portable, mut fast] = both_paths(&[7; 32], *b"test", 3);
        let (mut whole, mut other) = (vec![0; 20_000], vec![0; 20_000]);
        portable.fill_bytes(&mut whole);
        fast.fill_bytes(&mut other);
        assert!(whole == other, "portable and fast streams differ");
        let mut rng = Rng::derive(&[7; 32], *b"test", 3);
        let mut pieces = vec![0; 20_000];
        let mut rest = &mut pieces[..];
        for size in [8, 16, 56, 64, 72, 4000, 4096, 5000].into_iter().cycle() {
            let (piece, after) = rest.split_at_mut(size.min(rest.len()));
            rng.fill_bytes(piece);
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
        assert!(whole == pieces, "pieces differ");
        let mut words = Vec::new();
        Rng::derive(&[7; 32], *b"test", 3)
            .draw_words(2500, |run| words.extend(run.iter().flat_map(|word| word.to_le_bytes())));
        assert!(whole == words, "words differ");
        let mut odd = [0; 13];
        let mut rng = Rng::derive(&[7; 32], *b"test", 3);
        rng.fill_bytes(&mut odd);
        assert_eq!((&odd[..], rng.next_u64().to_le_bytes()), (&whole[..13], next(&whole)));
    }

    /// The third word: the thirteen bytes before it took two words.
    fn next(whole: &[u8]) -> [u8; 8] {
        whole[16..24].try_into().unwrap()
    }

    #[test]
    fn seeds_labels_and_counters_separate_streams() {
        let mut firsts: Vec<u64> = Vec::new();
        for seed in [[0; 32], [1; 32]] {
            firsts.push(Rng::from_seed(seed).next_u64());
            firsts.push(Rng::from_seed(seed).fork().next_u64());
            for label in [*b"mask", *b"errs"] {
                for counter in [0, 1, 1 << 40] {
                    firsts.push(Rng::derive(&seed, label, counter).next_u64());
                    let child = Rng::derive(&seed, label, counter).next_seed();
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
