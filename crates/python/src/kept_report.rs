//! The report of a gateway's keys that was fetched last: one serves for all receipts of its keyset.

use confide_receipt::Nonce;

/// A report of the gateway's keys, and the nonce for which it was made.
#[derive(Clone)]
pub(crate) struct KeptReport {
    /// The digest of the keyset, as receipts name it.
    pub(crate) keyset_digest: String,
    pub(crate) nonce: Nonce,
    /// The document, JSON.
    pub(crate) report: Vec<u8>,
}
