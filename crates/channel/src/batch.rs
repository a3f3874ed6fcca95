//! One quote for all the sessions that wait for one.
//!
//! A device makes quotes one after the other, about 39 ms each. While it makes one, the binders of
//! new sessions are collected; the next quote is over the root of a tree of all of them, and each
//! session gets its path ([`confide_evidence::batch`]). An idle device serves a lone session at
//! once, over its own binder and without a path.

use std::{
    collections::BTreeMap,
    future::Future,
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use aws_lc_rs::rand;
use confide_evidence::{
    Attest, ReportData,
    batch::{BATCH_MAX, BatchPath, BatchTree, Leaf, SALT_BYTES},
};
use tokio::{
    runtime::Handle,
    sync::{Semaphore, oneshot},
};

use crate::{batch_error::BatchError, error::ChannelError, own_evidence};

/// Bounds of a [`Batcher`], with [`BatchLimits::default`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    /// The most sessions under one quote, 1 to [`BATCH_MAX`].
    pub sessions: usize,
    /// The most sessions that wait, besides those whose quote is being made; the next one is
    /// refused with [`BatchError::Full`]. The default is eight full batches: a second of waiting at
    /// the most.
    pub waiting: usize,
    /// The same limit for sessions whose peer reads no batch path: each costs a quote of its own,
    /// so more than 64 could not be served before their deadlines anyway.
    pub waiting_alone: usize,
    /// The time for which the first session of a batch waits for others when the device is idle:
    /// zero by default, [`BatchLimits::WINDOW_MAX`] at most.
    pub window: Duration,
    /// The longest wait of a session, from its binder to its quote.
    pub wait: Duration,
}

impl BatchLimits {
    /// Longer windows would be longer than a quote takes, and gain nothing.
    pub const WINDOW_MAX: Duration = Duration::from_millis(20);

    fn check(&self) -> Result<(), ChannelError> {
        let refuse = |option, wanted, got| Err(ChannelError::Option { option, wanted, got });
        if !(1..=BATCH_MAX).contains(&self.sessions) {
            return refuse("batch sessions", "1 to 1024", self.sessions.to_string());
        }
        if self.waiting == 0 || self.waiting_alone == 0 {
            return refuse("batch waiting", "at least 1", "0".into());
        }
        if self.window > Self::WINDOW_MAX {
            return refuse("batch window", "at most 20 ms", format!("{:?}", self.window));
        }
        Ok(())
    }
}

impl Default for BatchLimits {
    fn default() -> Self {
        Self {
            sessions: BATCH_MAX,
            waiting: 8 * BATCH_MAX,
            waiting_alone: 64,
            window: Duration::ZERO,
            wait: Duration::from_secs(10),
        }
    }
}

/// The most sessions that ask for GPU evidence at once: a driver answers one after the other, so
/// more would only hold threads. The others wait, each until its own deadline.
const GPU_IN_FLIGHT_MAX: usize = 8;

/// Obtains quotes for many sessions from one device. Clones share the queue: every server of a
/// device should have a clone of one.
#[derive(Clone)]
pub struct Batcher(Arc<Shared>);

/// A session's share of a quote.
#[derive(Clone, Debug)]
pub struct BatchedQuote {
    /// The endorsements that the attester has for the quote.
    pub collateral: Option<Arc<[u8]>>,
    /// The path from the session's binder to what the quote signs; `None` if the quote signs the
    /// binder.
    pub path: Option<BatchPath>,
    /// The quote, the same for the whole batch.
    pub quote: Arc<[u8]>,
}

impl BatchedQuote {
    /// The number of sessions that share the quote.
    pub fn sessions(&self) -> usize {
        self.path.as_ref().map_or(1, BatchPath::size)
    }
}

/// The counters of a [`Batcher`] since it was made, and the sessions that wait now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchCounts {
    /// Quotes that the attester was asked for.
    pub quotes: u64,
    /// Quotes that failed.
    pub failed: u64,
    /// Sessions under all quotes; divided by `quotes`, the mean size of a batch.
    pub sessions: u64,
    /// Sessions under the quote that most of them shared.
    pub largest: u64,
    /// Sessions refused because the queue was full.
    pub refused: u64,
    /// Sessions that gave up before their quote was asked for.
    pub gone: u64,
    /// Sessions that wait at this moment.
    pub waiting: u64,
}

