//! The body of an answer: a key from the request's secret and a nonce of the server's, as in RFC 9458
//! section 4.4.

use std::fmt;

use hpke::HpkeError;
use zeroize::Zeroizing;

use crate::{
    answer_cipher::AnswerCipher,
    cipher::BodyCipher,
    encapsulated_key::EncapsulatedKey,
    error::EncryptedBodyError,
    frame::{SealedFrame, append_frame, open_frame},
};

/// The number of bytes of an answer's nonce.
pub const ANSWER_NONCE_BYTES: usize = 32;
const SECRET_BYTES: usize = 32;

/// The secret that both ends of a request share for its answer.
pub struct ExchangeSecret {
    secret: Zeroizing<[u8; SECRET_BYTES]>,
    encapsulated: Vec<u8>,
}

/// The random part of an answer's key, which its head names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerNonce([u8; ANSWER_NONCE_BYTES]);

/// Encrypts the body of one answer, at the server.
pub struct AnswerSealer(AnswerCipher);

/// Decrypts the body of one answer, at the client.
pub struct AnswerOpener(AnswerCipher);

impl ExchangeSecret {
    pub(crate) fn from_export(
        encapsulated: &EncapsulatedKey,
        export: impl FnOnce(&mut [u8]) -> Result<(), HpkeError>,
    ) -> Result<Self, EncryptedBodyError> {
        let mut secret = Zeroizing::new([0; SECRET_BYTES]);
        export(&mut *secret).map_err(|_| EncryptedBodyError::Encryption)?;
        Ok(Self { secret, encapsulated: encapsulated.as_bytes().to_vec() })
    }

    /// A secret that was exported elsewhere, with the bytes of the request's encapsulated key.
    pub fn from_parts(secret: [u8; SECRET_BYTES], encapsulated: &[u8]) -> Self {
        Self { secret: Zeroizing::new(secret), encapsulated: encapsulated.to_vec() }
    }

    /// Begins an answer with a new nonce.
    ///
    /// # Errors
    /// [`EncryptedBodyError::Encryption`] if the system has no randomness.
    pub fn seal_answer(&self) -> Result<(AnswerNonce, AnswerSealer), EncryptedBodyError> {
        let mut nonce = [0; ANSWER_NONCE_BYTES];
        aws_lc_rs::rand::fill(&mut nonce).map_err(|_| EncryptedBodyError::Encryption)?;
        let nonce = AnswerNonce(nonce);
        Ok((nonce, AnswerSealer(self.derive_cipher(nonce)?)))
    }

    /// Begins to open an answer with the nonce in its head.
    ///
    /// # Errors
    /// [`EncryptedBodyError::Encryption`] if the library fails.
    pub fn open_answer(&self, nonce: AnswerNonce) -> Result<AnswerOpener, EncryptedBodyError> {
        Ok(AnswerOpener(self.derive_cipher(nonce)?))
    }

    fn derive_cipher(&self, nonce: AnswerNonce) -> Result<AnswerCipher, EncryptedBodyError> {
        AnswerCipher::derive(BodyCipher::Aes256Gcm, &*self.secret, &self.encapsulated, &nonce.0)
    }

    #[cfg(test)]
    pub(crate) fn seal_answer_with(
        &self,
        nonce: [u8; ANSWER_NONCE_BYTES],
    ) -> Result<AnswerSealer, EncryptedBodyError> {
        Ok(AnswerSealer(self.derive_cipher(AnswerNonce(nonce))?))
    }
}

impl AnswerNonce {
    /// Reads the value of [`ANSWER_NONCE_FIELD`](crate::ANSWER_NONCE_FIELD).
    ///
    /// # Errors
    /// [`EncryptedBodyError::AnswerNonce`] for another form.
    pub fn parse(value: &[u8]) -> Result<Self, EncryptedBodyError> {
        let mut nonce = [0; ANSWER_NONCE_BYTES];
        let is_lower = !value.iter().any(u8::is_ascii_uppercase);
        match is_lower && hex::decode_to_slice(value, &mut nonce).is_ok() {
            true => Ok(Self(nonce)),
            false => Err(EncryptedBodyError::AnswerNonce),
        }
    }

    /// The value of the field.
    pub fn to_hex(self) -> String {
        hex::encode(self.0)
    }
}

impl AnswerSealer {
    /// Appends the next frame to `body`.
    ///
    /// # Errors
    /// [`EncryptedBodyError::TooManyFrames`], or [`EncryptedBodyError::Encryption`] for a plaintext of
    /// 4 GiB or more.
    pub fn seal_frame(
        &mut self,
        plaintext: &[u8],
        body: &mut Vec<u8>,
    ) -> Result<(), EncryptedBodyError> {
        append_frame(body, plaintext, false, &mut self.0)
    }

    /// Appends the final frame to `body`, with what announces it.
    ///
    /// # Errors
    /// Those of [`AnswerSealer::seal_frame`].
    pub fn seal_final_frame(
        &mut self,
        plaintext: &[u8],
        body: &mut Vec<u8>,
    ) -> Result<(), EncryptedBodyError> {
        append_frame(body, plaintext, true, &mut self.0)
    }
}

impl AnswerOpener {
    /// Decrypts the next frame. After an error nothing more may be opened.
    ///
    /// # Errors
    /// [`EncryptedBodyError::Decryption`] if it is not the next frame of this answer and key.
    pub fn open_frame(&mut self, frame: SealedFrame) -> Result<Vec<u8>, EncryptedBodyError> {
        open_frame(frame, &mut self.0)
    }
}

impl fmt::Debug for ExchangeSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExchangeSecret").finish_non_exhaustive()
    }
}

impl fmt::Debug for AnswerSealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnswerSealer").finish_non_exhaustive()
    }
}

impl fmt::Debug for AnswerOpener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnswerOpener").finish_non_exhaustive()
    }
}
