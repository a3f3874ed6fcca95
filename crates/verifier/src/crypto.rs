//! The one trait through which signature checks come in.

use rustls_pki_types::SignatureVerificationAlgorithm;

/// Cryptography that appraisal needs; everything it is given is public.
///
/// A server uses `confide-verifier-aws-lc`; a browser or a zkVM guest brings its own.
pub trait Crypto: Send + Sync {
    /// Whether `signature` (r, then s, 32 bytes each, big-endian) is an ECDSA P-256 signature with
    /// SHA-256 over `message` by `public_key` (0x04, x, y).
    ///
    /// High-s signatures are genuine: quoting enclaves make them.
    fn verify_p256(&self, public_key: &[u8; 65], message: &[u8], signature: &[u8; 64]) -> bool;

    /// SHA-256 over the parts, one after the other.
    fn sha256(&self, parts: &[&[u8]]) -> [u8; 32];

    /// ECDSA P-256 with SHA-256 as X.509 uses it; the only algorithm accepted in certificates.
    fn certificate_algorithm(&self) -> &'static dyn SignatureVerificationAlgorithm;
}
