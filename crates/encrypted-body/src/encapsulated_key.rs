//! The key of one request, encapsulated to a server's public key.

use crate::{error::EncryptedBodyError, kem::BodyKem};

/// The key of one request, encapsulated to a server's public key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncapsulatedKey {
    pub(crate) kem: BodyKem,
    pub(crate) bytes: Vec<u8>,
}

impl EncapsulatedKey {
    /// Reads the value of [`ENCAPSULATED_KEY_FIELD`](crate::ENCAPSULATED_KEY_FIELD). Whether the key
    /// is a valid one shows when it is used.
    ///
    /// # Errors
    /// [`EncryptedBodyError::EncapsulatedKey`] for another form or length.
    pub fn parse(value: &[u8]) -> Result<Self, EncryptedBodyError> {
        let malformed = EncryptedBodyError::EncapsulatedKey;
        // Upper-case digits would give one key several spellings.
        if value.iter().any(u8::is_ascii_uppercase) {
            return Err(malformed);
        }
        let kem = BodyKem::from_encapsulated_bytes(value.len() / 2).ok_or(malformed)?;
        let bytes = hex::decode(value).map_err(|_| malformed)?;
        Ok(Self { kem, bytes })
    }

    /// The kind of the key to which it was encapsulated.
    pub fn kem(&self) -> BodyKem {
        self.kem
    }

    /// The serialised key.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The value of the field.
    pub fn to_hex(&self) -> String {
        hex::encode(&self.bytes)
    }
}
