//! Secret randomness: 32 fresh bytes from the system, hashed with the witness and expanded.
//!
//! Two proofs with the same nonce but different challenges reveal the witness. A machine that was
//! restored from a snapshot may draw the same bytes again. As witness and statement are hashed too,
//! it then repeats the same proof, but never uses a nonce for another one.

use rand_core::{CryptoRng, RngCore};
use sha2::{Digest, Sha512};
use zeroize::{Zeroize, Zeroizing};

use crate::{challenge::update_framed, error::SigmaError};

/// The system's randomness for one proof, 32 bytes.
pub(crate) type Entropy = Zeroizing<[u8; 32]>;

/// Draws 32 fresh bytes from the operating system.
pub(crate) fn draw_entropy() -> Result<Entropy, SigmaError> {
    let mut bytes = Zeroizing::new([0; 32]);
    getrandom::fill(bytes.as_mut()).map_err(|_| SigmaError::NoRandomness)?;
    Ok(bytes)
}

/// A stream of secret bytes: block i is SHA-512(key, i).
pub(crate) struct SecretStream {
    key: Zeroizing<[u8; 64]>,
    block: Zeroizing<[u8; 64]>,
    used: usize,
    blocks: u64,
}

impl SecretStream {
    /// The stream for one proof, whose tag, statement, context and witness are `parts`.
    pub(crate) fn new(entropy: &Entropy, parts: &[&[u8]]) -> Self {
        let mut hash = Sha512::new();
        hash.update(b"confide/sigma/v1/random");
        hash.update(entropy.as_slice());
        update_framed(parts, |bytes| hash.update(bytes));
        let key = Zeroizing::new(hash.finalize().into());
        Self { key, block: Zeroizing::new([0; 64]), used: 64, blocks: 0 }
    }

    /// Fills a buffer with the next bytes of the stream.
    pub(crate) fn fill(&mut self, out: &mut [u8]) {
        for byte in out {
            if self.used == self.block.len() {
                self.next_block();
            }
            *byte = self.block[self.used];
            self.used += 1;
        }
    }

    fn next_block(&mut self) {
        let mut hash = Sha512::new();
        hash.update(self.key.as_slice());
        hash.update(self.blocks.to_be_bytes());
        let mut digest: [u8; 64] = hash.finalize().into();
        self.block.copy_from_slice(&digest);
        digest.zeroize();
        self.used = 0;
        self.blocks += 1;
    }
}

impl RngCore for SecretStream {
    fn next_u32(&mut self) -> u32 {
        let mut bytes = [0; 4];
        self.fill(&mut bytes);
        u32::from_le_bytes(bytes)
    }

    fn next_u64(&mut self) -> u64 {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }

    fn fill_bytes(&mut self, out: &mut [u8]) {
        self.fill(out);
    }

    fn try_fill_bytes(&mut self, out: &mut [u8]) -> Result<(), rand_core::Error> {
        self.fill(out);
        Ok(())
    }
}

impl CryptoRng for SecretStream {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_differ_by_entropy_and_by_every_part() {
        let start = |entropy: u8, parts: &[&[u8]]| {
            let mut out = [0; 96];
            SecretStream::new(&Zeroizing::new([entropy; 32]), parts).fill(&mut out);
            out
        };
        let one = start(1, &[b"ab", b"c"]);
        assert_eq!(one, start(1, &[b"ab", b"c"]));
        assert_ne!(one, start(2, &[b"ab", b"c"]));
        assert_ne!(one, start(1, &[b"a", b"bc"]));
        assert_ne!(one[..32], one[64..], "blocks differ");
    }
}
