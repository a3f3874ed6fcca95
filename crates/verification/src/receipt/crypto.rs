//! The cryptography of receipts, which a caller brings: not every place that judges them has aws-lc-rs.

use confide_verifier::Crypto;

/// Signature checks of quotes and of receipts.
pub trait ReceiptCrypto: Crypto {
    /// Checks an Ed25519 signature as `docs/receipts.md` demands: without the cofactor, and with the canonical
    /// encoding of the public key.
    fn verify_ed25519(&self, key: &[u8; 32], message: &[u8], signature: &[u8; 64]) -> bool;
}

#[cfg(feature = "aws-lc")]
impl ReceiptCrypto for confide_verifier::AwsLc {
    fn verify_ed25519(&self, key: &[u8; 32], message: &[u8], signature: &[u8; 64]) -> bool {
        confide_receipt::is_ed25519_signature(key, message, signature)
    }
}
