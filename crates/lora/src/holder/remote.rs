//! An adapter at a host, for use by an engine.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
    thread,
    time::{Duration, Instant},
};

use super::{
    connect::HostConnector,
    connection::HostConnection,
    deltas::RemoteDeltas,
    error::HolderError,
    options::KeyHolderOptions,
    preparer,
    session::{AdapterState, HolderSession},
};
use crate::{
    adapt_error::AdaptError,
    deltas::{DeltaProvider, DeltaSession},
    guarantee::Guarantee,
    host::{BATCHES_MAX, SECURITY_BITS_MIN},
    protocol::Scheme,
    reservation::{Reservation, Reservations},
    site::{ProjectionSite, ProjectionWidth},
    terms::ProtectedMatrices,
};

/// The progress of preparations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PreparationProgress {
    /// The number of inputs of the adapter.
    pub inputs: usize,
    /// The number of inputs with at least the wanted number of vectors left.
    pub ready: usize,
    /// The number of vectors that can be sent before any input has to wait.
    pub vectors_left: u64,
    /// The number of batches that were finished since the session started.
    pub batches: u64,
}

/// An adapter at an adapter host.
///
/// Dropping it ends the session at the host. Generations that still run end with
/// [`AdaptError::HostLost`].
pub struct RemoteAdapter {
    shared: Arc<AdapterState>,
    sites: BTreeMap<ProjectionSite, ProjectionWidth>,
    reservations: Arc<Reservations>,
}

impl RemoteAdapter {
    /// Opens a session and starts to prepare masks.
    ///
    /// # Errors
    /// If the host cannot be reached, refuses, or does not offer what the options require.
    pub fn connect(
        connect: Arc<dyn HostConnector>,
        options: KeyHolderOptions,
    ) -> Result<Self, HolderError> {
        let mut connection = HostConnection::open(&*connect)?;
        let session = HolderSession::open(&mut connection, &*connect, &options)?;
        let sites = session.sites();
        let preparers = match options.scheme {
            Scheme::Masked => options.preparers,
            Scheme::Direct => 0,
        };
        let shared = Arc::new(AdapterState::new(connect, options, connection, session));
        for index in 0..preparers {
            preparer::start_preparer(&shared, index);
        }
        Ok(Self { shared, sites, reservations: Arc::default() })
    }

    /// Waits until `vectors` vectors are prepared for each input, and reports to `on_progress`.
    ///
    /// # Errors
    /// If the connection to the host is lost, or `deadline` passes.
    pub fn wait_until_prepared(
        &self,
        vectors: u32,
        deadline: Duration,
        mut on_progress: impl FnMut(PreparationProgress),
    ) -> Result<PreparationProgress, HolderError> {
        let session = self.shared.ensure_session()?;
        let most = (session.secret.context().n() * BATCHES_MAX) as u64;
        let wanted = u64::from(vectors).min(most);
        self.shared.wanted.fetch_max(wanted, Ordering::Relaxed);
        let until = Instant::now() + deadline;
        session.notify_waiters();
        let mut last = PreparationProgress::default();
        loop {
            let progress = session_progress(&session, wanted);
            if progress != last {
                on_progress(progress);
                last = progress;
            }
            if progress.ready == progress.inputs {
                return Ok(progress);
            }
            if session.is_dead() {
                return Err(HolderError::HostRestarted { host: self.shared.connect.host() });
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let (host, waited_s) = (self.shared.connect.host(), deadline.as_secs());
                return Err(HolderError::NotPrepared { host, waited_s });
            }
            let pools = session.pools();
            if pools_progress(&session, &pools, wanted) == progress {
                drop(session.wait_for_change(pools, left.min(Duration::from_secs(1))));
            }
        }
    }

    /// The progress of preparations.
    pub fn preparation_progress(&self) -> PreparationProgress {
        session_progress(&self.shared.session(), self.shared.wanted.load(Ordering::Relaxed))
    }

    /// The epoch of the host process at which the session was opened.
    pub fn host_epoch(&self) -> [u8; 16] {
        self.shared.session().welcome.epoch
    }

