//! Receipts of answers, in the form of `aci/1`: a document over the bytes of one request and its
//! answer, signed by a key that evidence vouches for.
//!
//! The chain of trust: a quote covers the digest of a [`Keyset`] ([`AttestationReport`]); the keyset
//! names the key that signs receipts; a [`Receipt`] holds the digests of what was received and
//! returned. `docs/receipts.md` describes the documents; [`SignedReceipt::verify`] and
//! [`AttestationReport::parse`] check everything but the quote, which a verifier of evidence judges.

mod document;
mod error;
mod json;
mod keyset;
mod receipt;
mod report;
mod signing_key;
mod weights_member;

pub use document::{API_VERSION, digest_text, parse_digest_text};
pub use error::ReceiptError;
pub use json::{Json, JsonError};
pub use keyset::{BodyKeyEntry, Keyset, Nonce, parse_nonce};
pub use receipt::{
    BodyDigest, CONFIGURATION_EVENT, Event, FORWARDED_EVENT, MODEL_EVENT, RECEIPT_BYTES_MAX,
    RECEIVED_EVENT, RETURNED_EVENT, Receipt, SignedReceipt,
};
pub use report::{AttestationReport, REPORT_BYTES_MAX, ReportContent};
pub use signing_key::{ReceiptKey, new_receipt_id};

#[cfg(test)]
mod tests;
#[cfg(test)]
mod vector_tests;
