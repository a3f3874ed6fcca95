//! The head of an encapsulated request: which key it is for, the suite, and the encapsulated key.

use crate::{
    cipher::BodyCipher, encapsulated_key::EncapsulatedKey, error::EncryptedBodyError, kem::BodyKem,
    key_config::KDF, ohttp_form::OhttpForm,
};

/// The number of bytes in front of the encapsulated key.
const SUITE_BYTES: usize = 7;

/// The head of an encapsulated request (RFC 9458 section 4.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OhttpRequestHead {
    /// The identifier of the key for which the request is.
    pub key_id: u8,
    pub(crate) cipher: BodyCipher,
    pub(crate) encapsulated: EncapsulatedKey,
}

impl OhttpRequestHead {
    /// The largest number of bytes of a head.
    pub const BYTES_MAX: usize = SUITE_BYTES + 1120;

    /// Reads a head at the front of `bytes`, and the number of its bytes; `None` if some are missing.
    ///
    /// # Errors
    /// [`EncryptedBodyError::OhttpSuite`] for algorithms that this package does not know.
    pub fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, EncryptedBodyError> {
        let Some((suite, rest)) = bytes.split_at_checked(SUITE_BYTES) else { return Ok(None) };
        let number = |at: usize| u16::from_be_bytes([suite[at], suite[at + 1]]);
        let unknown = EncryptedBodyError::OhttpSuite;
        let kem = BodyKem::from_id(number(1)).ok_or(unknown)?;
        let cipher = BodyCipher::ALL.into_iter().find(|cipher| cipher.id() == number(5));
        let cipher = cipher.filter(|_| number(3) == KDF).ok_or(unknown)?;
        let length = kem.encapsulated_bytes();
        Ok(rest.get(..length).map(|encapsulated| {
            let encapsulated = EncapsulatedKey { kem, bytes: encapsulated.to_vec() };
            (Self { key_id: suite[0], cipher, encapsulated }, SUITE_BYTES + length)
        }))
    }

    /// The serialised head.
    pub fn to_bytes(&self) -> Vec<u8> {
        let suite = encode_suite(self.key_id, self.encapsulated.kem, self.cipher);
        [&suite[..], &self.encapsulated.bytes].concat()
    }

    /// The encapsulated key.
    pub fn encapsulated_key(&self) -> &EncapsulatedKey {
        &self.encapsulated
    }

    /// HPKE's `info`. It differs between the two forms, and from EHBP's, so that what was encrypted in
    /// one does not open in another.
    pub(crate) fn info(&self, form: OhttpForm) -> Vec<u8> {
        encode_info(self.key_id, self.encapsulated.kem, self.cipher, form)
    }
}

/// HPKE's `info` of a request.
pub(crate) fn encode_info(
    key_id: u8,
    kem: BodyKem,
    cipher: BodyCipher,
    form: OhttpForm,
) -> Vec<u8> {
    [form.request_label(), b"\0", &encode_suite(key_id, kem, cipher)].concat()
}

fn encode_suite(key_id: u8, kem: BodyKem, cipher: BodyCipher) -> [u8; SUITE_BYTES] {
    let ([kem_high, kem_low], [kdf_high, kdf_low]) = (kem.id().to_be_bytes(), KDF.to_be_bytes());
    let [aead_high, aead_low] = cipher.id().to_be_bytes();
    [key_id, kem_high, kem_low, kdf_high, kdf_low, aead_high, aead_low]
}
