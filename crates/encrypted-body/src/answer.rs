//! The body of an answer: a key from the request's secret and a nonce of the server's, as in RFC 9458
//! section 4.4.

use std::fmt;

use aws_lc_rs::{
    aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    hkdf::{HKDF_SHA256, KeyType, Prk, Salt},
};
use hpke::HpkeError;
use zeroize::Zeroizing;

use crate::{
    encapsulated_key::EncapsulatedKey,
    error::EncryptedBodyError,
    frame::{FrameOpener, FrameSealer, SealedFrame, TAG_BYTES, append_frame, open_frame},
};

/// The number of bytes of an answer's nonce.
pub const ANSWER_NONCE_BYTES: usize = 32;
const SECRET_BYTES: usize = 32;
const KEY_BYTES: usize = 32;

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

/// A key, and the nonces of the frames.
struct AnswerCipher {
    key: LessSafeKey,
    base_nonce: Zeroizing<[u8; NONCE_LEN]>,
    frames: u64,
}

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
        let salt = [&self.encapsulated[..], &nonce.0].concat();
        let prk = Salt::new(HKDF_SHA256, &salt).extract(&*self.secret);
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        expand(&prk, b"key", &mut *key)?;
        let mut base_nonce = Zeroizing::new([0; NONCE_LEN]);
        expand(&prk, b"nonce", &mut *base_nonce)?;
        let key = UnboundKey::new(&AES_256_GCM, &*key);
        let key = LessSafeKey::new(key.map_err(|_| EncryptedBodyError::Encryption)?);
        Ok(AnswerCipher { key, base_nonce, frames: 0 })
    }

    #[cfg(test)]
    pub(crate) fn seal_answer_with(
        &self,
        nonce: [u8; ANSWER_NONCE_BYTES],
    ) -> Result<AnswerSealer, EncryptedBodyError> {
        Ok(AnswerSealer(self.derive_cipher(AnswerNonce(nonce))?))
    }
}

/// A number of bytes to derive.
struct DerivedBytes(usize);

impl KeyType for DerivedBytes {
    fn len(&self) -> usize {
        self.0
    }
}

fn expand(prk: &Prk, label: &[u8], derived: &mut [u8]) -> Result<(), EncryptedBodyError> {
    let labels = [label];
    let output = prk.expand(&labels, DerivedBytes(derived.len()));
    let filled = output.and_then(|output| output.fill(derived));
    filled.map_err(|_| EncryptedBodyError::Encryption)
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

impl AnswerCipher {
    /// The nonce of the next frame: the base nonce and the number of the frame.
    fn next_nonce(&mut self) -> Result<Nonce, EncryptedBodyError> {
        let mut nonce = *self.base_nonce;
        for (byte, count) in nonce.iter_mut().rev().zip(self.frames.to_le_bytes()) {
            *byte ^= count;
        }
        self.frames = self.frames.checked_add(1).ok_or(EncryptedBodyError::TooManyFrames)?;
        Ok(Nonce::assume_unique_for_key(nonce))
    }
}

impl FrameSealer for AnswerCipher {
    fn seal(&mut self, text: &mut [u8], aad: &[u8]) -> Result<[u8; TAG_BYTES], EncryptedBodyError> {
        let nonce = self.next_nonce()?;
        let tag = self.key.seal_in_place_separate_tag(nonce, Aad::from(aad), text);
        let tag = tag.map_err(|_| EncryptedBodyError::Encryption)?;
        tag.as_ref().try_into().map_err(|_| EncryptedBodyError::Encryption)
    }
}

impl FrameOpener for AnswerCipher {
    fn open(&mut self, sealed: &mut [u8], aad: &[u8]) -> Result<(), EncryptedBodyError> {
        let nonce = self.next_nonce()?;
        let opened = self.key.open_in_place(nonce, Aad::from(aad), sealed);
        opened.map(|_| ()).map_err(|_| EncryptedBodyError::Decryption)
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