impl Batcher {
    /// A queue in front of `attester`, with the default limits.
    pub fn new(attester: Arc<dyn Attest>) -> Self {
        Self::with_valid_limits(attester, BatchLimits::default())
    }

    /// A queue in front of `attester`, with other limits.
    ///
    /// # Errors
    /// [`ChannelError::Option`] if a limit is out of bounds.
    pub fn with_limits(
        attester: Arc<dyn Attest>,
        limits: BatchLimits,
    ) -> Result<Self, ChannelError> {
        limits.check()?;
        Ok(Self::with_valid_limits(attester, limits))
    }

    /// A quote that covers `report_data`, alone or through the path that comes with it.
    ///
    /// Needs a tokio runtime. Dropping the future gives the place in the queue back.
    ///
    /// # Errors
    /// [`BatchError::Full`] or [`BatchError::Late`] if too many sessions wait,
    /// [`BatchError::Attester`] or [`BatchError::OwnEvidence`] if the attester gives nothing
    /// that a peer would read, [`BatchError::WorkerEnded`] outside a runtime and where the attester
    /// panicked.
    pub fn attest(
        &self,
        report_data: ReportData,
    ) -> impl Future<Output = Result<BatchedQuote, BatchError>> + Send + use<> {
        self.clone().wait(report_data, Lane::Batch)
    }

    /// A quote over `report_data` itself, for a peer that reads no path.
    ///
    /// These sessions have a queue of their own, and the device serves both queues in turn: they
    /// wait for each other, and the other sessions wait for them no longer than for one quote.
    ///
    /// # Errors
    /// As [`Batcher::attest`].
    pub fn attest_alone(
        &self,
        report_data: ReportData,
    ) -> impl Future<Output = Result<BatchedQuote, BatchError>> + Send + use<> {
        self.clone().wait(report_data, Lane::Single)
    }

    /// The attester that the queue asks.
    pub fn attester(&self) -> &Arc<dyn Attest> {
        &self.0.attester
    }

    /// Evidence of the attester's GPU over one session's `nonce`, where it has one. It is not
    /// shared: a relying party reckons the nonce from its own session.
    pub(crate) async fn gpu(&self, nonce: [u8; 32]) -> Result<Option<Vec<u8>>, BatchError> {
        let wanted = self.0.limits.waiting;
        let _place = self.0.gpu_places.try_acquire().map_err(|_| BatchError::Full { wanted })?;
        let turn =
            self.0.gpu_turns.clone().acquire_owned().await.map_err(|_| BatchError::WorkerEnded)?;
        let attester = self.0.attester.clone();
        let task = tokio::task::spawn_blocking(move || {
            // Held to the end of the work, even if the session has given up on it.
            let _turn = turn;
            own_evidence::obtain_gpu_evidence(&*attester, &nonce)
        });
        task.await.map_err(|_| BatchError::WorkerEnded)?
    }

    /// The counters of the batcher.
    pub fn counts(&self) -> BatchCounts {
        let queue = self.0.queue();
        let waiting = queue.together.len() + queue.alone.len();
        BatchCounts { waiting: waiting as u64, ..queue.counts }
    }

    fn with_valid_limits(attester: Arc<dyn Attest>, limits: BatchLimits) -> Self {
        let gpu_turns = Arc::new(Semaphore::new(GPU_IN_FLIGHT_MAX));
        let gpu_places = Semaphore::new(limits.waiting.min(Semaphore::MAX_PERMITS));
        let queue = Mutex::default();
        Self(Arc::new(Shared { attester, gpu_places, gpu_turns, limits, queue }))
    }

