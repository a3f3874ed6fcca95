//! Records of TLS 1.3 (RFC 8446 section 5.2).

use std::marker::PhantomData;

use aead::{AeadCore, AeadInOut, KeyInit, Nonce, Tag, consts::U16};
use aes_gcm::{Aes128Gcm, Aes256Gcm};
use chacha20poly1305::ChaCha20Poly1305;
use rustls::{
    ConnectionTrafficSecrets, ContentType, Error, ProtocolVersion,
    crypto::cipher::{
        AeadKey, InboundOpaqueMessage, InboundPlainMessage, Iv, MessageDecrypter, MessageEncrypter,
        OutboundOpaqueMessage, OutboundPlainMessage, PrefixedPayload, Tls13AeadAlgorithm,
        UnsupportedOperationError, make_tls13_aad,
    },
};

pub(super) static AES_128_GCM: RecordCipher<Aes128Gcm> = RecordCipher::new(16);
pub(super) static AES_256_GCM: RecordCipher<Aes256Gcm> = RecordCipher::new(32);
pub(super) static CHACHA20_POLY1305: RecordCipher<ChaCha20Poly1305> = RecordCipher::new(32);

/// The bytes of a tag, the same in all suites.
const TAG_BYTES: usize = 16;

/// The algorithm `A` with a key of this many bytes.
pub(super) struct RecordCipher<A> {
    key_bytes: usize,
    algorithm: PhantomData<fn() -> A>,
}

impl<A> RecordCipher<A> {
    const fn new(key_bytes: usize) -> Self {
        Self { key_bytes, algorithm: PhantomData }
    }
}

impl<A> RecordCipher<A>
where
    A: AeadInOut + KeyInit + Send + Sync + 'static,
{
    fn make_cipher(key: &AeadKey, iv: Iv) -> KeyedCipher<A> {
        // rustls derives as many bytes as `key_len` says.
        let cipher = A::new_from_slice(key.as_ref()).expect("the key has the suite's length");
        KeyedCipher { cipher, iv }
    }
}

impl<A> Tls13AeadAlgorithm for RecordCipher<A>
where
    A: AeadInOut + AeadCore<TagSize = U16> + KeyInit + Send + Sync + 'static,
{
    fn encrypter(&self, key: AeadKey, iv: Iv) -> Box<dyn MessageEncrypter> {
        Box::new(Self::make_cipher(&key, iv))
    }

    fn decrypter(&self, key: AeadKey, iv: Iv) -> Box<dyn MessageDecrypter> {
        Box::new(Self::make_cipher(&key, iv))
    }

    fn key_len(&self) -> usize {
        self.key_bytes
    }

    /// The keys of a session do not leave it.
    fn extract_keys(
        &self,
        _key: AeadKey,
        _iv: Iv,
    ) -> Result<ConnectionTrafficSecrets, UnsupportedOperationError> {
        Err(UnsupportedOperationError)
    }
}

/// One direction's key.
struct KeyedCipher<A> {
    cipher: A,
    iv: Iv,
}

impl<A: AeadInOut> KeyedCipher<A> {
    fn nonce(&self, sequence: u64) -> Option<Nonce<A>> {
        let nonce = rustls::crypto::cipher::Nonce::new(&self.iv, sequence).0;
        Nonce::<A>::try_from(&nonce[..]).ok()
    }
}

impl<A> MessageEncrypter for KeyedCipher<A>
where
    A: AeadInOut + AeadCore<TagSize = U16> + Send + Sync,
{
    fn encrypt(
        &mut self,
        message: OutboundPlainMessage<'_>,
        sequence: u64,
    ) -> Result<OutboundOpaqueMessage, Error> {
        let length = self.encrypted_payload_len(message.payload.len());
        let nonce = self.nonce(sequence).ok_or(Error::EncryptError)?;
        let mut payload = PrefixedPayload::with_capacity(length);
        payload.extend_from_chunks(&message.payload);
        payload.extend_from_slice(&[u8::from(message.typ)]);
        let tag = self
            .cipher
            .encrypt_inout_detached(&nonce, &make_tls13_aad(length), payload.as_mut().into())
            .map_err(|_| Error::EncryptError)?;
        payload.extend_from_slice(&tag);
        // The outer type and version are fixed (RFC 8446 section 5.2).
        let (outer, version) = (ContentType::ApplicationData, ProtocolVersion::TLSv1_2);
        Ok(OutboundOpaqueMessage::new(outer, version, payload))
    }

    fn encrypted_payload_len(&self, payload_len: usize) -> usize {
        payload_len + 1 + TAG_BYTES
    }
}

impl<A> MessageDecrypter for KeyedCipher<A>
where
    A: AeadInOut + AeadCore<TagSize = U16> + Send + Sync,
{
    fn decrypt<'a>(
        &mut self,
        mut message: InboundOpaqueMessage<'a>,
        sequence: u64,
    ) -> Result<InboundPlainMessage<'a>, Error> {
        let payload = &mut message.payload;
        let aad = make_tls13_aad(payload.len());
        let length = payload.len().checked_sub(TAG_BYTES).ok_or(Error::DecryptError)?;
        let nonce = self.nonce(sequence).ok_or(Error::DecryptError)?;
        let (text, tag) = payload.split_at_mut(length);
        let tag = Tag::<A>::try_from(&*tag).map_err(|_| Error::DecryptError)?;
        self.cipher
            .decrypt_inout_detached(&nonce, &aad, text.into(), &tag)
            .map_err(|_| Error::DecryptError)?;
        payload.truncate(length);
        message.into_tls13_unpadded_message()
    }
}
