//! The public key of a server.

use aws_lc_rs::digest::{SHA256, digest};
use hpke::{
    Deserializable, Kem,
    kem::{X25519HkdfSha256, XWing},
};

use crate::{error::EncryptedBodyError, kem::BodyKem};

/// A server's public key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyPublicKey {
    pub(crate) kem: BodyKem,
    pub(crate) bytes: Vec<u8>,
}

impl BodyPublicKey {
    /// Reads a public key.
    ///
    /// # Errors
    /// [`EncryptedBodyError::PublicKey`] if it is not a valid one of its kind.
    pub fn from_bytes(kem: BodyKem, bytes: &[u8]) -> Result<Self, EncryptedBodyError> {
        let is_valid = match kem {
            BodyKem::X25519 => <X25519HkdfSha256 as Kem>::PublicKey::from_bytes(bytes).is_ok(),
            BodyKem::XWing => <XWing as Kem>::PublicKey::from_bytes(bytes).is_ok(),
        };
        match is_valid {
            true => Ok(Self { kem, bytes: bytes.to_vec() }),
            false => Err(EncryptedBodyError::PublicKey {
                wanted: kem.public_key_bytes(),
                got: bytes.len(),
            }),
        }
    }

    /// The kind of the key.
    pub fn kem(&self) -> BodyKem {
        self.kem
    }

    /// The serialised key.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The identifier of the key in OHTTP (RFC 9458 section 3): the first byte of the SHA-256 of the
    /// serialised key, so that a client with the key from a keyset needs nothing else.
    pub fn ohttp_key_id(&self) -> u8 {
        digest(&SHA256, &self.bytes).as_ref()[0]
    }
}
