//! The current identity, and its renewal before it expires.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::{Mutex, OwnedMutexGuard},
    time::Instant,
};

use crate::{
    certificate::sha256,
    deadline::Deadline,
    error::{ChannelError, ChannelPhase},
    identity::{Identity, IdentityOptions},
    options::Binding,
};

/// The wait after a failed renewal, so that a broken device is not asked again for every
/// connection.
const RETRY: Duration = Duration::from_secs(5);

/// The age in seconds of a key that is replaced because there is other collateral. A key's validity
/// begins up to 60 s in the past.
const COLLATERAL_AGE_MIN_S: u64 = 600;

/// Hands each connection the current identity, and renews it after two thirds of its lifetime.
#[derive(Clone)]
pub(crate) struct IdentityRenewer(Arc<RenewerState>);

struct RenewerState {
    clock: fn() -> u64,
    current: RwLock<Arc<Identity>>,
    /// The last renewal, if it failed.
    failed: RwLock<Option<FailedRenewal>>,
    failure_count: AtomicU64,
    options: IdentityOptions,
    /// SHA-256 of the latest collateral with which a renewal failed. It is not tried again; the
    /// renewal at the key's end is.
    unusable_collateral: RwLock<Option<[u8; 32]>>,
    /// The lock that the running renewal holds, so that there is one at a time.
    renewing: Arc<Mutex<()>>,
}

struct FailedRenewal {
    /// A monotonic instant, since the wall clock may be the cause of the failure.
    at: Instant,
    error: Arc<ChannelError>,
}

impl IdentityRenewer {
    /// Makes the first identity on the calling thread.
    pub(crate) fn new(options: IdentityOptions, clock: fn() -> u64) -> Result<Self, ChannelError> {
        let first = Identity::generate(&options, clock())?;
        Ok(Self::with_first_identity(options, first, clock))
    }

    /// A foreign identity, which is never renewed: its binding is [`Binding::None`].
    pub(crate) fn with_identity(options: IdentityOptions, identity: Identity) -> Self {
        Self::with_first_identity(options, identity, || 0)
    }

    fn with_first_identity(options: IdentityOptions, first: Identity, clock: fn() -> u64) -> Self {
        Self(Arc::new(RenewerState {
            clock,
            current: RwLock::new(Arc::new(first)),
            failed: RwLock::new(None),
            failure_count: AtomicU64::new(0),
            unusable_collateral: RwLock::new(None),
            options,
            renewing: Arc::new(Mutex::new(())),
        }))
    }

    pub(crate) fn options(&self) -> &IdentityOptions {
        &self.0.options
    }

    /// The number of renewals that have failed so far.
    pub(crate) fn failure_count(&self) -> u64 {
        self.0.failure_count.load(Ordering::Relaxed)
    }

