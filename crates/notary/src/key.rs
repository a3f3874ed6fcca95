//! The key that signs statements, and the evidence that binds it.
//!
//! It differs from the key of the TLS channel, which signs handshakes: neither key signs messages
//! of the other kind. It has evidence of its own, with key binding (`docs/channel.md`), which a
//! third party can appraise without having seen a connection.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, PoisonError, RwLock},
    time::{Duration, Instant},
};

use confide_disclosure::{
    ENDORSEMENTS_BYTES_MAX, NotaryEvidence, NotaryKey, PUBLIC_KEY_BYTES, QUOTE_BYTES_MAX,
};
use confide_evidence::{Attest, binder::key_report_data, claims::Claims};
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::error::KeyError;

/// A key's validity begins this long in the past, for verifiers whose clock is behind; but at most
/// a quarter of the validity.
const CLOCK_SKEW_S: u64 = 60;

/// The time after a failed renewal before the attester is asked again.
const RETRY: Duration = Duration::from_secs(5);

/// Options of the signing keys.
#[derive(Clone)]
pub(crate) struct KeyOptions {
    pub(crate) attester: Arc<dyn Attest>,
    pub(crate) clock: fn() -> u64,
    pub(crate) config_digest: [u8; 32],
    pub(crate) guarantee: String,
    /// The longest time from the choice of a key to its signature: in the last part of its
    /// validity, of this length, a key finishes exchanges and begins none.
    pub(crate) reserve: Duration,
    pub(crate) validity: Duration,
}

/// A key and the evidence over it. A renewal replaces both: a key never outlives its claims.
pub(crate) struct BoundKey {
    pub(crate) key: NotaryKey,
    pub(crate) public: [u8; PUBLIC_KEY_BYTES],
    pub(crate) spki_hash: [u8; 32],
    pub(crate) evidence: NotaryEvidence,
    pub(crate) not_before: u64,
    pub(crate) not_after: u64,
    /// The last second in which an exchange may begin that this key signs.
    last_begin: u64,
}

/// The current key, which is renewed after two thirds of the time in which exchanges may begin with
/// it. An exchange keeps the key with which it began, so a renewal does not affect it.
#[derive(Clone)]
pub(crate) struct SigningKeys(Arc<SigningKeysState>);

struct SigningKeysState {
    options: KeyOptions,
    current: RwLock<Arc<BoundKey>>,
    failed: RwLock<Option<(Instant, KeyError)>>,
    renewing: Arc<Mutex<()>>,
}

impl BoundKey {
    /// Makes a key and its evidence. Blocks while the attester works.
    fn generate(options: &KeyOptions) -> Result<Self, KeyError> {
        let key = NotaryKey::generate().map_err(|error| generation_error(&error))?;
        let span = options.validity.as_secs();
        let not_before = (options.clock)().saturating_sub(CLOCK_SKEW_S.min(span / 4));
        let claims = Claims {
            config_digest: options.config_digest,
            gpu_evidence_hash: None,
            guarantee: options.guarantee.clone(),
            nonce: None,
            not_after: not_before.saturating_add(span),
            not_before,
            pubkey_hash: key.spki_hash(),
            weights: None,
        };
        claims.check().map_err(|error| KeyError::Claims { reason: error.to_string() })?;
        let not_after = claims.not_after;
        let claims = claims.encode();
        let quote = options.attester.attest(&key_report_data(&claims));
        let quote = quote.map_err(|error| KeyError::Attester { reason: error.to_string() })?;
        check_length("quote", &quote, QUOTE_BYTES_MAX)?;
        // After the quote: some devices return the endorsements with it. Without endorsements no
        // third party could appraise the key of a statement.
        let endorsements = options.attester.collateral().ok_or(KeyError::NoEndorsements)?;
        check_length("set of endorsements", &endorsements, ENDORSEMENTS_BYTES_MAX)?;
        let (public, spki_hash) = (key.public(), key.spki_hash());
        let evidence = NotaryEvidence { quote, claims, endorsements };
        let last_begin = not_after.saturating_sub(options.reserve.as_secs());
        Ok(Self { key, public, spki_hash, evidence, not_before, not_after, last_begin })
    }

