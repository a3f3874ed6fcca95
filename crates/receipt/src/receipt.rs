//! The receipt of one answer.

#[cfg(feature = "aws-lc")]
use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use sha2::{Digest, Sha256};

use crate::{
    document::{check_version, digest_text},
    error::ReceiptError,
    json::Json,
    keyset::Keyset,
};

/// The largest number of bytes of a receipt that is read; one takes about a thousand.
pub const RECEIPT_BYTES_MAX: usize = 64 * 1024;

/// The event of the request's body as it was received, which is the first one.
pub const RECEIVED_EVENT: &str = "request.received";
/// The event of the request's body as it was sent on.
pub const FORWARDED_EVENT: &str = "request.forwarded";
/// The event of the answer's body as it was returned.
pub const RETURNED_EVENT: &str = "response.returned";
/// The event of this project with the digest of the gateway's configuration.
pub const CONFIGURATION_EVENT: &str = "confide.configuration";
/// The event of this project with what is known of the model.
pub const MODEL_EVENT: &str = "confide.model";

pub(crate) const SIGNATURE: &str = "signature";
/// The member of an event of a body that has a commitment in place of the digest.
pub const COMMITMENT: &str = "commitment";
const BODY_HASH: &str = "body_hash";
const COMPLETE: &str = "complete";
const KEYSET_DIGEST: &str = "workload_keyset_digest";

/// The SHA-256 digest of a body's bytes, and whether they are all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyDigest {
    /// The digest of the bytes that passed.
    pub sha256: [u8; 32],
    /// Whether the body ended as its sender meant: false if one side left before.
    pub is_complete: bool,
}

/// An event of a receipt: its type, and its other members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event(Json);

impl Event {
    /// An event with these members in addition to its type.
    pub fn new<'a>(kind: &str, members: impl IntoIterator<Item = (&'a str, Json)>) -> Self {
        let kind = [("type", Json::from(kind))];
        Self(Json::object(kind.into_iter().chain(members)))
    }

    /// The event of a body. A body that was cut says so; aci/1 has no word for that.
    pub fn of_body(kind: &str, body: &BodyDigest) -> Self {
        let mut members = vec![(BODY_HASH, Json::from(digest_text(&body.sha256)))];
        if !body.is_complete {
            members.push((COMPLETE, false.into()));
        }
        Self::new(kind, members)
    }

    /// The event with another member.
    #[must_use]
    pub fn with_member(mut self, name: &str, value: Json) -> Self {
        if let Json::Object(members) = &mut self.0 {
            members.insert(name.into(), value);
        }
        self
    }
}

/// The content of a receipt that is to be signed.
#[derive(Clone, Debug)]
pub struct Receipt<'a> {
    /// The identifier by which it is asked for.
    pub receipt_id: &'a str,
    /// The identifier in the answer, if it was read.
    pub chat_id: Option<&'a str>,
    /// The model that the request names, if it was read.
    pub model: Option<&'a str>,
    /// The digest of the keyset that vouches for the signing key.
    pub keyset_digest: &'a str,
    /// The path of the request.
    pub endpoint: &'a str,
    /// The method of the request.
    pub method: &'a str,
    /// Unix seconds at the end of the answer.
    pub served_at: u64,
    /// The events in their order, the received request first.
    pub events: Vec<Event>,
}

#[cfg(feature = "aws-lc")]
impl Receipt<'_> {
    pub(crate) fn to_document(&self, key_id: &str) -> Json {
        let optional = |text: Option<&str>| text.map_or(Json::Null, Json::from);
        let events = self.events.iter().map(|event| event.0.clone()).collect();
        Json::object([
            ("api_version", Json::from(crate::document::API_VERSION)),
            ("receipt_id", self.receipt_id.into()),
            ("chat_id", optional(self.chat_id)),
            ("model", optional(self.model)),
            (KEYSET_DIGEST, self.keyset_digest.into()),
            ("endpoint", self.endpoint.into()),
            ("method", self.method.into()),
            ("served_at", Json::Integer(i64::try_from(self.served_at).unwrap_or(i64::MAX))),
            ("event_log", Json::Array(events)),
            ("key_id", key_id.into()),
        ])
    }
}

/// A receipt whose signature was checked with a key of its keyset.
#[derive(Clone, Debug)]
pub struct SignedReceipt {
    document: Json,
    served_at: u64,
}

/// Checks an Ed25519 signature by aws-lc-rs, as docs/receipts.md demands.
#[cfg(feature = "aws-lc")]
pub fn is_ed25519_signature(key: &[u8; 32], message: &[u8], signature: &[u8; 64]) -> bool {
    UnparsedPublicKey::new(&ED25519, key).verify(message, signature).is_ok()
}

