//! The identity served now, and its replacement before it ends.

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
    deadline::Deadline,
    error::{ChannelError, Phase},
    identity::{Identity, IdentityOptions},
    options::Binding,
};

/// The wait after a failed renewal, so that a broken device is not asked again for every
/// connection.
const RETRY: Duration = Duration::from_secs(5);

/// Gives each connection the present identity, and renews it when two thirds of its life are over.
#[derive(Clone)]
pub(crate) struct Identities(Arc<Shared>);

struct Shared {
    clock: fn() -> u64,
    current: RwLock<Arc<Identity>>,
    /// The last renewal, if it failed.
    failed: RwLock<Option<FailedRenewal>>,
    failures: AtomicU64,
    options: IdentityOptions,
    /// The lock that the running renewal holds, so that there is one at a time.
    renewing: Arc<Mutex<()>>,
}

struct FailedRenewal {
    /// A monotonic instant: the wall clock may be what is wrong.
    at: Instant,
    error: Arc<ChannelError>,
}

impl Identities {
    /// Makes the first identity on the calling thread.
    pub(crate) fn new(options: IdentityOptions, clock: fn() -> u64) -> Result<Self, ChannelError> {
        let first = Identity::generate(&options, clock())?;
        Ok(Self::with_first(options, first, clock))
    }

    /// An identity from elsewhere, which is never renewed: its binding is none.
    pub(crate) fn with_identity(options: IdentityOptions, identity: Identity) -> Self {
        Self::with_first(options, identity, || 0)
    }

    fn with_first(options: IdentityOptions, first: Identity, clock: fn() -> u64) -> Self {
        Self(Arc::new(Shared {
            clock,
            current: RwLock::new(Arc::new(first)),
            failed: RwLock::new(None),
            failures: AtomicU64::new(0),
            options,
            renewing: Arc::new(Mutex::new(())),
        }))
    }

    pub(crate) fn options(&self) -> &IdentityOptions {
        &self.0.options
    }

    /// The number of renewals that have failed so far.
    pub(crate) fn failures(&self) -> u64 {
        self.0.failures.load(Ordering::Relaxed)
    }

    /// The identity as it stands, valid or expired.
    pub(crate) fn current(&self) -> Arc<Identity> {
        self.0.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// An identity that is valid now. Waits only where the present one has already ended.
    pub(crate) async fn valid_identity(
        &self,
        deadline: Deadline,
    ) -> Result<Arc<Identity>, ChannelError> {
        let identity = self.current();
        match self.state(&identity) {
            Freshness::Fresh => Ok(identity),
            Freshness::RenewalDue => {
                self.renew_in_background();
                Ok(identity)
            }
            Freshness::Expired => deadline.keep(Phase::Quote, self.renew_now()).await?,
        }
    }

    fn state(&self, identity: &Identity) -> Freshness {
        let now = (self.0.clock)();
        let span = identity.not_after - identity.not_before;
        if self.0.options.binding == Binding::None {
            Freshness::Fresh
        } else if now >= identity.not_after || now < identity.not_before {
            Freshness::Expired
        } else if now >= identity.not_before + span / 3 * 2 {
            Freshness::RenewalDue
        } else {
            Freshness::Fresh
        }
    }

    fn renew_in_background(&self) {
        if self.recent_failure().is_some() {
            return;
        }
        if let Ok(turn) = self.0.renewing.clone().try_lock_owned() {
            // Another connection's renewal may have ended since this one looked at the key.
            if matches!(self.state(&self.current()), Freshness::Fresh) {
                return;
            }
            let this = self.clone();
            // The outcome is seen in `failures` and by the connection that needs the key after its
            // end.
            drop(tokio::task::spawn_blocking(move || this.make(turn)));
        }
    }

    async fn renew_now(&self) -> Result<Arc<Identity>, ChannelError> {
        let turn = self.0.renewing.clone().lock_owned().await;
        let identity = self.current();
        if !matches!(self.state(&identity), Freshness::Expired) {
            return Ok(identity);
        }
        let made = match self.recent_failure() {
            Some(error) => Err(error),
            None => {
                let this = self.clone();
                let made = tokio::task::spawn_blocking(move || this.make(turn)).await;
                made.map_err(|_| ChannelError::AttesterTask)?
            }
        };
        made.map_err(|source| ChannelError::KeyEnded { source })
    }

    /// The error of the last renewal, for as long as no new one is to be tried.
    fn recent_failure(&self) -> Option<Arc<ChannelError>> {
        let failed = self.0.failed.read().unwrap_or_else(PoisonError::into_inner);
        failed.as_ref().filter(|last| last.at.elapsed() < RETRY).map(|last| last.error.clone())
    }

    /// Blocks while the attester works; `_turn` is given back at the end.
    fn make(&self, _turn: OwnedMutexGuard<()>) -> Result<Arc<Identity>, Arc<ChannelError>> {
        let make = || Identity::generate(&self.0.options, (self.0.clock)());
        // The attester is not ours. Its panic leaves nothing half made here.
        let made = catch_unwind(AssertUnwindSafe(make)).unwrap_or(Err(ChannelError::AttesterTask));
        let made = made.map(Arc::new).map_err(Arc::new);
        let error = made.as_ref().err().cloned();
        if let Ok(made) = &made {
            *self.0.current.write().unwrap_or_else(PoisonError::into_inner) = made.clone();
        }
        self.0.failures.fetch_add(error.is_some().into(), Ordering::Relaxed);
        *self.0.failed.write().unwrap_or_else(PoisonError::into_inner) =
            error.map(|error| FailedRenewal { at: Instant::now(), error });
        made
    }
}

enum Freshness {
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

    #[tokio::test]
    async fn a_connection_that_looked_before_a_renewal_starts_no_second_one() {
        let counter = Arc::new(Counter::default());
        let options = IdentityOptions {
            attester: Some(counter.clone()),
            binding: Binding::Key,
            config_digest: [0; 32],
            guarantee: "g".into(),
            names: Vec::new(),
            validity: Duration::from_secs(3600),
        };
        let identities = Identities::new(options, || 1_800_000_000).unwrap();
        // Whoever calls this saw the key before; by now it is fresh.
        identities.renew_in_background();
        drop(identities.0.renewing.lock().await);
        assert_eq!(counter.0.load(Ordering::SeqCst), 1);
    }
}
