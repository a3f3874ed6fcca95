//! An adapter at a host, as an engine meets it.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
    thread,
    time::{Duration, Instant},
};

use super::{
    connect::Connect,
    connection::Connection,
    deltas::RemoteDeltas,
    error::HolderError,
    options::HolderOptions,
    preparer,
    session::{Session, Shared},
};
use crate::{
    adapt_error::AdaptError,
    deltas::{Adapt, Deltas},
    guarantee::Guarantee,
    host::{BATCHES_MAX, SECURITY_BITS_MIN},
    protocol::Scheme,
    reservation::{Reservation, Reservations},
    site::{Site, Width},
    terms::Protect,
};

/// The progress of preparations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The number of inputs of the adapter.
    pub inputs: usize,
    /// The number of inputs that have as many vectors left as were wanted.
    pub ready: usize,
    /// The number of vectors that can be asked about before any input has to wait.
    pub vectors_left: u64,
    /// The number of batches that were finished since the session began.
    pub batches: u64,
}

/// An adapter at an adapter host.
///
/// Dropping it says goodbye to the host; generations that still run end with
/// [`AdaptError::HostLost`].
pub struct RemoteAdapter {
    shared: Arc<Shared>,
    sites: BTreeMap<Site, Width>,
    reservations: Arc<Reservations>,
}

impl RemoteAdapter {
    /// Opens a session and begins to prepare.
    ///
    /// # Errors
    /// If the host cannot be reached, refuses, or offers something else.
    pub fn connect(connect: Arc<dyn Connect>, options: HolderOptions) -> Result<Self, HolderError> {
        let mut connection = Connection::open(&*connect)?;
        let session = Session::open(&mut connection, &*connect, &options)?;
        let sites = session.sites();
        let preparers = match options.scheme {
            Scheme::Masked => options.preparers,
            Scheme::Direct => 0,
        };
        let shared = Arc::new(Shared::new(connect, options, connection, session));
        for index in 0..preparers {
            preparer::start(&shared, index);
        }
        Ok(Self { shared, sites, reservations: Arc::default() })
    }

    /// Waits until `vectors` can be asked about each input, and reports to `on_progress`.
    ///
    /// # Errors
    /// If the host is lost, or `deadline` passes.
    pub fn prepare(
        &self,
        vectors: u32,
        deadline: Duration,
        mut on_progress: impl FnMut(Progress),
    ) -> Result<Progress, HolderError> {
        let session = self.shared.ensure_session()?;
        let most = (session.secret.context().n() * BATCHES_MAX) as u64;
        let wanted = u64::from(vectors).min(most);
        self.shared.wanted.fetch_max(wanted, Ordering::Relaxed);
        let until = Instant::now() + deadline;
        session.notify();
        let mut last = Progress::default();
        loop {
            let progress = progress(&session, wanted);
            if progress != last {
                on_progress(progress);
                last = progress;
            }
            if progress.ready == progress.inputs {
                return Ok(progress);
            }
            if session.is_dead() {
                return Err(HolderError::StartedAnew { host: self.shared.connect.host() });
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let (host, waited_s) = (self.shared.connect.host(), deadline.as_secs());
                return Err(HolderError::NotPrepared { host, waited_s });
            }
            let pools = session.pools();
            if progress_of(&session, &pools, wanted) == progress {
                drop(session.wait(pools, left.min(Duration::from_secs(1))));
            }
        }
    }

    /// The progress of preparations.
    pub fn progress(&self) -> Progress {
        progress(&self.shared.session(), self.shared.wanted.load(Ordering::Relaxed))
    }

    /// The epoch of the host's process that the session was opened with.
    pub fn epoch(&self) -> [u8; 16] {
        self.shared.session().welcome.epoch
    }

    /// The number of bytes sent and received for preparations.
    pub fn offline_bytes(&self) -> u64 {
        self.shared.offline_bytes.load(Ordering::Relaxed)
    }

    /// The number of vectors in one batch.
    pub fn batch_vectors(&self) -> usize {
        self.shared.session().secret.context().n()
    }

    /// The number of answers left for the input that has fewest of them; `None` if there is no
    /// budget.
    pub fn budget_left(&self) -> Option<u64> {
        self.shared
            .session()
            .groups
            .iter()
            .filter_map(super::session::HolderGroup::budget_left)
            .min()
    }
}

impl Adapt for RemoteAdapter {
    fn sites(&self) -> &BTreeMap<Site, Width> {
        &self.sites
    }

    fn guarantee(&self) -> Guarantee {
        let (session, set) = (self.shared.session(), &self.shared.options.parameters);
        let welcome = &session.welcome;
        Guarantee {
            host_is_blind: set.security_bits() >= SECURITY_BITS_MIN,
            adapter_stays: set.flood_bits() > 0,
            b_is_handed_over: welcome.protect == Protect::A,
            // A key holder whose evidence was not accepted can learn the adapter under any budget.
            adapter_can_be_learned: !welcome.trusted || welcome.can_be_learned,
            simulated: session.simulated,
        }
    }

    fn reserve(&self, prompt: u32, completion: Option<u32>) -> Result<Reservation, AdaptError> {
        let first = self.reservations.reserve(self.budget_left(), prompt, completion);
        let Err(AdaptError::BudgetTooSmall { .. }) = first else { return first };
        // A thread of its own: this one may run an event loop, and a connection runs one too.
        let again = || match self.is_forgotten() {
            true => self.shared.ensure_session().map(|_| true),
            false => Ok(false),
        };
        let again = thread::scope(|scope| scope.spawn(again).join());
        match again {
            Ok(Ok(true)) => self.reservations.reserve(self.budget_left(), prompt, completion),
            Ok(Err(error)) => Err(error.into()),
            Ok(Ok(false)) | Err(_) => first,
        }
    }

    fn open(&self) -> Result<Box<dyn Deltas>, AdaptError> {
        let deltas = match self.try_open() {
            // The host does not know the session any more: open a new one, once.
            Err(HolderError::StartedAnew { .. }) => self.try_open()?,
            other => other?,
        };
        Ok(Box::new(deltas))
    }
}

impl RemoteAdapter {
    /// Whether the host no longer knows the session. Its budget is then stale, for example after a
    /// restart with a larger one.
    fn is_forgotten(&self) -> bool {
        let session = self.shared.session();
        if let Ok(connection) = self.shared.open_connection(&session) {
            self.shared.give_back(connection, &session);
        }
        session.is_dead()
    }

    fn try_open(&self) -> Result<RemoteDeltas, HolderError> {
        let session = self.shared.ensure_session()?;
        let connection = self.shared.connection(&session)?;
        Ok(RemoteDeltas::new(self.shared.clone(), session, connection))
    }
}

impl Drop for RemoteAdapter {
    fn drop(&mut self) {
        self.shared.stop();
    }
}

fn progress(session: &Session, wanted: u64) -> Progress {
    progress_of(session, &session.pools(), wanted)
}

fn progress_of(session: &Session, pools: &[super::pool::Pool], wanted: u64) -> Progress {
    let enough = |group: usize, left: u64| {
        let budget = session.groups[group].budget_left().unwrap_or(u64::MAX);
        left >= wanted.min(budget)
    };
    let lefts = pools.iter().map(super::pool::Pool::tokens_left);
    Progress {
        inputs: pools.len(),
        ready: lefts.clone().enumerate().filter(|(group, left)| enough(*group, *left)).count(),
        vectors_left: lefts.min().unwrap_or(0),
        batches: pools.iter().map(|pool| pool.finished).sum(),
    }
}
