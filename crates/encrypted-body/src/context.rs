//! HPKE's contexts of either kind of key, behind one interface.

use hpke::{
    Deserializable, HpkeError, Kem, OpModeR, OpModeS, Serializable,
    aead::{Aead, AeadCtxR, AeadCtxS, AeadTag, AesGcm128, AesGcm256},
    inout::InOutBuf,
    kdf::HkdfSha256,
    kem::{X25519HkdfSha256, XWing},
    rand_core::CryptoRng,
    setup_receiver, setup_sender_with_rng,
};

use crate::{
    cipher::BodyCipher,
    error::EncryptedBodyError,
    frame::{FrameOpener, FrameSealer, TAG_BYTES},
    kem::BodyKem,
    public_key::BodyPublicKey,
};

/// The sender's side of one request.
pub(crate) trait SealContext: FrameSealer + Send + Sync {
    fn export(&self, label: &[u8], secret: &mut [u8]) -> Result<(), HpkeError>;
}

/// The recipient's side of one request.
pub(crate) trait OpenContext: FrameOpener + Send + Sync {
    fn export(&self, label: &[u8], secret: &mut [u8]) -> Result<(), HpkeError>;
}

impl<A: Aead, K: Kem> FrameSealer for AeadCtxS<A, HkdfSha256, K> {
    fn seal(&mut self, text: &mut [u8], aad: &[u8]) -> Result<[u8; TAG_BYTES], EncryptedBodyError> {
        let tag = self.seal_inout_detached(InOutBuf::from(text), aad);
        let tag = tag.map_err(|error| match error {
            HpkeError::MessageLimitReached => EncryptedBodyError::TooManyFrames,
            _ => EncryptedBodyError::Encryption,
        })?;
        tag.to_bytes().as_slice().try_into().map_err(|_| EncryptedBodyError::Encryption)
    }
}

impl<A: Aead, K: Kem> FrameOpener for AeadCtxR<A, HkdfSha256, K> {
    fn open(&mut self, sealed: &mut [u8], aad: &[u8]) -> Result<(), EncryptedBodyError> {
        let failed = |error| match error {
            HpkeError::MessageLimitReached => EncryptedBodyError::TooManyFrames,
            _ => EncryptedBodyError::Decryption,
        };
        let length = sealed.len().checked_sub(TAG_BYTES).ok_or(EncryptedBodyError::Decryption)?;
        let (text, tag) = sealed.split_at_mut(length);
        let tag = AeadTag::<A>::from_bytes(tag).map_err(failed)?;
        self.open_inout_detached(InOutBuf::from(text), aad, &tag).map_err(failed)
    }
}

impl<A: Aead, K: Kem> SealContext for AeadCtxS<A, HkdfSha256, K>
where
    Self: Send + Sync,
{
    fn export(&self, label: &[u8], secret: &mut [u8]) -> Result<(), HpkeError> {
        AeadCtxS::export(self, label, secret)
    }
}

impl<A: Aead, K: Kem> OpenContext for AeadCtxR<A, HkdfSha256, K>
where
    Self: Send + Sync,
{
    fn export(&self, label: &[u8], secret: &mut [u8]) -> Result<(), HpkeError> {
        AeadCtxR::export(self, label, secret)
    }
}

/// An encapsulated key, and the sender's context.
type BegunSealing = Result<(Vec<u8>, Box<dyn SealContext>), EncryptedBodyError>;

/// The encapsulated key for a public key, and the sender's context.
pub(crate) fn begin_sealing(
    key: &BodyPublicKey,
    cipher: BodyCipher,
    info: &[u8],
    random: &mut impl CryptoRng,
) -> BegunSealing {
    let bytes = key.as_bytes();
    match (key.kem(), cipher) {
        (BodyKem::X25519, BodyCipher::Aes256Gcm) => {
            seal_with::<X25519HkdfSha256, AesGcm256>(bytes, info, random)
        }
        (BodyKem::X25519, BodyCipher::Aes128Gcm) => {
            seal_with::<X25519HkdfSha256, AesGcm128>(bytes, info, random)
        }
        (BodyKem::XWing, BodyCipher::Aes256Gcm) => {
            seal_with::<XWing, AesGcm256>(bytes, info, random)
        }
        (BodyKem::XWing, BodyCipher::Aes128Gcm) => {
            seal_with::<XWing, AesGcm128>(bytes, info, random)
        }
    }
}

fn seal_with<K: Kem, A: Aead>(
    public_key: &[u8],
    info: &[u8],
    random: &mut impl CryptoRng,
) -> BegunSealing
where
    AeadCtxS<A, HkdfSha256, K>: Send + Sync + 'static,
{
    let failed = |_| EncryptedBodyError::Encryption;
    let key = K::PublicKey::from_bytes(public_key).map_err(failed)?;
    let sender = setup_sender_with_rng::<A, HkdfSha256, K>(&OpModeS::Base, &key, info, random);
    let (encapsulated, context) = sender.map_err(failed)?;
    Ok((encapsulated.to_bytes().to_vec(), Box::new(context)))
}

/// The recipient's context for the bytes of an encapsulated key.
pub(crate) fn begin_opening<K: Kem>(
    private_key: &K::PrivateKey,
    cipher: BodyCipher,
    encapsulated: &[u8],
    info: &[u8],
) -> Result<Box<dyn OpenContext>, EncryptedBodyError>
where
    AeadCtxR<AesGcm256, HkdfSha256, K>: Send + Sync + 'static,
    AeadCtxR<AesGcm128, HkdfSha256, K>: Send + Sync + 'static,
{
    match cipher {
        BodyCipher::Aes256Gcm => open_with::<K, AesGcm256>(private_key, encapsulated, info),
        BodyCipher::Aes128Gcm => open_with::<K, AesGcm128>(private_key, encapsulated, info),
    }
}

fn open_with<K: Kem, A: Aead>(
    private_key: &K::PrivateKey,
    encapsulated: &[u8],
    info: &[u8],
) -> Result<Box<dyn OpenContext>, EncryptedBodyError>
where
    AeadCtxR<A, HkdfSha256, K>: Send + Sync + 'static,
{
    let failed = |_| EncryptedBodyError::EncapsulatedKey;
    let encapsulated = K::EncappedKey::from_bytes(encapsulated).map_err(failed)?;
    let mode = OpModeR::Base;
    let context = setup_receiver::<A, HkdfSha256, K>(&mode, private_key, &encapsulated, info);
    Ok(Box::new(context.map_err(failed)?))
}
