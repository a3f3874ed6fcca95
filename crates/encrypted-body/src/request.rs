//! The body of a request: one HPKE context, whose sequence number counts the frames.

use std::fmt;

use hpke::rand_core::CryptoRng;

use crate::{
    answer::ExchangeSecret,
    cipher::BodyCipher,
    context::{OpenContext, SealContext, begin_sealing},
    encapsulated_key::EncapsulatedKey,
    error::EncryptedBodyError,
    fields::BodyEnd,
    frame::{SealedFrame, append_frame, open_frame},
    public_key::BodyPublicKey,
    random::SystemRandom,
};

/// HPKE's label of the secret that both ends share for the answer.
const EXPORT_LABEL: &[u8] = b"ehbp response";

/// Encrypts the body of one request, at the client.
pub struct RequestSealer {
    context: Box<dyn SealContext>,
    encapsulated: EncapsulatedKey,
}

/// Decrypts the body of one request, at the server.
pub struct RequestOpener {
    context: Box<dyn OpenContext>,
    encapsulated: EncapsulatedKey,
}

impl RequestSealer {
    /// Encapsulates a new key.
    ///
    /// # Errors
    /// [`EncryptedBodyError::Encryption`] if the key cannot be used.
    ///
    /// # Panics
    /// If the system has no randomness.
    pub fn new(key: &BodyPublicKey, end: BodyEnd) -> Result<Self, EncryptedBodyError> {
        Self::with_random(key, end, &mut SystemRandom)
    }

    pub(crate) fn with_random(
        key: &BodyPublicKey,
        end: BodyEnd,
        random: &mut impl CryptoRng,
    ) -> Result<Self, EncryptedBodyError> {
        let (bytes, context) = begin_sealing(key, BodyCipher::Aes256Gcm, end.info(), random)?;
        Ok(Self { context, encapsulated: EncapsulatedKey { kem: key.kem(), bytes } })
    }

    /// The encapsulated key, which the head of the request names.
    pub fn encapsulated_key(&self) -> &EncapsulatedKey {
        &self.encapsulated
    }

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
        append_frame(body, plaintext, false, &mut *self.context)
    }

    /// Appends the final frame to `body`, with what announces it.
    ///
    /// # Errors
    /// Those of [`RequestSealer::seal_frame`].
    pub fn seal_final_frame(
        &mut self,
        plaintext: &[u8],
        body: &mut Vec<u8>,
    ) -> Result<(), EncryptedBodyError> {
        append_frame(body, plaintext, true, &mut *self.context)
    }

    /// The secret that both ends share for the answer.
    ///
    /// # Errors
    /// [`EncryptedBodyError::Encryption`] if the library fails.
    pub fn exchange_secret(&self) -> Result<ExchangeSecret, EncryptedBodyError> {
        let export = |secret: &mut [u8]| self.context.export(EXPORT_LABEL, secret);
        ExchangeSecret::from_export(&self.encapsulated, export)
    }
}

impl RequestOpener {
    pub(crate) fn new(context: Box<dyn OpenContext>, encapsulated: EncapsulatedKey) -> Self {
        Self { context, encapsulated }
    }

    /// Decrypts the next frame. After an error nothing more may be opened.
    ///
    /// # Errors
    /// [`EncryptedBodyError::Decryption`] if it is not the next frame of this request and key, and
    /// [`EncryptedBodyError::TooManyFrames`].
    pub fn open_frame(&mut self, frame: SealedFrame) -> Result<Vec<u8>, EncryptedBodyError> {
        open_frame(frame, &mut *self.context)
    }

    /// The secret that both ends share for the answer.
    ///
    /// # Errors
    /// [`EncryptedBodyError::Encryption`] if the library fails.
    pub fn exchange_secret(&self) -> Result<ExchangeSecret, EncryptedBodyError> {
        let export = |secret: &mut [u8]| self.context.export(EXPORT_LABEL, secret);
        ExchangeSecret::from_export(&self.encapsulated, export)
    }
}

impl fmt::Debug for RequestSealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestSealer").finish_non_exhaustive()
    }
}

impl fmt::Debug for RequestOpener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestOpener").finish_non_exhaustive()
    }
}
