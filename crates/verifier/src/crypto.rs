//! The one trait through which signature checks come in.

use alloc::boxed::Box;
use core::fmt;

use rustls_pki_types::SignatureVerificationAlgorithm;

/// Cryptography that appraisal needs; everything it is given is public.
///
/// The feature `aws-lc` brings an implementation for servers and clients (`AwsLc`); a browser or a
/// zkVM guest brings its own.
pub trait Crypto: Send + Sync {
    /// Whether `signature` (r, then s, 32 bytes each, big-endian) is an ECDSA P-256 signature with
    /// SHA-256 over `message` by `public_key` (0x04, x, y).
    ///
    /// High-s signatures are genuine: quoting enclaves make them.
    fn verify_p256(&self, public_key: &[u8; 65], message: &[u8], signature: &[u8; 64]) -> bool;

    /// A P-256 key read once, for more than one signature; `None` if the point is not on the
    /// curve, or where this implementation gains nothing by it (the default).
    fn prepare_p256(&self, _public_key: &[u8; 65]) -> Option<Box<dyn P256Key>> {
        None
    }

    /// Whether `signature` (r, then s, 48 bytes each, big-endian) is an ECDSA P-384 signature with
    /// SHA-384 over `message` by `public_key` (0x04, x, y).
    fn verify_p384(&self, public_key: &[u8; 97], message: &[u8], signature: &[u8; 96]) -> bool;

    /// A P-384 key read once, as [`Self::prepare_p256`].
    fn prepare_p384(&self, _public_key: &[u8; 97]) -> Option<Box<dyn P384Key>> {
        None
    }

    /// SHA-256 over the parts, one after the other.
    fn sha256(&self, parts: &[&[u8]]) -> [u8; 32];

    /// SHA-384 over the parts, one after the other.
    fn sha384(&self, parts: &[&[u8]]) -> [u8; 48];

    /// ECDSA P-256 with SHA-256 as X.509 uses it; the only algorithm accepted in certificates.
    fn certificate_algorithm(&self) -> &'static dyn SignatureVerificationAlgorithm;

    /// ECDSA P-384 with SHA-384 as X.509 uses it; the only algorithm accepted in the certificates
    /// of GPUs and of those who vouch for them.
    fn p384_certificate_algorithm(&self) -> &'static dyn SignatureVerificationAlgorithm;

    /// RSA PSS with SHA-384 and 48 bytes of salt, as AMD's certificates use it; the only
    /// algorithms accepted in them. There are two because VLEK certificates leave out the trailer
    /// field, which all others write although it is the default.
    fn amd_certificate_algorithms(&self) -> [&'static dyn SignatureVerificationAlgorithm; 2];
}

/// A P-384 key that [`Crypto::prepare_p384`] has read.
pub trait P384Key: fmt::Debug + Send + Sync {
    /// As [`Crypto::verify_p384`], with this key.
    fn verify(&self, message: &[u8], signature: &[u8; 96]) -> bool;
}

/// A P-256 key that [`Crypto::prepare_p256`] has read.
pub trait P256Key: fmt::Debug + Send + Sync {
    /// As [`Crypto::verify_p256`], with this key.
    fn verify(&self, message: &[u8], signature: &[u8; 64]) -> bool;
}
