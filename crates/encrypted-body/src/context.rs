//! HPKE's contexts of either kind of key, behind one interface.

use hpke::{
    Deserializable, HpkeError, Kem, OpModeR, OpModeS, Serializable,
    aead::{AeadCtxR, AeadCtxS, AeadTag, AesGcm256},
    inout::InOutBuf,
    kdf::HkdfSha256,
    rand_core::CryptoRng,
    setup_receiver, setup_sender_with_rng,
};

use crate::{error::EncryptedBodyError, frame::TAG_BYTES};

/// The sender's side of one request.
pub(crate) trait SealContext: Send + Sync {
    /// Encrypts the next plaintext in place and returns its tag.
    fn seal(&mut self, text: &mut [u8], aad: &[u8]) -> Result<[u8; TAG_BYTES], HpkeError>;

    fn export(&self, label: &[u8], secret: &mut [u8]) -> Result<(), HpkeError>;
}

/// The recipient's side of one request.
pub(crate) trait OpenContext: Send + Sync {
    /// Decrypts the next ciphertext in place.
    fn open(&mut self, text: &mut [u8], aad: &[u8], tag: &[u8]) -> Result<(), HpkeError>;

    fn export(&self, label: &[u8], secret: &mut [u8]) -> Result<(), HpkeError>;
}

impl<K: Kem> SealContext for AeadCtxS<AesGcm256, HkdfSha256, K>
where
    Self: Send + Sync,
{
    fn seal(&mut self, text: &mut [u8], aad: &[u8]) -> Result<[u8; TAG_BYTES], HpkeError> {
        let tag = self.seal_inout_detached(InOutBuf::from(text), aad)?;
        Ok(tag.to_bytes().into())
    }

    fn export(&self, label: &[u8], secret: &mut [u8]) -> Result<(), HpkeError> {
        AeadCtxS::export(self, label, secret)
    }
}

impl<K: Kem> OpenContext for AeadCtxR<AesGcm256, HkdfSha256, K>
where
    Self: Send + Sync,
{
    fn open(&mut self, text: &mut [u8], aad: &[u8], tag: &[u8]) -> Result<(), HpkeError> {
        let tag = AeadTag::<AesGcm256>::from_bytes(tag)?;
        self.open_inout_detached(InOutBuf::from(text), aad, &tag)
    }

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
