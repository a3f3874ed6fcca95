//! Receipts of answers, in the form of `aci/1`: a document over the bytes of one request and its
//! answer, signed by a key that evidence vouches for.
//!
//! The chain of trust: a quote covers the digest of a [`Keyset`] ([`AttestationReport`]); the keyset
//! names the key that signs receipts; a [`Receipt`] holds the digests of what was received and
//! returned. `docs/receipts.md` describes the documents; [`SignedReceipt::verify`] and
//! [`AttestationReport::parse`] check everything but the quote, which a verifier of evidence judges.
//! Without the feature `aws-lc`, [`SignedReceipt::verify_with`] takes the caller's Ed25519.
//!
//! [`DstackReport`], [`DstackKey`] and [`TinfoilDocument`] give the same evidence to verifiers of
//! other projects, in their forms.

mod document;
#[cfg(feature = "aws-lc")]
mod dstack_form;
mod error;
mod foreign_report_data;
mod json;
mod keyset;
mod receipt;
mod report;
#[cfg(feature = "aws-lc")]
mod signing_key;
mod tinfoil_form;
mod weights_member;

pub use document::{API_VERSION, digest_text, parse_digest_text};
#[cfg(feature = "aws-lc")]
pub use dstack_form::{DstackKey, DstackReport, ExchangeDigests};
pub use error::ReceiptError;
pub use foreign_report_data::{dstack_report_data, tinfoil_report_data};
pub use json::{Json, JsonError};
pub use keyset::{BodyKeyEntry, Keyset, Nonce, parse_nonce};
#[cfg(feature = "aws-lc")]
pub use receipt::is_ed25519_signature;
pub use receipt::{
    BodyDigest, COMMITMENT, CONFIGURATION_EVENT, Event, FORWARDED_EVENT, MODEL_EVENT,
    RECEIPT_BYTES_MAX, RECEIVED_EVENT, RETURNED_EVENT, Receipt, SignedReceipt,
};
pub use report::{AttestationReport, REPORT_BYTES_MAX, ReportContent};
#[cfg(feature = "aws-lc")]
pub use signing_key::{ReceiptKey, new_receipt_id};
pub use tinfoil_form::{TinfoilDocument, TinfoilPlatform};

#[cfg(all(test, feature = "aws-lc"))]
mod tests;
#[cfg(all(test, feature = "aws-lc"))]
mod vector_tests;