    /// Whether the claims are valid at `now`.
    pub(crate) fn is_valid_at(&self, now: u64) -> bool {
        (self.not_before..=self.not_after).contains(&now)
    }

    /// Whether an exchange that begins at `now` can still be signed with the key at its end.
    fn may_start_exchange(&self, now: u64) -> bool {
        (self.not_before..=self.last_begin).contains(&now)
    }

    /// Whether a renewal is due: in the last third of the time in which exchanges may begin, after
    /// it, or if the clock was set back to before it.
    fn is_renewal_due(&self, now: u64) -> bool {
        let third = self.last_begin.saturating_sub(self.not_before) / 3;
        !self.may_start_exchange(now) || now > self.last_begin - third
    }
}

impl SigningKeys {
    /// Makes the first key, on the calling thread.
    pub(crate) fn new(options: KeyOptions) -> Result<Self, KeyError> {
        let (got, wanted) = (options.validity, 2 * options.reserve);
        if got < wanted {
            return Err(KeyError::Validity { wanted, got });
        }
        let current = RwLock::new(Arc::new(BoundKey::generate(&options)?));
        let (failed, renewing) = (RwLock::new(None), Arc::new(Mutex::new(())));
        Ok(Self(Arc::new(SigningKeysState { options, current, failed, renewing })))
    }

    /// Returns a key that is valid until the end of an exchange that begins now. A renewal that is
    /// due runs in the background, unless the current key can no longer be used.
    pub(crate) async fn usable_key(&self) -> Result<Arc<BoundKey>, KeyError> {
        let now = (self.0.options.clock)();
        let current = self.current_key();
        if !current.is_renewal_due(now) {
            return Ok(current);
        }
        if current.may_start_exchange(now) {
            if let Ok(turn) = self.0.renewing.clone().try_lock_owned()
                && self.recent_failure().is_none()
            {
                let this = self.clone();
                tokio::task::spawn_blocking(move || this.renew(turn));
            }
            return Ok(current);
        }
        let turn = self.0.renewing.clone().lock_owned().await;
        let current = self.current_key();
        if current.may_start_exchange(now) {
            return Ok(current);
        }
        if let Some(error) = self.recent_failure() {
            return Err(error);
        }
        let this = self.clone();
        tokio::task::spawn_blocking(move || this.renew(turn))
            .await
            .map_err(|error| generation_error(&error))?
    }

