//! The kinds of keys for which signatures can be proved.

use p256::elliptic_curve::sec1::ToSec1Point;

use crate::{ecdsa, error::SigmaError, rsa::RsaKey};

/// The greatest length of a key file, 64 KiB; of a longer chain, pass the first certificate only.
pub const KEY_FILE_LENGTH_MAX: usize = 64 * 1024;

/// An RSA key, or a point on one of two curves.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum KeyKind {
    Rsa(RsaKey),
    P256(p256::PublicKey),
    P384(p384::PublicKey),
}

impl KeyKind {
    /// An RSA key from its modulus and exponent, most significant byte first.
    pub(super) fn from_rsa_numbers(modulus: &[u8], exponent: &[u8]) -> Result<Self, SigmaError> {
        Ok(Self::Rsa(RsaKey::new(modulus, exponent)?))
    }

    /// A point on P-256 in one of the encodings of RFC 5480.
    pub(super) fn from_p256_point(point: &[u8]) -> Result<Self, SigmaError> {
        let key =
            check_sec1_tag(point).and_then(|point| p256::PublicKey::from_sec1_bytes(point).ok());
        key.map(Self::P256).ok_or_else(|| ecdsa::not_on_curve_error("public key"))
    }

    /// A point on P-384 in one of the encodings of RFC 5480.
    pub(super) fn from_p384_point(point: &[u8]) -> Result<Self, SigmaError> {
        let key =
            check_sec1_tag(point).and_then(|point| p384::PublicKey::from_sec1_bytes(point).ok());
        key.map(Self::P384).ok_or_else(|| ecdsa::not_on_curve_error("public key"))
    }

    /// Encodes the uncompressed point of an elliptic-curve key; empty for an RSA key.
    pub(super) fn encode_point(&self) -> Vec<u8> {
        match self {
            Self::Rsa(_) => Vec::new(),
            Self::P256(key) => key.to_sec1_point(false).as_bytes().to_vec(),
            Self::P384(key) => key.to_sec1_point(false).as_bytes().to_vec(),
        }
    }
}

/// Returns the point if its first byte is one of RFC 5480; SEC 1's compact encoding is refused.
fn check_sec1_tag(point: &[u8]) -> Option<&[u8]> {
    matches!(point.first(), Some(2..=4)).then_some(point)
}