    async fn wait(self, binder: ReportData, lane: Lane) -> Result<BatchedQuote, BatchError> {
        let wanted = self.0.limits.wait;
        let (_place, answer) = self.enter(binder, lane)?;
        match tokio::time::timeout(wanted, answer).await {
            Ok(Ok(share)) => share?.split(),
            Ok(Err(_)) => Err(BatchError::WorkerEnded),
            Err(_) => Err(BatchError::Late { wanted }),
        }
    }

    /// Takes a place in the queue, and starts a worker where none runs.
    fn enter(
        &self,
        binder: ReportData,
        lane: Lane,
    ) -> Result<(QueuePlace, oneshot::Receiver<Answer>), BatchError> {
        let runtime = Handle::try_current().map_err(|_| BatchError::WorkerEnded)?;
        let (sender, answer) = oneshot::channel();
        let mut queue = self.0.queue();
        let wanted = match lane {
            Lane::Batch => self.0.limits.waiting,
            Lane::Single => self.0.limits.waiting_alone,
        };
        if queue.lane(lane).len() >= wanted {
            queue.counts.refused += 1;
            return Err(BatchError::Full { wanted });
        }
        queue.last += 1;
        let number = queue.last;
        let waiting = Waiter { answer: sender, binder, since: Instant::now() };
        queue.lane(lane).insert(number, waiting);
        let idle = !mem::replace(&mut queue.working, true);
        drop(queue);
        if idle {
            let worker = Worker { shared: self.0.clone(), done: false };
            runtime.spawn_blocking(move || worker.run_worker());
        }
        Ok((QueuePlace { shared: self.0.clone(), lane, number }, answer))
    }
}

impl std::fmt::Debug for Batcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batcher").field("limits", &self.0.limits).finish_non_exhaustive()
    }
}

struct Shared {
    attester: Arc<dyn Attest>,
    /// One place for each session that waits for GPU evidence: as many as may wait for a quote.
    gpu_places: Semaphore,
    gpu_turns: Arc<Semaphore>,
    limits: BatchLimits,
    queue: Mutex<Queue>,
}

impl Shared {
    /// The queue, also after a panic: nothing panics while the lock is held.
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Clone, Copy)]
enum Lane {
    Batch,
    Single,
}

/// Sessions in order of arrival, by the number under which one that gives up is removed.
type Waiters = BTreeMap<u64, Waiter>;

#[derive(Default)]
struct Queue {
    together: Waiters,
    alone: Waiters,
    /// Whether the last quote was for a single session: the other lane is next.
    was_alone: bool,
    counts: BatchCounts,
    /// The number of the last arrival.
    last: u64,
    /// Whether a worker runs or is about to.
    working: bool,
}

impl Queue {
    fn lane(&mut self, lane: Lane) -> &mut Waiters {
        match lane {
            Lane::Batch => &mut self.together,
            Lane::Single => &mut self.alone,
        }
    }

    /// The next batch; `None` if no session waits, and then the worker ends.
    fn next(&mut self, most: usize) -> Option<Waiters> {
        self.was_alone = match (self.together.is_empty(), self.alone.is_empty()) {
            (true, true) => {
                self.working = false;
                return None;
            }
            (false, true) => false,
            (true, false) => true,
            (false, false) => !self.was_alone,
        };
        let (lane, most) = match self.was_alone {
            true => (&mut self.alone, 1),
            false => (&mut self.together, most),
        };
        let later = lane.keys().nth(most).copied();
        let later = later.map(|number| lane.split_off(&number)).unwrap_or_default();
        let batch = mem::replace(lane, later);
        let size = batch.len() as u64;
        self.counts.quotes += 1;
        self.counts.sessions += size;
        self.counts.largest = self.counts.largest.max(size);
        Some(batch)
    }
}

struct Waiter {
    answer: oneshot::Sender<Answer>,
    binder: ReportData,
    since: Instant,
}

/// A place in the queue, given back when the session gives up.
struct QueuePlace {
    shared: Arc<Shared>,
    lane: Lane,
    number: u64,
}

impl Drop for QueuePlace {
    fn drop(&mut self) {
        let mut queue = self.shared.queue();
        let gone = queue.lane(self.lane).remove(&self.number);
        queue.counts.gone += u64::from(gone.is_some());
    }
}

