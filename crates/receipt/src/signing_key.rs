//! The key that signs receipts.

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use sha2::{Digest, Sha256};

use crate::{
    error::ReceiptError,
    json::Json,
    receipt::{Receipt, SIGNATURE},
};

/// A new identifier of a receipt: `rcpt-` and 32 random hexadecimal digits, which nobody can guess.
///
/// # Panics
/// If the system has no randomness.
pub fn new_receipt_id() -> String {
    let mut random = [0; 16];
    aws_lc_rs::rand::fill(&mut random).expect("the system has randomness");
    format!("rcpt-{}", hex::encode(random))
}

/// An Ed25519 key pair that signs receipts and nothing else. The private key stays in the
/// cryptographic library.
#[derive(Debug)]
pub struct ReceiptKey {
    pair: Ed25519KeyPair,
    public_key: [u8; 32],
    key_id: String,
}

impl ReceiptKey {
    /// Generates a key pair.
    ///
    /// # Errors
    /// [`ReceiptError::Signing`] if the system has no randomness.
    pub fn generate() -> Result<Self, ReceiptError> {
        Self::from_pair(Ed25519KeyPair::generate().map_err(|_| ReceiptError::Signing)?)
    }

    fn from_pair(pair: Ed25519KeyPair) -> Result<Self, ReceiptError> {
        let public_key: [u8; 32] =
            pair.public_key().as_ref().try_into().map_err(|_| ReceiptError::Signing)?;
        let digest: [u8; 32] = Sha256::digest(public_key).into();
        let key_id = format!("receipt-{}", hex::encode(&digest[..8]));
        Ok(Self { pair, public_key, key_id })
    }

    /// The public key (RFC 8032).
    pub fn public_key(&self) -> &[u8; 32] {
        &self.public_key
    }

    /// The name of the key: `receipt-` and the beginning of the public key's SHA-256 digest.
    pub fn key_id(&self) -> &str {
        &self.key_id
    }

    /// The canonical document of a receipt, with its signature.
    pub fn sign(&self, receipt: &Receipt<'_>) -> String {
        self.sign_document(receipt.to_document(&self.key_id))
    }

    fn sign_document(&self, mut document: Json) -> String {
        let signature = self.pair.sign(document.to_canonical().as_bytes());
        if let Json::Object(members) = &mut document {
            members.insert(SIGNATURE.into(), hex::encode(signature.as_ref()).into());
        }
        document.to_canonical()
    }
}

#[cfg(test)]
impl ReceiptKey {
    /// The key of a seed, with another name, for published vectors.
    pub(crate) fn from_seed(seed: &[u8; 32], key_id: &str) -> Self {
        let pair = Ed25519KeyPair::from_seed_unchecked(seed).unwrap();
        Self { key_id: key_id.into(), ..Self::from_pair(pair).unwrap() }
    }

    /// Signs any document.
    pub(crate) fn sign_any(&self, document: Json) -> String {
        self.sign_document(document)
    }
}