    fn current_key(&self) -> Arc<BoundKey> {
        self.0.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn recent_failure(&self) -> Option<KeyError> {
        let failed = self.0.failed.read().unwrap_or_else(PoisonError::into_inner);
        failed.as_ref().filter(|(at, _)| at.elapsed() < RETRY).map(|(_, error)| error.clone())
    }

    /// Makes a new key. Blocks while the attester works; `_turn` is released at the end.
    fn renew(&self, _turn: OwnedMutexGuard<()>) -> Result<Arc<BoundKey>, KeyError> {
        let make = || BoundKey::generate(&self.0.options);
        // The attester may be foreign code. If it panics, nothing here is half changed.
        let made = catch_unwind(AssertUnwindSafe(make))
            .unwrap_or_else(|_| Err(KeyError::Generation { reason: "attester panicked".into() }));
        let failed = made.as_ref().err().map(|error| (Instant::now(), error.clone()));
        if let Some((_, error)) = &failed {
            tracing::warn!(%error, "the signing key could not be renewed; it is used until it expires");
        }
        *self.0.failed.write().unwrap_or_else(PoisonError::into_inner) = failed;
        let made = Arc::new(made?);
        *self.0.current.write().unwrap_or_else(PoisonError::into_inner) = made.clone();
        Ok(made)
    }
}

fn check_length(part: &'static str, bytes: &[u8], wanted: usize) -> Result<(), KeyError> {
    match bytes.len() {
        got if (1..=wanted).contains(&got) => Ok(()),
        got => Err(KeyError::Length { part, wanted, got }),
    }
}

fn generation_error(error: &impl std::fmt::Display) -> KeyError {
    KeyError::Generation { reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use confide_evidence::{AttestError, ReportData};

    use super::*;

    static NOW: AtomicU64 = AtomicU64::new(1_800_000_000);

    fn clock() -> u64 {
        NOW.load(Ordering::SeqCst)
    }

    #[derive(Default)]
    struct Device {
        bare: AtomicBool,
        fails: AtomicBool,
        quotes: AtomicU64,
    }

    impl Attest for Device {
        fn attest(&self, report_data: &ReportData) -> Result<Vec<u8>, AttestError> {
            self.quotes.fetch_add(1, Ordering::SeqCst);
            match self.fails.load(Ordering::SeqCst) {
                true => Err(AttestError::Device { device: "d".into(), reason: "no".into() }),
                false => Ok(report_data.0.to_vec()),
            }
        }

        fn collateral(&self) -> Option<Vec<u8>> {
            let bare = self.bare.load(Ordering::SeqCst);
            (!bare).then(|| b"{}".to_vec())
        }

        fn is_simulated(&self) -> bool {
            true
        }
    }

    fn options(device: &Arc<Device>) -> KeyOptions {
        KeyOptions {
            attester: device.clone(),
            clock,
            config_digest: [7; 32],
            guarantee: "g".into(),
            reserve: Duration::from_secs(330),
            validity: Duration::from_secs(3600),
        }
    }

    #[test]
    fn a_device_without_endorsements_and_a_short_validity_give_no_key() {
        let device = Arc::new(Device::default());
        let validity = Duration::from_secs(659);
        let short = SigningKeys::new(KeyOptions { validity, ..options(&device) }).err();
        assert!(matches!(short, Some(KeyError::Validity { got, .. }) if got == validity));
        device.bare.store(true, Ordering::SeqCst);
        let bare = SigningKeys::new(options(&device)).err();
        assert!(matches!(bare, Some(KeyError::NoEndorsements)));
    }

    #[tokio::test]
    async fn a_key_is_bound_renewed_in_time_and_never_used_after_its_claims() {
        let device = Arc::new(Device::default());
        let keys = SigningKeys::new(options(&device)).unwrap();
        let first = keys.usable_key().await.unwrap();
        assert_eq!(first.evidence.quote, key_report_data(&first.evidence.claims).0);
        let claims = Claims::decode(&first.evidence.claims).unwrap();
        assert_eq!((claims.pubkey_hash, claims.config_digest), (first.spki_hash, [7; 32]));
        // Due: used on, while the next one is made.
        NOW.fetch_add(2200, Ordering::SeqCst);
        assert_eq!(keys.usable_key().await.unwrap().spki_hash, first.spki_hash);
        drop(keys.0.renewing.lock().await);
        let second = keys.usable_key().await.unwrap();
        assert_ne!(second.spki_hash, first.spki_hash);
        // The first one still finishes what was begun with it, and begins nothing more.
        NOW.store(first.not_after, Ordering::SeqCst);
        assert!(first.is_valid_at(clock()) && !first.may_start_exchange(clock()));
        // Too late to begin, and the device gives nothing: refused, and not asked again at once.
        device.fails.store(true, Ordering::SeqCst);
        NOW.store(second.not_after - 329, Ordering::SeqCst);
        let quotes = device.quotes.load(Ordering::SeqCst);
        for _ in 0..3 {
            assert!(matches!(keys.usable_key().await, Err(KeyError::Attester { .. })));
        }
        assert_eq!(device.quotes.load(Ordering::SeqCst), quotes + 1);
    }
}
