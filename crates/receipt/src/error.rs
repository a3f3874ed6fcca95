//! The reason why a document is refused.

use crate::json::JsonError;

/// The reason why a keyset, a report or a receipt is refused.
#[derive(Debug, thiserror::Error)]
pub enum ReceiptError {
    /// The document cannot be read.
    #[error("not readable: {0}")]
    Json(#[from] JsonError),
    /// The document names another version.
    #[error("api_version is {got:?}, wanted \"aci/1\"")]
    Version {
        /// The version that came, or nothing.
        got: String,
    },
    /// A member is missing or has another form.
    #[error("member {name}: wanted {wanted}")]
    Member {
        /// The name.
        name: &'static str,
        /// Its form.
        wanted: &'static str,
    },
    /// A digest that the document states is not that of its content.
    #[error("{name} is not the digest of its content")]
    Digest {
        /// The member with the digest.
        name: &'static str,
    },
    /// The report data that the report states does not follow from keyset and nonce.
    #[error("report_data does not follow from the keyset and the nonce")]
    ReportData,
    /// The receipt belongs to another keyset.
    #[error("the receipt names another keyset than the report's")]
    OtherKeyset,
    /// The keyset has no such key, or no algorithm of this program's.
    #[error("the keyset has no Ed25519 key for receipts named {key_id:?}")]
    UnknownKey {
        /// The name of the key in the receipt.
        key_id: String,
    },
    /// The signature is not of this content.
    #[error("the signature is not valid")]
    Signature,
    /// The receipt was signed after the keyset had expired.
    #[error("served at {served_at}, after the keyset expired at {not_after}")]
    Expired {
        /// Unix seconds of the answer.
        served_at: u64,
        /// Unix seconds of the end of the keyset.
        not_after: u64,
    },
    /// A body is not the one of which the receipt has the digest.
    #[error("the {event} body has another digest than the receipt states")]
    Body {
        /// The type of the event.
        event: &'static str,
    },
    /// No signature could be made.
    #[error("no receipt could be signed")]
    Signing,
}