    /// The number of bytes sent and received for preparations.
    pub fn offline_bytes(&self) -> u64 {
        self.shared.offline_bytes.load(Ordering::Relaxed)
    }

    /// The number of vectors in one batch.
    pub fn vectors_per_batch(&self) -> usize {
        self.shared.session().secret.context().n()
    }

    /// The number of answers left for the input with the fewest; `None` if there is no
    /// budget.
    pub fn budget_left(&self) -> Option<u64> {
        self.shared
            .session()
            .groups
            .iter()
            .filter_map(super::session::InputGroup::budget_left)
            .min()
    }
}

impl DeltaProvider for RemoteAdapter {
    fn sites(&self) -> &BTreeMap<ProjectionSite, ProjectionWidth> {
        &self.sites
    }

    fn guarantee(&self) -> Guarantee {
        let (session, set) = (self.shared.session(), &self.shared.options.parameters);
        let welcome = &session.welcome;
        Guarantee {
            host_is_blind: set.security_bits() >= SECURITY_BITS_MIN,
            adapter_stays: set.flood_bits() > 0,
            b_is_handed_over: welcome.protect == ProtectedMatrices::A,
            // A key holder whose evidence was not accepted can learn the adapter under any budget.
            adapter_can_be_learned: !welcome.trusted || welcome.can_be_learned,
            simulated: session.simulated,
        }
    }

    fn reserve_answers(
        &self,
        prompt: u32,
        completion: Option<u32>,
    ) -> Result<Reservation, AdaptError> {
        let first = self.reservations.reserve_answers(self.budget_left(), prompt, completion);
        let Err(AdaptError::BudgetTooSmall { .. }) = first else { return first };
        // This needs another thread: a connection runs an event loop, and this thread may run one
        // already.
        let again = || match self.is_session_forgotten() {
            true => self.shared.ensure_session().map(|_| true),
            false => Ok(false),
        };
        let again = thread::scope(|scope| scope.spawn(again).join());
        match again {
            Ok(Ok(true)) => {
                self.reservations.reserve_answers(self.budget_left(), prompt, completion)
            }
            Ok(Err(error)) => Err(error.into()),
            Ok(Ok(false)) | Err(_) => first,
        }
    }

    fn open_session(&self) -> Result<Box<dyn DeltaSession>, AdaptError> {
        let deltas = match self.try_open_session() {
            // The host no longer knows the session: retry once with a new one.
            Err(HolderError::HostRestarted { .. }) => self.try_open_session()?,
            other => other?,
        };
        Ok(Box::new(deltas))
    }
}

impl RemoteAdapter {
    /// Returns whether the host no longer knows the session. The budget of the session is then out of
    /// date, for example if the host was restarted with a larger one.
    fn is_session_forgotten(&self) -> bool {
        let session = self.shared.session();
        if let Ok(connection) = self.shared.open_connection(&session) {
            self.shared.keep_idle_connection(connection, &session);
        }
        session.is_dead()
    }

    fn try_open_session(&self) -> Result<RemoteDeltas, HolderError> {
        let session = self.shared.ensure_session()?;
        let connection = self.shared.take_connection(&session)?;
        Ok(RemoteDeltas::new(self.shared.clone(), session, connection))
    }
}

impl Drop for RemoteAdapter {
    fn drop(&mut self) {
        self.shared.stop();
    }
}

fn session_progress(session: &HolderSession, wanted: u64) -> PreparationProgress {
    pools_progress(session, &session.pools(), wanted)
}

fn pools_progress(
    session: &HolderSession,
    pools: &[super::pool::MaskPool],
    wanted: u64,
) -> PreparationProgress {
    let enough = |group: usize, left: u64| {
        let budget = session.groups[group].budget_left().unwrap_or(u64::MAX);
        left >= wanted.min(budget)
    };
    let lefts = pools.iter().map(super::pool::MaskPool::tokens_left);
    PreparationProgress {
        inputs: pools.len(),
        ready: lefts.clone().enumerate().filter(|(group, left)| enough(*group, *left)).count(),
        vectors_left: lefts.min().unwrap_or(0),
        batches: pools.iter().map(|pool| pool.finished).sum(),
    }
}
