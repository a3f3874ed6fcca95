//! The identity served now, and its replacement before it ends.

use std::sync::{
    Arc, PoisonError, RwLock,
    atomic::{AtomicU64, Ordering},
};

use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::{
    Binding, ChannelError, Phase,
    deadline::Deadline,
    identity::{Identity, IdentityOptions},
};

/// After a failed renewal the next try waits this long, so that a broken device is not asked
/// again by every connection.
const RETRY_S: u64 = 5;

/// Gives each connection the present identity, and renews it when two thirds of its life are over.
#[derive(Clone)]
pub(crate) struct Identities(Arc<Shared>);

struct Shared {
    clock: fn() -> u64,
    current: RwLock<Arc<Identity>>,
    failures: AtomicU64,
    options: IdentityOptions,
    /// Held by the one renewal that runs.
    renewing: Arc<Mutex<()>>,
    retry_at: AtomicU64,
}

impl Identities {
    /// Makes the first identity on the calling thread.
    pub(crate) fn new(options: IdentityOptions, clock: fn() -> u64) -> Result<Self, ChannelError> {
        let first = Identity::make(&options, clock())?;
        Ok(Self::holding(options, first, clock))
    }

    /// An identity from elsewhere, which is never renewed: its binding is none.
    pub(crate) fn given(options: IdentityOptions, identity: Identity) -> Self {
        Self::holding(options, identity, || 0)
    }

    fn holding(options: IdentityOptions, first: Identity, clock: fn() -> u64) -> Self {
        Self(Arc::new(Shared {
            clock,
            current: RwLock::new(Arc::new(first)),
            failures: AtomicU64::new(0),
            options,
            renewing: Arc::new(Mutex::new(())),
            retry_at: AtomicU64::new(0),
        }))
    }

    pub(crate) fn options(&self) -> &IdentityOptions {
        &self.0.options
    }

    /// How many renewals have failed so far.
    pub(crate) fn failures(&self) -> u64 {
        self.0.failures.load(Ordering::Relaxed)
    }

    /// The identity as it stands, valid or not.
    pub(crate) fn served(&self) -> Arc<Identity> {
        self.0.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// An identity that is valid now. Waits only where the present one has already ended.
    pub(crate) async fn valid(&self, deadline: Deadline) -> Result<Arc<Identity>, ChannelError> {
        let identity = self.served();
        match self.state(&identity) {
            State::Fresh => Ok(identity),
            State::Due => {
                self.renew_in_background();
                Ok(identity)
            }
            State::Ended => deadline.keep(Phase::Quote, self.renew_now()).await?,
        }
    }

    fn state(&self, identity: &Identity) -> State {
        let now = (self.0.clock)();
        let span = identity.not_after - identity.not_before;
        if self.0.options.binding == Binding::None {
            State::Fresh
        } else if now >= identity.not_after || now < identity.not_before {
            State::Ended
        } else if now >= identity.not_before + span / 3 * 2 {
            State::Due
        } else {
            State::Fresh
        }
    }

    fn renew_in_background(&self) {
        if (self.0.clock)() < self.0.retry_at.load(Ordering::Relaxed) {
            return;
        }
        if let Ok(turn) = self.0.renewing.clone().try_lock_owned() {
            let this = self.clone();
            // The outcome is seen in `failures` and by whoever needs the key after its end.
            drop(tokio::task::spawn_blocking(move || this.make(turn)));
        }
    }

    async fn renew_now(&self) -> Result<Arc<Identity>, ChannelError> {
        let turn = self.0.renewing.clone().lock_owned().await;
        let identity = self.served();
        if !matches!(self.state(&identity), State::Ended) {
            return Ok(identity);
        }
        let this = self.clone();
        let made = tokio::task::spawn_blocking(move || this.make(turn)).await;
        made.map_err(|_| ChannelError::AttesterTask)?
    }

    /// Blocks while the attester works; `_turn` is given back at the end, also after a panic.
    fn make(&self, _turn: OwnedMutexGuard<()>) -> Result<Arc<Identity>, ChannelError> {
        let now = (self.0.clock)();
        match Identity::make(&self.0.options, now) {
            Ok(made) => {
                let made = Arc::new(made);
                *self.0.current.write().unwrap_or_else(PoisonError::into_inner) = made.clone();
                Ok(made)
            }
            Err(error) => {
                self.0.failures.fetch_add(1, Ordering::Relaxed);
                self.0.retry_at.store(now.saturating_add(RETRY_S), Ordering::Relaxed);
                Err(error)
            }
        }
    }
}

enum State {
    Fresh,
    Due,
    Ended,
}
