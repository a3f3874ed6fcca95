//! The parts that all documents share: their version, and digests as texts.

use crate::{error::ReceiptError, json::Json};

/// The version that every document names.
pub const API_VERSION: &str = "aci/1";

/// `sha256:` and the digest in hexadecimal.
pub fn digest_text(digest: &[u8; 32]) -> String {
    format!("sha256:{}", hex::encode(digest))
}

/// Checks that a document is of the version that this package reads.
pub(crate) fn check_version(document: &Json) -> Result<(), ReceiptError> {
    match document.get_text("api_version") {
        Some(API_VERSION) => Ok(()),
        other => Err(ReceiptError::Version { got: other.unwrap_or_default().into() }),
    }
}
