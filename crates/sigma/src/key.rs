//! Public keys, read from a certificate, a `SubjectPublicKeyInfo` or a JWK that the caller trusts.
//!
//! Nothing here judges a certificate: neither its chain, nor its names, its time or its revocation.

mod encoded;
mod jwk;
mod kind;

use std::fmt;

use sha2::{Digest, Sha256};

pub use kind::KEY_FILE_LENGTH_MAX;
pub(crate) use kind::Kind;

use crate::error::SigmaError;

/// A key that signatures can be proved for.
#[derive(Clone, PartialEq, Eq)]
pub struct PublicKey {
    pub(crate) kind: Kind,
    id: [u8; 32],
}

impl PublicKey {
    /// Reads the key of an X.509 certificate, DER or PEM; of several in one file, the first.
    ///
    /// # Errors
    ///
    /// [`SigmaError::Malformed`] for what is not a certificate; the rest as for
    /// [`from_spki`](Self::from_spki).
    pub fn from_certificate(bytes: &[u8]) -> Result<Self, SigmaError> {
        Ok(Self::new(encoded::from_certificate(bytes)?))
    }

    /// Reads the key of a `SubjectPublicKeyInfo` (RFC 5280), DER or PEM (`PUBLIC KEY`).
    ///
    /// # Errors
    ///
    /// [`SigmaError::Unsupported`] for another algorithm or curve, and for RSA-PSS parameters,
    /// [`SigmaError::Exponent`], [`SigmaError::ModulusLength`] and [`SigmaError::ModulusEven`] for
    /// an RSA key outside what is proved, [`SigmaError::NotOnCurve`] for a point off its curve.
    pub fn from_spki(bytes: &[u8]) -> Result<Self, SigmaError> {
        Ok(Self::new(encoded::from_spki(bytes)?))
    }

    /// Reads the key of a JWK in JSON (RFC 7517, RFC 7518 section 6).
    ///
    /// # Errors
    ///
    /// As [`from_spki`](Self::from_spki); a private key is refused as [`SigmaError::Unsupported`].
    pub fn from_jwk(bytes: &[u8]) -> Result<Self, SigmaError> {
        Ok(Self::new(jwk::from_jwk(bytes)?))
    }

    /// Makes an RSA key from its modulus and exponent, most significant byte first.
    ///
    /// # Errors
    ///
    /// As [`from_spki`](Self::from_spki).
    pub fn rsa(modulus: &[u8], exponent: &[u8]) -> Result<Self, SigmaError> {
        Ok(Self::new(Kind::rsa(modulus, exponent)?))
    }

    pub(crate) fn new(kind: Kind) -> Self {
        let id = Sha256::digest(encoded::spki(&kind)).into();
        Self { kind, id }
    }

    /// SHA-256 of the key's DER `SubjectPublicKeyInfo`; for RSA under `rsaEncryption`.
    pub fn id(&self) -> [u8; 32] {
        self.id
    }

    /// The name of the kind of key, for display: `RSA-2048`, `P-256` or `P-384`.
    pub fn name(&self) -> String {
        match &self.kind {
            Kind::Rsa(key) => format!("RSA-{}", key.bits()),
            Kind::P256(_) => "P-256".to_string(),
            Kind::P384(_) => "P-384".to_string(),
        }
    }

    /// The modulus of an RSA key, most significant byte first.
    pub fn rsa_modulus(&self) -> Option<Vec<u8>> {
        match &self.kind {
            Kind::Rsa(key) => Some(key.modulus()),
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