type Answer = Result<Share, BatchError>;

/// A session's part of a signed batch; the session copies its path out of the tree on its own time.
struct Share {
    index: usize,
    signed: Arc<SignedBatch>,
}

struct SignedBatch {
    collateral: Option<Arc<[u8]>>,
    quote: Arc<[u8]>,
    /// `None` if the quote is over the one binder.
    tree: Option<BatchTree>,
}

impl Share {
    fn split(self) -> Result<BatchedQuote, BatchError> {
        let SignedBatch { collateral, quote, tree } = &*self.signed;
        let path = match tree {
            // A share of a tree without a path in it would be evidence of nothing.
            Some(tree) => Some(tree.path(self.index).ok_or(BatchError::WorkerEnded)?),
            None => None,
        };
        Ok(BatchedQuote { collateral: collateral.clone(), path, quote: quote.clone() })
    }
}

/// Serves the queue on a thread that may block, and ends when no session waits.
struct Worker {
    shared: Arc<Shared>,
    /// Whether the worker has given up its role, so that the next session starts another one.
    done: bool,
}

impl Worker {
    fn run_worker(mut self) {
        while let Some(batch) = self.next() {
            let batch: Vec<Waiter> = batch.into_values().collect();
            // The attester is not ours. Its panic ends this batch and nothing else.
            let sign = || self.sign(&batch);
            let signed =
                catch_unwind(AssertUnwindSafe(sign)).unwrap_or(Err(BatchError::WorkerEnded));
            self.shared.queue().counts.failed += u64::from(signed.is_err());
            let signed = signed.map(Arc::new);
            for (index, waiting) in batch.into_iter().enumerate() {
                let share = signed.clone().map(|signed| Share { index, signed });
                // A session that has given up since then does not receive it.
                let _ = waiting.answer.send(share);
            }
        }
    }

    fn next(&mut self) -> Option<Waiters> {
        let limits = self.shared.limits;
        if !limits.window.is_zero() {
            let queue = self.shared.queue();
            let first = queue.together.first_key_value().map(|(_, first)| first.since);
            let collecting = queue.alone.is_empty() && queue.together.len() < limits.sessions;
            drop(queue);
            if let Some(first) = first.filter(|_| collecting) {
                std::thread::sleep(limits.window.saturating_sub(first.elapsed()));
            }
        }
        let batch = self.shared.queue().next(limits.sessions);
        self.done = batch.is_none();
        batch
    }

    fn sign(&self, batch: &[Waiter]) -> Result<SignedBatch, BatchError> {
        let attester = &*self.shared.attester;
        let (report_data, tree) = match batch {
            [one] => (one.binder, None),
            many => {
                let tree = build_tree(many)?;
                (tree.report_data(), Some(tree))
            }
        };
        let quote = own_evidence::obtain_quote(attester, &report_data)?.into();
        let collateral = own_evidence::obtain_collateral(attester)?.map(Into::into);
        Ok(SignedBatch { collateral, quote, tree })
    }
}

impl Drop for Worker {
    /// A runtime that shuts down drops its tasks: the sessions that wait must not wait for ever.
    fn drop(&mut self) {
        if !self.done {
            let mut queue = self.shared.queue();
            queue.working = false;
            let left = (mem::take(&mut queue.together), mem::take(&mut queue.alone));
            drop(queue);
            drop(left);
        }
    }
}

fn build_tree(batch: &[Waiter]) -> Result<BatchTree, BatchError> {
    let mut salts = vec![0; batch.len() * SALT_BYTES];
    rand::fill(&mut salts).map_err(|_| BatchError::Randomness)?;
    let (salts, _) = salts.as_chunks::<SALT_BYTES>();
    let leaf = |(waiting, salt): (&Waiter, &_)| Leaf { binder: waiting.binder, salt: *salt };
    let leaves: Vec<Leaf> = batch.iter().zip(salts).map(leaf).collect();
    // The limits keep a batch within the sizes of a tree.
    BatchTree::new(&leaves).map_err(|_| BatchError::WorkerEnded)
}
