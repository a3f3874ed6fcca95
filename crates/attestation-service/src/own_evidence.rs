//! The service's own evidence that its signing key is inside an attested machine.

use std::sync::{Arc, Mutex, PoisonError};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use confide_evidence::{Attest, binder::key_report_data, claims::Claims};
use serde_json::{Value, json};

use crate::{error::ServiceError, jws::SigningKey};

/// The validity of the claims about the signing key, in seconds; they are renewed after half of it.
const VALIDITY_S: u64 = 60 * 60;
/// The claims begin this many seconds in the past, for relying parties whose clock is behind.
const CLOCK_SKEW_S: u64 = 60;

/// A device that failed is not asked again for this many seconds, to limit the load on it.
const FAILED_REST_S: u64 = 5;

/// The evidence over the signing key, with key binding: the report data is SHA-256 of claims that
/// contain SHA-256 of the key's SubjectPublicKeyInfo.
pub struct OwnEvidence {
    attester: Arc<dyn Attest>,
    config_digest: [u8; 32],
    guarantee: String,
    last: Mutex<Option<CachedEvidence>>,
}

struct CachedEvidence {
    at: u64,
    outcome: Result<Value, String>,
}

impl OwnEvidence {
    /// `config_digest` and `guarantee` are part of the claims, as for a channel.
    pub fn new(attester: Arc<dyn Attest>, config_digest: [u8; 32], guarantee: String) -> Self {
        Self { attester, config_digest, guarantee, last: Mutex::new(None) }
    }

    /// Whether the attester is simulated, so that the evidence proves nothing.
    pub fn is_simulated(&self) -> bool {
        self.attester.is_simulated()
    }

    /// The evidence for `key`, which is renewed after half of its validity.
    ///
    /// This may block for tens of milliseconds; simultaneous callers wait for the same evidence.
    pub(crate) fn evidence_for_key(
        &self,
        key: &SigningKey,
        now: u64,
    ) -> Result<Value, ServiceError> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = |made: &&CachedEvidence| {
            let lasts = if made.outcome.is_ok() { VALIDITY_S / 2 } else { FAILED_REST_S };
            now.checked_sub(made.at).is_some_and(|age| age < lasts)
        };
        let outcome = match last.as_ref().filter(fresh) {
            Some(made) => made.outcome.clone(),
            None => {
                let outcome = self.make_evidence(key, now).map_err(|error| error.to_string());
                *last = Some(CachedEvidence { at: now, outcome: outcome.clone() });
                outcome
            }
        };
        outcome.map_err(ServiceError::OwnEvidence)
    }

    fn make_evidence(&self, key: &SigningKey, now: u64) -> Result<Value, ServiceError> {
        let not_before = now.saturating_sub(CLOCK_SKEW_S);
        let claims = Claims {
            config_digest: self.config_digest,
            gpu_evidence_hash: None,
            guarantee: self.guarantee.clone(),
            nonce: None,
            not_after: not_before.saturating_add(VALIDITY_S),
            not_before,
            pubkey_hash: key.spki_hash(),
            weights: None,
        }
        .encode();
        let quote = self
            .attester
            .attest(&key_report_data(&claims))
            .map_err(|error| ServiceError::OwnEvidence(error.to_string()))?;
        if quote.is_empty() {
            return Err(ServiceError::OwnEvidence("the device returned an empty quote".into()));
        }
        let collateral = self.attester.collateral();
        let endorsements = collateral.and_then(|json| serde_json::from_slice::<Value>(&json).ok());
        Ok(json!({
            "evidence": URL_SAFE_NO_PAD.encode(quote),
            "claims": URL_SAFE_NO_PAD.encode(claims),
            "endorsements": endorsements,
            "simulated": self.attester.is_simulated(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

    use confide_evidence::{AttestError, ReportData};

    use super::*;

    /// A device that gives nothing and counts how often it is asked.
    #[derive(Default)]
    struct Broken(AtomicU32);

    impl Attest for Broken {
        fn attest(&self, _: &ReportData) -> Result<Vec<u8>, AttestError> {
            self.0.fetch_add(1, SeqCst);
            Ok(Vec::new())
        }

        fn collateral(&self) -> Option<Vec<u8>> {
            None
        }

        fn is_simulated(&self) -> bool {
            true
        }
    }

    #[test]
    fn a_device_that_fails_is_left_in_peace_and_asked_again_later() {
        let device = Arc::new(Broken::default());
        let own = OwnEvidence::new(device.clone(), [0; 32], String::new());
        let key = SigningKey::generate().unwrap();
        for now in [100, 100, 104] {
            assert!(own.evidence_for_key(&key, now).is_err());
        }
        assert_eq!(device.0.load(SeqCst), 1);
        assert!(own.evidence_for_key(&key, 105).is_err());
        assert_eq!(device.0.load(SeqCst), 2);
        // A clock that goes back makes nothing rest for long.
        assert!(own.evidence_for_key(&key, 50).is_err());
        assert_eq!(device.0.load(SeqCst), 3);
    }
}