    /// The current identity, valid or expired.
    pub(crate) fn current(&self) -> Arc<Identity> {
        self.0.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns an identity that is valid now. Waits only if the current one has expired.
    pub(crate) async fn valid_identity(
        &self,
        deadline: Deadline,
    ) -> Result<Arc<Identity>, ChannelError> {
        let identity = self.current();
        match self.validity(&identity) {
            IdentityValidity::Fresh => Ok(identity),
            IdentityValidity::RenewalDue => {
                self.renew_in_background();
                Ok(identity)
            }
            IdentityValidity::Expired => {
                deadline.limit(ChannelPhase::Quote, self.renew_now()).await?
            }
        }
    }

    fn validity(&self, identity: &Identity) -> IdentityValidity {
        let now = (self.0.clock)();
        let span = identity.not_after - identity.not_before;
        if self.0.options.binding == Binding::None {
            IdentityValidity::Fresh
        } else if now >= identity.not_after || now < identity.not_before {
            IdentityValidity::Expired
        } else if now >= identity.not_before + span / 3 * 2 {
            IdentityValidity::RenewalDue
        } else {
            IdentityValidity::Fresh
        }
    }

    fn renew_in_background(&self) {
        if self.recent_failure().is_some() {
            return;
        }
        if let Ok(turn) = self.0.renewing.clone().try_lock_owned() {
            // Another connection's renewal may have ended since this one looked at the key.
            if matches!(self.validity(&self.current()), IdentityValidity::Fresh) {
                return;
            }
            let this = self.clone();
            // A failure shows in `failure_count`, and to the connection that needs a key after this
            // one expires.
            drop(tokio::task::spawn_blocking(move || this.renew(turn)));
        }
    }

    async fn renew_now(&self) -> Result<Arc<Identity>, ChannelError> {
        let turn = self.0.renewing.clone().lock_owned().await;
        let identity = self.current();
        if !matches!(self.validity(&identity), IdentityValidity::Expired) {
            return Ok(identity);
        }
        let made = match self.recent_failure() {
            Some(error) => Err(error),
            None => {
                let this = self.clone();
                let made = tokio::task::spawn_blocking(move || this.renew(turn)).await;
                made.map_err(|_| ChannelError::AttesterTask)?
            }
        };
        made.map_err(|source| ChannelError::KeyEnded { source })
    }

    /// Starts a renewal if one is due, as a connection would.
    pub(crate) fn renew_if_due(&self) {
        if !matches!(self.validity(&self.current()), IdentityValidity::Fresh) {
            self.renew_in_background();
        }
    }

    /// Starts a renewal if the attester has other collateral than the certificate: after the start
    /// without any, or once it is fresher. Collateral that changes all the time is taken over once
    /// in [`COLLATERAL_AGE_MIN_S`].
    pub(crate) fn renew_for_new_collateral(&self) {
        let IdentityOptions { attester, binding, .. } = self.options();
        if *binding != Binding::Key || self.recent_failure().is_some() {
            return;
        }
        let Some(collateral) = attester.as_ref().and_then(|attester| attester.collateral()) else {
            return;
        };
        let hash = sha256(&collateral);
        if *self.0.unusable_collateral.read().unwrap_or_else(PoisonError::into_inner) == Some(hash)
        {
            return;
        }
        let current = self.current();
        let is_young = || (self.0.clock)() < current.not_before + COLLATERAL_AGE_MIN_S;
        match current.collateral_hash {
            Some(stapled) if stapled == hash || is_young() => return,
            _ => {}
        }
        if let Ok(turn) = self.0.renewing.clone().try_lock_owned() {
            let this = self.clone();
            let renew = move || {
                if this.renew(turn).is_err() {
                    let mut unusable =
                        this.0.unusable_collateral.write().unwrap_or_else(PoisonError::into_inner);
                    *unusable = Some(hash);
                }
            };
            drop(tokio::task::spawn_blocking(renew));
        }
    }

    /// Returns the error of the last renewal until another may be tried.
    fn recent_failure(&self) -> Option<Arc<ChannelError>> {
        let failed = self.0.failed.read().unwrap_or_else(PoisonError::into_inner);
        failed.as_ref().filter(|last| last.at.elapsed() < RETRY).map(|last| last.error.clone())
    }

    /// Makes a new identity. Blocks while the attester works; `_turn` is released at the end.
    fn renew(&self, _turn: OwnedMutexGuard<()>) -> Result<Arc<Identity>, Arc<ChannelError>> {
        let renew = || Identity::generate(&self.0.options, (self.0.clock)());
        // The attester is foreign code; its panic leaves no partial state here.
        let made = catch_unwind(AssertUnwindSafe(renew)).unwrap_or(Err(ChannelError::AttesterTask));
        let made = made.map(Arc::new).map_err(Arc::new);
        let error = made.as_ref().err().cloned();
        if let Ok(made) = &made {
            *self.0.current.write().unwrap_or_else(PoisonError::into_inner) = made.clone();
        }
        self.0.failure_count.fetch_add(error.is_some().into(), Ordering::Relaxed);
        *self.0.failed.write().unwrap_or_else(PoisonError::into_inner) =
            error.map(|error| FailedRenewal { at: Instant::now(), error });
        made
    }
}

enum IdentityValidity {
    Fresh,
    RenewalDue,
    Expired,
}

#[cfg(test)]
mod tests {
    use confide_evidence::{Attest, AttestError, ReportData};

