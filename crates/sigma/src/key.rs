//! Public keys, parsed from a certificate, a `SubjectPublicKeyInfo` or a JWK that the caller
//! trusts.
//!
//! Certificates are not verified: the caller checks chain, names, validity and revocation.

mod encoded;
mod jwk;
mod kind;

use std::fmt;

use sha2::{Digest, Sha256};

pub use kind::KEY_FILE_LENGTH_MAX;
pub(crate) use kind::KeyKind;

use crate::error::SigmaError;

/// A key for which signatures can be proved.
#[derive(Clone, PartialEq, Eq)]
pub struct PublicKey {
    pub(crate) kind: KeyKind,
    id: [u8; 32],
}

impl PublicKey {
    /// Parses the key of an X.509 certificate in DER or PEM; of several in one file, the first one.
    ///
    /// # Errors
    ///
    /// [`SigmaError::Malformed`] if the bytes are not a certificate, and the errors of
    /// [`from_spki`](Self::from_spki).
    pub fn from_certificate(bytes: &[u8]) -> Result<Self, SigmaError> {
        Ok(Self::new(encoded::from_certificate(bytes)?))
    }

    /// Parses the key of a `SubjectPublicKeyInfo` (RFC 5280) in DER or PEM (`PUBLIC KEY`).
    ///
    /// # Errors
    ///
    /// [`SigmaError::Unsupported`] for another algorithm or curve, and for RSA-PSS parameters,
    /// [`SigmaError::Exponent`], [`SigmaError::ModulusLength`] and [`SigmaError::ModulusEven`] for
    /// an unsupported RSA key, [`SigmaError::NotOnCurve`] for a point that is not on its curve.
    pub fn from_spki(bytes: &[u8]) -> Result<Self, SigmaError> {
        Ok(Self::new(encoded::from_spki(bytes)?))
    }

    /// Parses the key of a JWK in JSON (RFC 7517, RFC 7518 section 6).
    ///
    /// # Errors
    ///
    /// Those of [`from_spki`](Self::from_spki); [`SigmaError::Unsupported`] also for a private key.
    pub fn from_jwk(bytes: &[u8]) -> Result<Self, SigmaError> {
        Ok(Self::new(jwk::from_jwk(bytes)?))
    }

    /// Makes an RSA key from its modulus and exponent, most significant byte first.
    ///
    /// # Errors
    ///
    /// Those of [`from_spki`](Self::from_spki).
    pub fn from_rsa_numbers(modulus: &[u8], exponent: &[u8]) -> Result<Self, SigmaError> {
        Ok(Self::new(KeyKind::from_rsa_numbers(modulus, exponent)?))
    }

    pub(crate) fn new(kind: KeyKind) -> Self {
        let id = Sha256::digest(encoded::encode_spki(&kind)).into();
        Self { kind, id }
    }

    /// SHA-256 of the key's DER `SubjectPublicKeyInfo`; for RSA with the algorithm `rsaEncryption`.
    pub fn id(&self) -> [u8; 32] {
        self.id
    }

    /// The name of the kind of key, for display: `RSA-2048`, `P-256` or `P-384`.
    pub fn name(&self) -> String {
        match &self.kind {
            KeyKind::Rsa(key) => format!("RSA-{}", key.bits()),
            KeyKind::P256(_) => "P-256".to_string(),
            KeyKind::P384(_) => "P-384".to_string(),
        }
    }

    /// The modulus of an RSA key, most significant byte first.
    pub fn rsa_modulus(&self) -> Option<Vec<u8>> {
        match &self.kind {
            KeyKind::Rsa(key) => Some(key.modulus()),
            _ => None,
        }
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({} ", self.name())?;
        self.id.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(")")
    }
}
