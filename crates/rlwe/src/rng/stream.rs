//! A keystream, computed by the fastest code for this machine.

use chacha20::{
    ChaCha20,
    cipher::{KeyIvInit, StreamCipher},
};

use super::keystream::{STREAM_WORDS, Seed};

/// The keystream of a key and a nonce from block 0 on, as little-endian words. Both variants
/// compute the same words.
pub(super) enum Keystream {
    /// The implementation of the crate `chacha20`, on every machine.
    Portable(Box<ChaCha20>),
    /// The implementation with AVX-512: sixteen blocks at a time.
    #[cfg(target_arch = "x86_64")]
    Avx512(super::avx512::KeystreamBlocks),
}

impl Keystream {
    /// Starts a keystream with the fastest implementation for this machine.
    pub(super) fn new(seed: &Seed, nonce: &[u8; 12]) -> Keystream {
        #[cfg(target_arch = "x86_64")]
        if let Some(blocks) = super::avx512::KeystreamBlocks::new(seed, nonce) {
            return Keystream::Avx512(blocks);
        }
        Keystream::new_portable(seed, nonce)
    }

    pub(super) fn new_portable(seed: &Seed, nonce: &[u8; 12]) -> Keystream {
        Keystream::Portable(Box::new(ChaCha20::new(seed.into(), nonce.into())))
    }

    /// Writes the next 64 blocks.
    pub(super) fn fill(&mut self, words: &mut [u64; STREAM_WORDS]) {
        match self {
            Keystream::Portable(cipher) => {
                let mut bytes = zeroize::Zeroizing::new([0; 8 * STREAM_WORDS]);
                cipher.apply_keystream(&mut *bytes);
                for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
                    *word = u64::from_le_bytes(*bytes);
                }
            }
            #[cfg(target_arch = "x86_64")]
            Keystream::Avx512(blocks) => blocks.fill(words),
        }
    }
}
