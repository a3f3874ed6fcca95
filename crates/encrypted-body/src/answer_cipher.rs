//! The key of an answer, derived as in RFC 9458 section 4.4 from the request's secret and a nonce of
//! the server's, and the nonces of its frames.

use aws_lc_rs::{
    aead::{AES_128_GCM, AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    hkdf::{HKDF_SHA256, KeyType, Prk, Salt},
};
use zeroize::Zeroizing;

use crate::{
    cipher::BodyCipher,
    error::EncryptedBodyError,
    frame::{FrameOpener, FrameSealer, TAG_BYTES},
};

/// A key, and the nonces of the frames.
pub(crate) struct AnswerCipher {
    key: LessSafeKey,
    base_nonce: Zeroizing<[u8; NONCE_LEN]>,
    frames: u64,
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

impl AnswerCipher {
    /// Derives the key from the exported secret of a request, its encapsulated key and a nonce.
    pub(crate) fn derive(
        cipher: BodyCipher,
        secret: &[u8],
        encapsulated: &[u8],
        nonce: &[u8],
    ) -> Result<Self, EncryptedBodyError> {
        let salt = [encapsulated, nonce].concat();
        let prk = Salt::new(HKDF_SHA256, &salt).extract(secret);
        let mut key = Zeroizing::new(vec![0; cipher.key_bytes()]);
        expand(&prk, b"key", &mut key)?;
        let mut base_nonce = Zeroizing::new([0; NONCE_LEN]);
        expand(&prk, b"nonce", &mut *base_nonce)?;
        let algorithm = match cipher {
            BodyCipher::Aes256Gcm => &AES_256_GCM,
            BodyCipher::Aes128Gcm => &AES_128_GCM,
        };
        let key = UnboundKey::new(algorithm, &key);
        let key = LessSafeKey::new(key.map_err(|_| EncryptedBodyError::Encryption)?);
        Ok(Self { key, base_nonce, frames: 0 })
    }

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