    use super::*;

    #[derive(Default)]
    struct Counter(AtomicU64);

    impl Attest for Counter {
        fn attest(&self, _report_data: &ReportData) -> Result<Vec<u8>, AttestError> {
            self.0.fetch_add(1, Ordering::SeqCst);
            Ok(b"quote".to_vec())
        }

        fn collateral(&self) -> Option<Vec<u8>> {
            None
        }

        fn is_simulated(&self) -> bool {
            true
        }
    }

    fn options(attester: Arc<dyn Attest>) -> IdentityOptions {
        IdentityOptions {
            attester: Some(attester),
            binding: Binding::Key,
            config_digest: [0; 32],
            guarantee: "g".into(),
            names: Vec::new(),
            validity: Duration::from_secs(3600),
            weights: None,
        }
    }

    #[tokio::test]
    async fn a_connection_that_looked_before_a_renewal_starts_no_second_one() {
        let counter = Arc::new(Counter::default());
        let identities = IdentityRenewer::new(options(counter.clone()), || 1_800_000_000).unwrap();
        // The caller saw the key before; by now it is fresh.
        identities.renew_in_background();
        drop(identities.0.renewing.lock().await);
        assert_eq!(counter.0.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn a_key_is_renewed_in_time_without_a_connection() {
        static NOW: AtomicU64 = AtomicU64::new(1_800_000_000);
        let options = options(Arc::new(Counter::default()));
        let identities = IdentityRenewer::new(options, || NOW.load(Ordering::SeqCst)).unwrap();
        let first = identities.current().spki_hash;
        let looked = async || {
            identities.renew_if_due();
            drop(identities.0.renewing.lock().await);
            identities.current().spki_hash
        };
        assert_eq!(looked().await, first);
        NOW.fetch_add(2400, Ordering::SeqCst);
        assert_ne!(looked().await, first);
    }

    /// An attester whose collateral comes and changes.
    #[derive(Default)]
    struct Fetching(std::sync::Mutex<Option<Vec<u8>>>);

    impl Attest for Fetching {
        fn attest(&self, _report_data: &ReportData) -> Result<Vec<u8>, AttestError> {
            Ok(b"quote".to_vec())
        }

        fn collateral(&self) -> Option<Vec<u8>> {
            self.0.lock().unwrap().clone()
        }

        fn is_simulated(&self) -> bool {
            true
        }
    }

    #[tokio::test]
    async fn collateral_that_comes_late_is_stapled_without_waiting_for_the_keys_end() {
        static NOW: AtomicU64 = AtomicU64::new(1_800_000_000);
        let fetching = Arc::new(Fetching::default());
        let options = options(fetching.clone());
        let identities = IdentityRenewer::new(options, || NOW.load(Ordering::SeqCst)).unwrap();
        let looked = async || {
            identities.renew_for_new_collateral();
            drop(identities.0.renewing.lock().await);
            identities.current().collateral_hash
        };
        let have = |collateral: &str| *fetching.0.lock().unwrap() = Some(collateral.into());
        let first = identities.current().spki_hash;
        assert_eq!(looked().await, None);
        assert_eq!(identities.current().spki_hash, first, "nothing has come");
        have("old");
        assert_eq!(looked().await, Some(sha256(b"old")));
        let second = identities.current().spki_hash;
        assert_eq!(looked().await, Some(sha256(b"old")));
        assert_eq!(identities.current().spki_hash, second, "nothing has changed");
        // A source that changes all the time does not cost a quote each time.
        have("new");
        assert_eq!(looked().await, Some(sha256(b"old")));
        NOW.fetch_add(COLLATERAL_AGE_MIN_S, Ordering::SeqCst);
        assert_eq!(looked().await, Some(sha256(b"new")));
    }
}
