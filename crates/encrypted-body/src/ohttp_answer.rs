//! An encapsulated answer: a nonce, and the chunks under a key that follows from it and from the
//! request. A whole answer is one chunk.

use std::fmt;

use hpke::HpkeError;
use zeroize::Zeroizing;

use crate::{
    answer_cipher::AnswerCipher,
    chunk::{append_chunk, append_final_chunk, open_chunk},
    cipher::BodyCipher,
    error::EncryptedBodyError,
    frame::SealedFrame,
    ohttp_form::OhttpForm,
    ohttp_head::OhttpRequestHead,
};

/// The secret that both ends of a request share for its answer.
pub struct OhttpAnswerSecret {
    secret: Zeroizing<Vec<u8>>,
    encapsulated: Vec<u8>,
    cipher: BodyCipher,
    form: OhttpForm,
}

/// Encapsulates one answer, at the gateway.
pub struct OhttpAnswerSealer {
    cipher: AnswerCipher,
    form: OhttpForm,
}

/// Opens one answer, at the client.
pub struct OhttpAnswerOpener {
    cipher: AnswerCipher,
    form: OhttpForm,
}

impl OhttpAnswerSecret {
    pub(crate) fn from_export(
        head: &OhttpRequestHead,
        form: OhttpForm,
        export: impl FnOnce(&[u8], &mut [u8]) -> Result<(), HpkeError>,
    ) -> Result<Self, EncryptedBodyError> {
        let mut secret = Zeroizing::new(vec![0; head.cipher.key_bytes()]);
        export(form.answer_label(), &mut secret).map_err(|_| EncryptedBodyError::Encryption)?;
        let encapsulated = head.encapsulated.bytes.clone();
        Ok(Self { secret, encapsulated, cipher: head.cipher, form })
    }

    /// The form of the answer, which is that of the request.
    pub fn form(&self) -> OhttpForm {
        self.form
    }

    /// The number of bytes of the nonce with which an answer begins.
    pub fn nonce_bytes(&self) -> usize {
        self.cipher.key_bytes()
    }

    /// Begins an answer with a new nonce, with which the body begins.
    ///
    /// # Errors
    /// [`EncryptedBodyError::Encryption`] if the system has no randomness.
    pub fn seal_answer(&self) -> Result<(Vec<u8>, OhttpAnswerSealer), EncryptedBodyError> {
        let mut nonce = vec![0; self.nonce_bytes()];
        aws_lc_rs::rand::fill(&mut nonce).map_err(|_| EncryptedBodyError::Encryption)?;
        let cipher = self.derive_cipher(&nonce)?;
        Ok((nonce, OhttpAnswerSealer { cipher, form: self.form }))
    }

    /// Begins to open an answer with the nonce at its front.
    ///
    /// # Errors
    /// [`EncryptedBodyError::AnswerNonce`] for a nonce of another length, and
    /// [`EncryptedBodyError::Encryption`] if the library fails.
    pub fn open_answer(&self, nonce: &[u8]) -> Result<OhttpAnswerOpener, EncryptedBodyError> {
        if nonce.len() != self.nonce_bytes() {
            return Err(EncryptedBodyError::AnswerNonce);
        }
        Ok(OhttpAnswerOpener { cipher: self.derive_cipher(nonce)?, form: self.form })
    }

    fn derive_cipher(&self, nonce: &[u8]) -> Result<AnswerCipher, EncryptedBodyError> {
        AnswerCipher::derive(self.cipher, &self.secret, &self.encapsulated, nonce)
    }

    #[cfg(test)]
    pub(crate) fn seal_answer_with(&self, nonce: &[u8]) -> OhttpAnswerSealer {
        OhttpAnswerSealer { cipher: self.derive_cipher(nonce).unwrap(), form: self.form }
    }
}

impl OhttpAnswerSealer {
    /// Appends the next chunk to `body`; nothing for an empty text. A whole answer has only a final
    /// chunk.
    ///
    /// # Errors
    /// [`EncryptedBodyError::TooManyFrames`], and [`EncryptedBodyError::Encryption`] in a whole
    /// answer.
    pub fn seal_chunk(
        &mut self,
        text: &[u8],
        body: &mut Vec<u8>,
    ) -> Result<(), EncryptedBodyError> {
        append_chunk(self.form, body, text, &mut self.cipher)
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
        append_final_chunk(self.form, body, text, &mut self.cipher)
    }
}

impl OhttpAnswerOpener {
    /// Decrypts the next chunk. After an error nothing more may be opened.
    ///
    /// # Errors
    /// [`EncryptedBodyError::Decryption`] if it is not the next chunk of this answer and key.
    pub fn open_chunk(&mut self, chunk: SealedFrame) -> Result<Vec<u8>, EncryptedBodyError> {
        open_chunk(self.form, chunk, &mut self.cipher)
    }
}

impl fmt::Debug for OhttpAnswerSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OhttpAnswerSecret").field("form", &self.form).finish_non_exhaustive()
    }
}

impl fmt::Debug for OhttpAnswerSealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OhttpAnswerSealer").field("form", &self.form).finish_non_exhaustive()
    }
}

impl fmt::Debug for OhttpAnswerOpener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OhttpAnswerOpener").field("form", &self.form).finish_non_exhaustive()
    }
}
