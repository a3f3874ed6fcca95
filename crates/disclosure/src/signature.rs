//! The notary's key and its signatures: ECDSA on P-256 with SHA-256, r ‖ s, with the lower s.

use std::fmt;

use p256::ecdsa::{
    Signature as Ecdsa, SigningKey, VerifyingKey,
    signature::{Signer, Verifier},
};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::statement::{NotaryStatement, PUBLIC_KEY_BYTES};

/// The length of a signature in bytes: r ‖ s.
pub const SIGNATURE_BYTES: usize = 64;

/// The DER SubjectPublicKeyInfo of a P-256 key, without the 65 bytes of the key (RFC 5480).
const SPKI_PREFIX: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a,
    0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

/// A signature: r ‖ s, 32 bytes each.
pub type Signature = [u8; SIGNATURE_BYTES];

/// Encodes the DER SubjectPublicKeyInfo of a notary's key, whose SHA-256 is in the claims.
pub fn encode_spki(key: &[u8; PUBLIC_KEY_BYTES]) -> Vec<u8> {
    [&SPKI_PREFIX[..], key].concat()
}

/// The reason why a statement was not signed, or its signature not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// The key is not a point of P-256, or the statement names another key.
    #[error("the statement's key is not a point of P-256, or not the signing key")]
    InvalidKey,
    /// r or s is out of range, or s is more than half of the group's order.
    #[error("the notary's signature is not canonical: wanted r and s in range, with the lower s")]
    NotCanonical,
    /// The key did not sign these bytes.
    #[error("the notary's signature does not match the statement")]
    Mismatch,
    /// The system's random generator failed.
    #[error("the system's random generator failed")]
    NoRandomness,
}

/// A notary's signing key. It exists only in memory, and is overwritten when dropped.
pub struct NotaryKey(SigningKey);

impl NotaryKey {
    /// Generates a fresh key.
    ///
    /// # Errors
    ///
    /// [`SignatureError::NoRandomness`] if the operating system returns no random bytes.
    pub fn generate() -> Result<Self, SignatureError> {
        let mut secret = Zeroizing::new([0; 32]);
        loop {
            getrandom::fill(&mut secret[..]).map_err(|_| SignatureError::NoRandomness)?;
            // All but 2^-32 of all strings are valid keys.
            if let Ok(key) = Self::from_secret(&secret) {
                return Ok(key);
            }
        }
    }

    /// Makes a key from its scalar, for test vectors.
    ///
    /// # Errors
    ///
    /// [`SignatureError::InvalidKey`] if the scalar is zero or not below the order of the group.
    pub fn from_secret(secret: &[u8; 32]) -> Result<Self, SignatureError> {
        SigningKey::from_slice(secret).map(Self).map_err(|_| SignatureError::InvalidKey)
    }

    /// The public key, in the form of a statement.
    pub fn public(&self) -> [u8; PUBLIC_KEY_BYTES] {
        let mut key = [0; PUBLIC_KEY_BYTES];
        key.copy_from_slice(self.0.verifying_key().to_sec1_point(false).as_bytes());
        key
    }

    /// SHA-256 of the DER SubjectPublicKeyInfo, which is `pubkey-hash` in the notary's claims.
    pub fn spki_hash(&self) -> [u8; 32] {
        Sha256::digest(encode_spki(&self.public())).into()
    }

    /// Signs a statement that names this key.
    ///
    /// # Errors
    ///
    /// [`SignatureError::InvalidKey`] if the statement names another key.
    pub fn sign(&self, statement: &NotaryStatement) -> Result<Signature, SignatureError> {
        if statement.key != self.public() {
            return Err(SignatureError::InvalidKey);
        }
        let signature: Ecdsa = self.0.sign(&statement.encode());
        let mut bytes = [0; SIGNATURE_BYTES];
        bytes.copy_from_slice(&signature.normalize_s().to_bytes());
        Ok(bytes)
    }
}

impl fmt::Debug for NotaryKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NotaryKey").finish_non_exhaustive()
    }
}

impl NotaryStatement {
    /// Checks that `signature` is by the key that this statement names, over its encoding.
    ///
    /// Only the key's evidence shows that it is a notary's.
    ///
    /// # Errors
    ///
    /// [`SignatureError::InvalidKey`] if the key is not a point of P-256;
    /// [`SignatureError::NotCanonical`] if r or s is out of range or s is the higher one;
    /// [`SignatureError::Mismatch`] if the key did not sign this encoding.
    pub fn verify(&self, signature: &Signature) -> Result<(), SignatureError> {
        let key =
            VerifyingKey::from_sec1_bytes(&self.key).map_err(|_| SignatureError::InvalidKey)?;
        let signature = Ecdsa::from_slice(signature).map_err(|_| SignatureError::NotCanonical)?;
        if signature.normalize_s() != signature {
            return Err(SignatureError::NotCanonical);
        }
        key.verify(&self.encode(), &signature).map_err(|_| SignatureError::Mismatch)
    }

    /// SHA-256 of the SubjectPublicKeyInfo of the key that this statement names.
    pub fn spki_hash(&self) -> [u8; 32] {
        Sha256::digest(encode_spki(&self.key)).into()
    }
}
