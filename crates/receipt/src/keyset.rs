//! The public keys of a gateway, and the report data that binds them to a quote.

use confide_evidence::{ReportData, weights_claim::WeightsClaim};
use sha2::{Digest, Sha256};

use crate::{
    document::{digest_text, parse_digest_text},
    error::ReceiptError,
    json::Json,
    weights_member::{describe_weights, parse_weights},
};

/// A challenge of the verifier's.
pub type Nonce = [u8; 32];

/// The only algorithm of receipts.
const ED25519: &str = "ed25519";
const E2EE_KEYS: &str = "e2ee_public_keys";
const CONFIG_DIGEST: &str = "config_digest";
const WEIGHTS: &str = "weights";

/// The public keys of a gateway. Their digest is in the report data of its quote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keyset {
    document: Json,
    digest: String,
}

/// A public key to which clients encrypt bodies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyKeyEntry {
    /// The algorithm, which names the use as well.
    pub algorithm: String,
    /// The name of the key.
    pub key_id: String,
    /// The serialised key.
    pub public_key: Vec<u8>,
    /// The digest of the only configuration with which the gateway uses the key.
    pub config_digest: [u8; 32],
    /// The weights of the models behind this configuration, by the gateway's own measurement;
    /// `None` if it measured none, or the entry says nothing of them.
    pub weights: Option<WeightsClaim>,
}

impl Keyset {
    /// A keyset with one key for receipts (an Ed25519 public key and its name) and one TLS key
    /// (SHA-256 of its `SubjectPublicKeyInfo`), valid until `not_after` in Unix seconds.
    pub fn new(
        key_id: &str,
        public_key: &[u8; 32],
        spki_sha256: &[u8; 32],
        not_after: u64,
    ) -> Self {
        let key = Json::object([
            ("algo", Json::from(ED25519)),
            ("key_id", key_id.into()),
            ("public_key", hex::encode(public_key).into()),
        ]);
        let tls = Json::object([("spki_sha256", Json::from(hex::encode(spki_sha256)))]);
        Self::from_document(Json::object([
            ("subject", Json::Null),
            ("not_after", Json::Integer(i64::try_from(not_after).unwrap_or(i64::MAX))),
            ("receipt_signing_keys", Json::Array(vec![key])),
            (E2EE_KEYS, Json::Array(Vec::new())),
            ("tls_public_keys", Json::Array(vec![tls])),
        ]))
    }

    /// Returns the keyset with keys to which clients encrypt bodies.
    pub fn with_body_keys(self, keys: &[BodyKeyEntry]) -> Self {
        let describe = |key: &BodyKeyEntry| {
            Json::object([
                ("algo", Json::from(key.algorithm.as_str())),
                ("key_id", key.key_id.as_str().into()),
                ("public_key", hex::encode(&key.public_key).into()),
                (CONFIG_DIGEST, digest_text(&key.config_digest).into()),
                (WEIGHTS, describe_weights(key.weights.as_ref())),
            ])
        };
        let mut document = self.document;
        if let Json::Object(members) = &mut document {
            members.insert(E2EE_KEYS.into(), Json::Array(keys.iter().map(describe).collect()));
        }
        Self::from_document(document)
    }

    /// The keys to which clients encrypt bodies, if they have the form of this program's; those of
    /// other programs and for other uses are left out.
    pub fn body_keys(&self) -> impl Iterator<Item = BodyKeyEntry> {
        let keys = match self.document.get(E2EE_KEYS) {
            Some(Json::Array(keys)) => keys.as_slice(),
            _ => &[],
        };
        keys.iter().filter_map(|key| {
            Some(BodyKeyEntry {
                algorithm: key.get_text("algo")?.to_owned(),
                key_id: key.get_text("key_id")?.to_owned(),
                public_key: hex::decode(key.get_text("public_key")?).ok()?,
                config_digest: parse_digest_text(key.get_text(CONFIG_DIGEST)?)?,
                weights: match key.get(WEIGHTS) {
                    Some(weights) => parse_weights(weights)?,
                    None => None,
                },
            })
        })
    }

    /// The keyset of a parsed document, whose members are read when they are needed.
    pub(crate) fn from_document(document: Json) -> Self {
        let digest = digest_text(&Sha256::digest(document.to_canonical()).into());
        Self { document, digest }
    }

    /// The document.
    pub fn document(&self) -> &Json {
        &self.document
    }

    /// The digest: `sha256:` and 64 hexadecimal digits.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// Unix seconds after which nothing of the keyset is believed.
    ///
    /// # Errors
    /// [`ReceiptError::Member`] if the document has no such time.
    pub fn not_after(&self) -> Result<u64, ReceiptError> {
        match self.document.get("not_after") {
            Some(Json::Integer(time)) => u64::try_from(*time).ok(),
            _ => None,
        }
        .ok_or(ReceiptError::Member { name: "not_after", wanted: "Unix seconds" })
    }

    /// The Ed25519 public key of this name among those for receipts.
    pub(crate) fn find_receipt_key(&self, key_id: &str) -> Option<[u8; 32]> {
        let Some(Json::Array(keys)) = self.document.get("receipt_signing_keys") else {
            return None;
        };
        let mut named = keys.iter().filter(|key| {
            key.get_text("key_id") == Some(key_id) && key.get_text("algo") == Some(ED25519)
        });
        let (found, None) = (named.next()?, named.next()) else {
            // Two keys of one name: which of them is meant cannot be told.
            return None;
        };
        let mut public_key = [0; 32];
        hex::decode_to_slice(found.get_text("public_key")?, &mut public_key).ok()?;
        Some(public_key)
    }

    /// The SHA-256 digests of the TLS keys' `SubjectPublicKeyInfo`, in hexadecimal.
    pub fn tls_keys(&self) -> impl Iterator<Item = &str> {
        let keys = match self.document.get("tls_public_keys") {
            Some(Json::Array(keys)) => keys.as_slice(),
            _ => &[],
        };
        keys.iter().filter_map(|key| key.get_text("spki_sha256"))
    }

    /// The report data of a quote over this keyset: the SHA-256 digest of the statement that names
    /// its digest and the nonce, and 32 zero bytes.
    pub fn report_data(&self, nonce: Option<&Nonce>) -> ReportData {
        let nonce = nonce.map_or(Json::Null, |nonce| hex::encode(nonce).into());
        let statement = Json::object([
            ("keyset_digest", Json::from(self.digest.as_str())),
            ("nonce", nonce),
            ("purpose", "aci.report_data.v1".into()),
        ]);
        ReportData::from_digest(Sha256::digest(statement.to_canonical()).into())
    }
}

/// Reads a nonce: 64 lower-case hexadecimal digits.
pub fn parse_nonce(text: &str) -> Option<Nonce> {
    let mut nonce = [0; 32];
    let is_lower = !text.bytes().any(|byte| byte.is_ascii_uppercase());
    (is_lower && hex::decode_to_slice(text, &mut nonce).is_ok()).then_some(nonce)
}
