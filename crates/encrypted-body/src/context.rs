//! HPKE's contexts of either kind of key, behind one interface.

use hpke::{
    Deserializable, HpkeError, Kem, OpModeR, OpModeS, Serializable,
    aead::{AeadCtxR, AeadCtxS, AeadTag, AesGcm256},
    inout::InOutBuf,
    kdf::HkdfSha256,
    rand_core::CryptoRng,
    setup_receiver, setup_sender_with_rng,
};

use crate::{
    error::EncryptedBodyError,
    frame::{FrameOpener, FrameSealer, TAG_BYTES},
};

/// The sender's side of one request.
pub(crate) trait SealContext: FrameSealer + Send + Sync {
    fn export(&self, label: &[u8], secret: &mut [u8]) -> Result<(), HpkeError>;
}

/// The recipient's side of one request.
pub(crate) trait OpenContext: FrameOpener + Send + Sync {
    fn export(&self, label: &[u8], secret: &mut [u8]) -> Result<(), HpkeError>;
}

impl<K: Kem> FrameSealer for AeadCtxS<AesGcm256, HkdfSha256, K> {
    fn seal(&mut self, text: &mut [u8], aad: &[u8]) -> Result<[u8; TAG_BYTES], EncryptedBodyError> {
        let tag = self.seal_inout_detached(InOutBuf::from(text), aad);
        let tag = tag.map_err(|error| match error {
            HpkeError::MessageLimitReached => EncryptedBodyError::TooManyFrames,
            _ => EncryptedBodyError::Encryption,
        })?;
        Ok(tag.to_bytes().into())
    }
}

impl<K: Kem> FrameOpener for AeadCtxR<AesGcm256, HkdfSha256, K> {
    fn open(&mut self, sealed: &mut [u8], aad: &[u8]) -> Result<(), EncryptedBodyError> {
        let failed = |error| match error {
            HpkeError::MessageLimitReached => EncryptedBodyError::TooManyFrames,
            _ => EncryptedBodyError::Decryption,
        };
        let length = sealed.len().checked_sub(TAG_BYTES).ok_or(EncryptedBodyError::Decryption)?;
        let (text, tag) = sealed.split_at_mut(length);
        let tag = AeadTag::<AesGcm256>::from_bytes(tag).map_err(failed)?;
        self.open_inout_detached(InOutBuf::from(text), aad, &tag).map_err(failed)
    }
}

impl<K: Kem> SealContext for AeadCtxS<AesGcm256, HkdfSha256, K>
where
    Self: Send + Sync,
{
    fn export(&self, label: &[u8], secret: &mut [u8]) -> Result<(), HpkeError> {
        AeadCtxS::export(self, label, secret)
    }
}

impl<K: Kem> OpenContext for AeadCtxR<AesGcm256, HkdfSha256, K>
where
    Self: Send + Sync,
{
    fn export(&self, label: &[u8], secret: &mut [u8]) -> Result<(), HpkeError> {
        AeadCtxR::export(self, label, secret)
    }
}

/// The sender's context for the bytes of a public key, and the encapsulated key.
pub(crate) fn begin_sealing<K: Kem>(
    public_key: &[u8],
    info: &[u8],
    random: &mut impl CryptoRng,
) -> Result<(Vec<u8>, Box<dyn SealContext>), EncryptedBodyError>
where
    AeadCtxS<AesGcm256, HkdfSha256, K>: Send + Sync + 'static,
{
    let failed = |_| EncryptedBodyError::Encryption;
    let key = K::PublicKey::from_bytes(public_key).map_err(failed)?;
    let sender =
        setup_sender_with_rng::<AesGcm256, HkdfSha256, K>(&OpModeS::Base, &key, info, random);
    let (encapsulated, context) = sender.map_err(failed)?;
    Ok((encapsulated.to_bytes().to_vec(), Box::new(context)))
}

/// The recipient's context for the bytes of an encapsulated key.
pub(crate) fn begin_opening<K: Kem>(
    private_key: &K::PrivateKey,
    encapsulated: &[u8],
    info: &[u8],
) -> Result<Box<dyn OpenContext>, EncryptedBodyError>
where
    AeadCtxR<AesGcm256, HkdfSha256, K>: Send + Sync + 'static,
{
    let failed = |_| EncryptedBodyError::EncapsulatedKey;
    let encapsulated = K::EncappedKey::from_bytes(encapsulated).map_err(failed)?;
    let mode = OpModeR::Base;
    let context =
        setup_receiver::<AesGcm256, HkdfSha256, K>(&mode, private_key, &encapsulated, info);
    Ok(Box::new(context.map_err(failed)?))
}
