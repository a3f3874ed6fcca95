//! An encapsulated request: a head, and the chunks of one HPKE context, whose sequence number counts
//! them. A whole request is one chunk.

use std::fmt;

use hpke::rand_core::CryptoRng;

use crate::{
    chunk::{append_chunk, append_final_chunk, open_chunk},
    cipher::BodyCipher,
    context::{OpenContext, SealContext, begin_sealing},
    encapsulated_key::EncapsulatedKey,
    error::EncryptedBodyError,
    frame::SealedFrame,
    ohttp_answer::OhttpAnswerSecret,
    ohttp_form::OhttpForm,
    ohttp_head::{OhttpRequestHead, encode_info},
    public_key::BodyPublicKey,
    random::SystemRandom,
};

/// Encapsulates one request, at the client.
pub struct OhttpRequestSealer {
    context: Box<dyn SealContext>,
    head: OhttpRequestHead,
    form: OhttpForm,
}

/// Opens one request, at the gateway.
pub struct OhttpRequestOpener {
    context: Box<dyn OpenContext>,
    head: OhttpRequestHead,
    form: OhttpForm,
}

impl OhttpRequestSealer {
    /// Encapsulates a new key to a key of a keyset.
    ///
    /// # Errors
    /// [`EncryptedBodyError::Encryption`] if the key cannot be used.
    ///
    /// # Panics
    /// If the system has no randomness.
    pub fn new(
        key: &BodyPublicKey,
        cipher: BodyCipher,
        form: OhttpForm,
    ) -> Result<Self, EncryptedBodyError> {
        Self::with_random(key, key.ohttp_key_id(), cipher, form, &mut SystemRandom)
    }

    pub(crate) fn with_random(
        key: &BodyPublicKey,
        key_id: u8,
        cipher: BodyCipher,
        form: OhttpForm,
        random: &mut impl CryptoRng,
    ) -> Result<Self, EncryptedBodyError> {
        let kem = key.kem();
        let info = encode_info(key_id, kem, cipher, form);
        let (bytes, context) = begin_sealing(key, cipher, &info, random)?;
        let encapsulated = EncapsulatedKey { kem, bytes };
        Ok(Self { context, head: OhttpRequestHead { key_id, cipher, encapsulated }, form })
    }

    /// The head, with which the body begins.
    pub fn head(&self) -> &OhttpRequestHead {
        &self.head
    }

    /// Appends the next chunk to `body`; nothing for an empty text. A whole request has only a final
    /// chunk.
    ///
    /// # Errors
    /// [`EncryptedBodyError::TooManyFrames`], and [`EncryptedBodyError::Encryption`] in a whole
    /// request.
    pub fn seal_chunk(
        &mut self,
        text: &[u8],
        body: &mut Vec<u8>,
    ) -> Result<(), EncryptedBodyError> {
        append_chunk(self.form, body, text, &mut *self.context)
    }

    /// Appends the final chunk to `body`. Nothing may follow it.
    ///
    /// # Errors
    /// [`EncryptedBodyError::TooManyFrames`] or [`EncryptedBodyError::Encryption`].
    pub fn seal_final_chunk(
        &mut self,
        text: &[u8],
        body: &mut Vec<u8>,
    ) -> Result<(), EncryptedBodyError> {
        append_final_chunk(self.form, body, text, &mut *self.context)
    }

    /// The secret that both ends share for the answer.
    ///
    /// # Errors
    /// [`EncryptedBodyError::Encryption`] if the library fails.
    pub fn answer_secret(&self) -> Result<OhttpAnswerSecret, EncryptedBodyError> {
        let export = |label: &[u8], secret: &mut [u8]| self.context.export(label, secret);
        OhttpAnswerSecret::from_export(&self.head, self.form, export)
    }
}

impl OhttpRequestOpener {
    pub(crate) fn new(
        context: Box<dyn OpenContext>,
        head: OhttpRequestHead,
        form: OhttpForm,
    ) -> Self {
        Self { context, head, form }
    }

    /// Decrypts the next chunk. After an error nothing more may be opened.
    ///
    /// # Errors
    /// [`EncryptedBodyError::Decryption`] if it is not the next chunk of this request and key, and
    /// [`EncryptedBodyError::TooManyFrames`].
    pub fn open_chunk(&mut self, chunk: SealedFrame) -> Result<Vec<u8>, EncryptedBodyError> {
        open_chunk(self.form, chunk, &mut *self.context)
    }

    /// The secret that both ends share for the answer.
    ///
    /// # Errors
    /// [`EncryptedBodyError::Encryption`] if the library fails.
    pub fn answer_secret(&self) -> Result<OhttpAnswerSecret, EncryptedBodyError> {
        let export = |label: &[u8], secret: &mut [u8]| self.context.export(label, secret);
        OhttpAnswerSecret::from_export(&self.head, self.form, export)
    }
}

impl fmt::Debug for OhttpRequestSealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OhttpRequestSealer").field("form", &self.form).finish_non_exhaustive()
    }
}

impl fmt::Debug for OhttpRequestOpener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OhttpRequestOpener").field("form", &self.form).finish_non_exhaustive()
    }
}
