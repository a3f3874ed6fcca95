//! The parts that all documents share: their version, and digests as texts.

use crate::{error::ReceiptError, json::Json};

/// The version that every document names.
pub const API_VERSION: &str = "aci/1";

/// `sha256:` and the digest in hexadecimal.
pub fn digest_text(digest: &[u8; 32]) -> String {
    format!("sha256:{}", hex::encode(digest))
}

/// Reads `sha256:` and 64 lower-case hexadecimal digits.
pub fn parse_digest_text(text: &str) -> Option<[u8; 32]> {
    let mut digest = [0; 32];
    hex::decode_to_slice(text.strip_prefix("sha256:")?, &mut digest).ok()?;
    (digest_text(&digest) == text).then_some(digest)
}

/// Checks that a document is of the version that this package reads.
pub(crate) fn check_version(document: &Json) -> Result<(), ReceiptError> {
    match document.get_text("api_version") {
        Some(API_VERSION) => Ok(()),
        other => Err(ReceiptError::Version { got: other.unwrap_or_default().into() }),
    }
}
