//! The service's own evidence: that its signing key lives in an attested machine.

use std::sync::{Arc, Mutex, PoisonError};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use confide_evidence::{Attest, binder::key_report_data, claims::Claims};
use serde_json::{Value, json};

use crate::{ServiceError, SigningKey};

/// How long claims about the signing key hold; they are made anew at half of it.
const VALIDITY_S: u64 = 60 * 60;
/// Claims begin this much before now, for relying parties whose clock is late.
const CLOCK_SKEW_S: u64 = 60;

/// Evidence over the signing key, by key binding: report data is the SHA-256 of claims that hold
/// the SHA-256 of the key's SPKI.
pub struct OwnEvidence {
    attester: Arc<dyn Attest>,
    config_digest: [u8; 32],
    guarantee: String,
    last: Mutex<Option<Made>>,
}

struct Made {
    at: u64,
    json: Value,
}

impl OwnEvidence {
    /// `config_digest` and `guarantee` go into the claims, as with a channel.
    pub fn new(attester: Arc<dyn Attest>, config_digest: [u8; 32], guarantee: String) -> Self {
        Self { attester, config_digest, guarantee, last: Mutex::new(None) }
    }

    /// The evidence for `key`, made anew when the last is older than half its life.
    ///
    /// It may block for tens of milliseconds, and one caller makes it for all.
    pub(crate) fn for_key(&self, key: &SigningKey, now: u64) -> Result<Value, ServiceError> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = |made: &&Made| now >= made.at && now - made.at < VALIDITY_S / 2;
        if let Some(made) = last.as_ref().filter(fresh) {
            return Ok(made.json.clone());
        }
        let json = self.make(key, now)?;
        *last = Some(Made { at: now, json: json.clone() });
        Ok(json)
    }

    fn make(&self, key: &SigningKey, now: u64) -> Result<Value, ServiceError> {
        let not_before = now.saturating_sub(CLOCK_SKEW_S);
        let claims = Claims {
            config_digest: self.config_digest,
            gpu_evidence_hash: None,
            guarantee: self.guarantee.clone(),
            nonce: None,
            not_after: not_before.saturating_add(VALIDITY_S),
            not_before,
            pubkey_hash: key.spki_hash(),
        }
        .encode();
        let quote = self
            .attester
            .attest(&key_report_data(&claims))
            .map_err(|error| ServiceError::OwnEvidence(error.to_string()))?;
        if quote.is_empty() {
            return Err(ServiceError::OwnEvidence("the device gave an empty quote".into()));
        }
        let collateral = self.attester.collateral();
        let endorsements = collateral.and_then(|json| serde_json::from_slice::<Value>(&json).ok());
        Ok(json!({
            "evidence": URL_SAFE_NO_PAD.encode(quote),
            "claims": URL_SAFE_NO_PAD.encode(claims),
            "endorsements": endorsements,
            "simulated": self.attester.simulated(),
        }))
    }
}
