//! The server's key pair.

use std::fmt;

use hpke::{
    Deserializable, Kem, Serializable,
    kem::{X25519HkdfSha256, XWing},
};
use zeroize::Zeroizing;

use crate::{
    cipher::BodyCipher,
    context::{OpenContext, begin_opening},
    encapsulated_key::EncapsulatedKey,
    error::EncryptedBodyError,
    fields::BodyEnd,
    kem::BodyKem,
    ohttp_form::OhttpForm,
    ohttp_head::OhttpRequestHead,
    ohttp_request::OhttpRequestOpener,
    public_key::BodyPublicKey,
    request::RequestOpener,
};

/// The number of bytes of a private key, of either kind.
const PRIVATE_KEY_BYTES: usize = 32;

/// The key pair of a server. The private key is overwritten when it is dropped.
pub struct RecipientKey {
    private_key: PrivateKey,
    public_key: BodyPublicKey,
}

enum PrivateKey {
    X25519(<X25519HkdfSha256 as Kem>::PrivateKey),
    XWing(Box<<XWing as Kem>::PrivateKey>),
}

impl RecipientKey {
    /// Generates a key pair.
    ///
    /// # Errors
    /// [`EncryptedBodyError::Encryption`] if the system has no randomness.
    pub fn generate(kem: BodyKem) -> Result<Self, EncryptedBodyError> {
        let mut random = Zeroizing::new([0; PRIVATE_KEY_BYTES]);
        aws_lc_rs::rand::fill(&mut *random).map_err(|_| EncryptedBodyError::Encryption)?;
        Ok(match kem {
            BodyKem::X25519 => {
                let (private_key, public_key) = X25519HkdfSha256::derive_keypair(&*random);
                Self::from_parts(PrivateKey::X25519(private_key), kem, &public_key.to_bytes())
            }
            BodyKem::XWing => {
                let (private_key, public_key) = XWing::derive_keypair(&*random);
                let private_key = PrivateKey::XWing(Box::new(private_key));
                Self::from_parts(private_key, kem, &public_key.to_bytes())
            }
        })
    }

    /// The key pair of a serialised private key: RFC 9180's for X25519, the seed of X-Wing.
    ///
    /// # Errors
    /// [`EncryptedBodyError::PrivateKey`] for another length.
    pub fn from_private_key(kem: BodyKem, bytes: &[u8]) -> Result<Self, EncryptedBodyError> {
        let failed = |_| EncryptedBodyError::PrivateKey;
        Ok(match kem {
            BodyKem::X25519 => {
                let key =
                    <X25519HkdfSha256 as Kem>::PrivateKey::from_bytes(bytes).map_err(failed)?;
                let public_key = X25519HkdfSha256::sk_to_pk(&key).to_bytes();
                Self::from_parts(PrivateKey::X25519(key), kem, &public_key)
            }
            BodyKem::XWing => {
                let key = <XWing as Kem>::PrivateKey::from_bytes(bytes).map_err(failed)?;
                let public_key = XWing::sk_to_pk(&key).to_bytes();
                Self::from_parts(PrivateKey::XWing(Box::new(key)), kem, &public_key)
            }
        })
    }

    fn from_parts(private_key: PrivateKey, kem: BodyKem, public_key: &[u8]) -> Self {
        let public_key = BodyPublicKey { kem, bytes: public_key.to_vec() };
        Self { private_key, public_key }
    }

    /// The public key.
    pub fn public_key(&self) -> &BodyPublicKey {
        &self.public_key
    }

    /// Begins to open a request. Only its first frame shows whether it was meant for this key.
    ///
    /// # Errors
    /// [`EncryptedBodyError::EncapsulatedKey`] if the key is of another kind, or not valid.
    pub fn open_request(
        &self,
        encapsulated: &EncapsulatedKey,
        end: BodyEnd,
    ) -> Result<RequestOpener, EncryptedBodyError> {
        let context = self.begin_opening(encapsulated, BodyCipher::Aes256Gcm, end.info())?;
        Ok(RequestOpener::new(context, encapsulated.clone()))
    }

    /// Begins to open an encapsulated request of OHTTP. Only its first chunk shows whether it was
    /// meant for this key. HPKE's `info` is another one than that of [`RecipientKey::open_request`],
    /// so nothing that was encrypted in one form opens in the other.
    ///
    /// # Errors
    /// [`EncryptedBodyError::EncapsulatedKey`] if the key is of another kind, or not valid.
    pub fn open_ohttp_request(
        &self,
        head: &OhttpRequestHead,
        form: OhttpForm,
    ) -> Result<OhttpRequestOpener, EncryptedBodyError> {
        let context = self.begin_opening(&head.encapsulated, head.cipher, &head.info(form))?;
        Ok(OhttpRequestOpener::new(context, head.clone(), form))
    }

    fn begin_opening(
        &self,
        encapsulated: &EncapsulatedKey,
        cipher: BodyCipher,
        info: &[u8],
    ) -> Result<Box<dyn OpenContext>, EncryptedBodyError> {
        if encapsulated.kem != self.public_key.kem {
            return Err(EncryptedBodyError::EncapsulatedKey);
        }
        let bytes = &encapsulated.bytes;
        match &self.private_key {
            PrivateKey::X25519(key) => begin_opening::<X25519HkdfSha256>(key, cipher, bytes, info),
            PrivateKey::XWing(key) => begin_opening::<XWing>(key, cipher, bytes, info),
        }
    }
}

impl fmt::Debug for RecipientKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecipientKey").field("public_key", &self.public_key).finish_non_exhaustive()
    }
}