impl SignedReceipt {
    /// Reads a receipt and checks its version, its keyset, its signature, and that it was signed
    /// before the keyset expired. The keyset is believed: its quote has to be judged before.
    ///
    /// # Errors
    /// [`ReceiptError`] with the first check that failed.
    #[cfg(feature = "aws-lc")]
    pub fn verify(bytes: &[u8], keyset: &Keyset) -> Result<Self, ReceiptError> {
        Self::verify_with(bytes, keyset, is_ed25519_signature)
    }

    /// Does the same with `is_signed`, which checks an Ed25519 signature as docs/receipts.md demands:
    /// it takes the public key, the message and the signature.
    ///
    /// # Errors
    /// [`ReceiptError`] with the first check that failed.
    pub fn verify_with(
        bytes: &[u8],
        keyset: &Keyset,
        is_signed: impl FnOnce(&[u8; 32], &[u8], &[u8; 64]) -> bool,
    ) -> Result<Self, ReceiptError> {
        let mut document = Json::parse(bytes, RECEIPT_BYTES_MAX)?;
        check_version(&document)?;
        let signature = match &mut document {
            Json::Object(members) => members.remove(SIGNATURE),
            _ => None,
        };
        let wanted = ReceiptError::Member { name: SIGNATURE, wanted: "128 hexadecimal digits" };
        let Some(Json::Text(signature)) = signature else { return Err(wanted) };
        let mut decoded = [0; 64];
        if hex::decode_to_slice(&signature, &mut decoded).is_err() {
            return Err(wanted);
        }
        if document.get_text(KEYSET_DIGEST) != Some(keyset.digest()) {
            return Err(ReceiptError::OtherKeyset);
        }
        let key_id = document.get_text("key_id").unwrap_or_default();
        let Some(public_key) = keyset.find_receipt_key(key_id) else {
            return Err(ReceiptError::UnknownKey { key_id: key_id.into() });
        };
        if !is_signed(&public_key, document.to_canonical().as_bytes(), &decoded) {
            return Err(ReceiptError::Signature);
        }
        let served_at = match document.get("served_at") {
            Some(Json::Integer(time)) => u64::try_from(*time).ok(),
            _ => None,
        };
        let served_at =
            served_at.ok_or(ReceiptError::Member { name: "served_at", wanted: "Unix seconds" })?;
        let not_after = keyset.not_after()?;
        if served_at > not_after {
            return Err(ReceiptError::Expired { served_at, not_after });
        }
        let receipt = Self { document, served_at };
        let first = receipt.events().first().and_then(|event| event.get_text("type"));
        match first == Some(RECEIVED_EVENT) {
            true => Ok(receipt),
            false => Err(ReceiptError::Member {
                name: "event_log",
                wanted: "events, the first of type request.received",
            }),
        }
    }

    /// The document without its signature.
    pub fn document(&self) -> &Json {
        &self.document
    }

    /// Unix seconds at the end of the answer, by the gateway's clock.
    pub fn served_at(&self) -> u64 {
        self.served_at
    }

    /// The events in their order.
    pub fn events(&self) -> &[Json] {
        match self.document.get("event_log") {
            Some(Json::Array(events)) => events,
            _ => &[],
        }
    }

    /// The event of this type; `None` also if there are several.
    pub fn find_event(&self, kind: &str) -> Option<&Json> {
        let mut found = self.events().iter().filter(|event| event.get_text("type") == Some(kind));
        match (found.next(), found.next()) {
            (Some(event), None) => Some(event),
            _ => None,
        }
    }

    /// Whether the event of this type says that its body was cut.
    pub fn is_cut(&self, kind: &str) -> bool {
        let complete = self.find_event(kind).and_then(|event| event.get(COMPLETE));
        complete == Some(&Json::Bool(false))
    }

    /// Checks that the receipt has the digest of this body in its event of type `kind`.
    ///
    /// # Errors
    /// [`ReceiptError::Body`] otherwise, also if there is no such event or more than one.
    pub fn check_body(&self, kind: &'static str, body: &[u8]) -> Result<(), ReceiptError> {
        let stated = self.find_event(kind).and_then(|event| event.get_text(BODY_HASH));
        match stated == Some(digest_text(&Sha256::digest(body).into()).as_str()) {
            true => Ok(()),
            false => Err(ReceiptError::Body { event: kind }),
        }
    }
}
