//! The secret of 32 bytes from which every salt and blinding of one transcript is derived.

use std::fmt;

use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

/// The length of a seed, in bytes.
pub const SEED_BYTES: usize = 32;

/// The length of a salt, in bytes: 128 bits make it infeasible to test guesses of the content.
pub const SALT_BYTES: usize = 16;

/// The domain that separates salts and blindings from other hashes of the seed.
const DOMAIN: &[u8; 15] = b"confide salt v1";

/// The domain that separates the seeds of receipts from other hashes of a client's secret.
const RECEIPT_DOMAIN: &[u8] = b"confide receipt seed v1";

/// The secret from which all salts of one transcript are derived. With it and the statement,
/// guesses of every hidden part can be tested: only the holder may have it.
#[derive(Clone)]
pub struct Seed(Zeroizing<[u8; SEED_BYTES]>);

impl Seed {
    /// Draws a fresh seed from the system's generator. One seed serves one transcript.
    ///
    /// # Errors
    ///
    /// The error of the operating system if it returns no random bytes.
    pub fn generate() -> Result<Self, getrandom::Error> {
        let mut seed = Zeroizing::new([0; SEED_BYTES]);
        getrandom::fill(&mut seed[..])?;
        Ok(Self(seed))
    }

    /// Makes a seed from bytes of a holder's file or of a test.
    pub fn from_bytes(bytes: [u8; SEED_BYTES]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// The bytes of the seed, for the holder's file.
    pub fn secret(&self) -> &[u8; SEED_BYTES] {
        &self.0
    }

    /// The seed of an openable receipt: SHA-256("confide receipt seed v1" ‖ the client's secret ‖ the
    /// receipt's identifier). Each receipt has its own, also if a client uses its secret again.
    pub fn of_receipt(secret: &[u8; SEED_BYTES], receipt_id: &str) -> Self {
        let hash = Sha256::new().chain_update(RECEIPT_DOMAIN).chain_update(secret);
        Self::from_bytes(hash.chain_update(receipt_id).finalize().into())
    }

    /// Derives 32 bytes for a purpose and an index: SHA-256(seed ‖ domain ‖ purpose ‖ index).
    ///
    /// Every such input has 52 bytes, so that none is a prefix of another one.
    pub fn derive(&self, purpose: SaltPurpose, index: u32) -> [u8; 32] {
        let mut input = Zeroizing::new([0; SEED_BYTES + DOMAIN.len() + 5]);
        input[..32].copy_from_slice(&self.0[..]);
        input[32..47].copy_from_slice(DOMAIN);
        input[47] = purpose as u8;
        input[48..].copy_from_slice(&index.to_be_bytes());
        Sha256::digest(&input[..]).into()
    }

    /// The salt for an index. The indices 2i and 2i+1 share one derivation, half each.
    pub fn salt(&self, purpose: SaltPurpose, index: u32) -> [u8; SALT_BYTES] {
        split_salts(&self.derive(purpose, index >> 1))[(index & 1) as usize]
    }
}

impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seed").finish_non_exhaustive()
    }
}

/// Splits a derivation into two salts.
pub(crate) fn split_salts(derived: &[u8; 32]) -> [[u8; SALT_BYTES]; 2] {
    let (mut first, mut second) = ([0; SALT_BYTES], [0; SALT_BYTES]);
    first.copy_from_slice(&derived[..SALT_BYTES]);
    second.copy_from_slice(&derived[SALT_BYTES..]);
    [first, second]
}

/// The purpose of a derivation. The numbers are part of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaltPurpose {
    /// The salts of the chunks of a request.
    RequestChunk = 1,
    /// The salts of the chunks of a response.
    ResponseChunk = 2,
    /// The salt of the length of a request.
    RequestLength = 3,
    /// The salt of the length of a response.
    ResponseLength = 4,
    /// The salts of the values of fields.
    FieldValue = 5,
    /// The leaves that fill up the fields.
    FieldFiller = 6,
    /// The blindings of committed numbers.
    Blinding = 7,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_purpose_and_place_has_a_salt_of_its_own() {
        let seed = Seed::from_bytes([7; 32]);
        let mut seen = std::collections::BTreeSet::new();
        for purpose in
            [SaltPurpose::RequestChunk, SaltPurpose::ResponseChunk, SaltPurpose::FieldValue]
        {
            for index in 0..100 {
                assert!(seen.insert(seed.salt(purpose, index)));
            }
        }
        assert_ne!(
            Seed::from_bytes([8; 32]).salt(SaltPurpose::FieldValue, 0),
            seed.salt(SaltPurpose::FieldValue, 0)
        );
    }

    #[test]
    fn a_seed_does_not_show_itself() {
        assert_eq!(format!("{:?}", Seed::from_bytes([0xab; 32])), "Seed { .. }");
    }
}
