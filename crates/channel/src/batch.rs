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

/// Bounds of a [`QuoteBatcher`], with [`BatchLimits::default`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    /// The largest number of sessions under one quote, 1 to [`BATCH_MAX`].
    pub sessions: usize,
    /// The largest number of sessions that wait, not counting those whose quote is being made; the
    /// next one is refused with [`BatchError::Full`]. The default is eight full batches: at most a
    /// second of waiting.
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
    /// The longest allowed window: a longer one would exceed the time of a quote and gain nothing.
    pub const WINDOW_MAX: Duration = Duration::from_millis(20);

    fn check_bounds(&self) -> Result<(), ChannelError> {
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

/// The largest number of sessions that ask for GPU evidence at once: a driver answers one after the
/// other, so more would only hold threads. The others wait, each until its own deadline.
const GPU_IN_FLIGHT_MAX: usize = 8;

/// Obtains quotes for many sessions from one device. Clones share the queue: every server of a
/// device should have a clone of one.
#[derive(Clone)]
pub struct QuoteBatcher(Arc<BatcherState>);

/// A session's share of a quote.
#[derive(Clone, Debug)]
pub struct BatchedQuote {
    /// The endorsements that the attester has for the quote.
    pub collateral: Option<Arc<[u8]>>,
    /// The path from the session's binder to the report data that the quote signs; `None` if the
    /// quote signs the binder.
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

/// The counters of a [`QuoteBatcher`] since it was made, and the sessions that wait now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchCounts {
    /// Quotes requested from the attester.
    pub quotes: u64,
    /// Quotes that failed.
    pub failed: u64,
    /// Sessions under all quotes; divided by `quotes`, the mean size of a batch.
    pub sessions: u64,
    /// Sessions under the quote that most of them shared.
    pub largest: u64,
    /// Sessions refused because the queue was full.
    pub refused: u64,
    /// Sessions that gave up before their quote was requested.
    pub abandoned: u64,
    /// Sessions that wait at this moment.
    pub waiting: u64,
}

impl QuoteBatcher {
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
        limits.check_bounds()?;
        Ok(Self::with_valid_limits(attester, limits))
    }

    /// A quote that covers `report_data`, alone or through the path that comes with it.
    ///
    /// This needs a tokio runtime. Dropping the future frees the place in the queue.
    ///
    /// # Errors
    /// [`BatchError::Full`] or [`BatchError::Late`] if too many sessions wait,
    /// [`BatchError::Attester`] or [`BatchError::OwnEvidence`] if the attester fails or returns
    /// what no peer would read, [`BatchError::WorkerEnded`] outside a runtime or if the attester
    /// panicked.
    pub fn attest(
        &self,
        report_data: ReportData,
    ) -> impl Future<Output = Result<BatchedQuote, BatchError>> + Send + use<> {
        self.clone().wait_for_quote(report_data, QueueLane::Batch)
    }

    /// A quote over `report_data` itself, for a peer that reads no path.
    ///
    /// These sessions have a queue of their own. The device serves both queues in turn, so the
    /// sessions of the other queue wait for at most one such quote.
    ///
    /// # Errors
    /// As [`QuoteBatcher::attest`].
    pub fn attest_alone(
        &self,
        report_data: ReportData,
    ) -> impl Future<Output = Result<BatchedQuote, BatchError>> + Send + use<> {
        self.clone().wait_for_quote(report_data, QueueLane::Single)
    }

    /// The attester behind the queue.
    pub fn attester(&self) -> &Arc<dyn Attest> {
        &self.0.attester
    }

    /// Evidence of the attester's GPU over one session's `nonce`, if it has one. It is not shared
    /// between sessions: a relying party derives the nonce from its own session.
    pub(crate) async fn obtain_gpu_evidence(
        &self,
        nonce: [u8; 32],
    ) -> Result<Option<Vec<u8>>, BatchError> {
        let wanted = self.0.limits.waiting;
        let _place = self.0.gpu_places.try_acquire().map_err(|_| BatchError::Full { wanted })?;
        let turn =
            self.0.gpu_turns.clone().acquire_owned().await.map_err(|_| BatchError::WorkerEnded)?;
        let attester = self.0.attester.clone();
        let task = tokio::task::spawn_blocking(move || {
            // Held until the attester has answered, even if the session has given up on it.
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
        Self(Arc::new(BatcherState { attester, gpu_places, gpu_turns, limits, queue }))
    }

    async fn wait_for_quote(
        self,
        binder: ReportData,
        lane: QueueLane,
    ) -> Result<BatchedQuote, BatchError> {
        let wanted = self.0.limits.wait;
        let (_place, answer) = self.join_queue(binder, lane)?;
        match tokio::time::timeout(wanted, answer).await {
            Ok(Ok(share)) => share?.into_batched_quote(),
            Ok(Err(_)) => Err(BatchError::WorkerEnded),
            Err(_) => Err(BatchError::Late { wanted }),
        }
    }

    /// Takes a place in the queue, and starts a worker if none runs.
    fn join_queue(
        &self,
        binder: ReportData,
        lane: QueueLane,
    ) -> Result<(QueuePlace, oneshot::Receiver<ShareResult>), BatchError> {
        let runtime = Handle::try_current().map_err(|_| BatchError::WorkerEnded)?;
        let (sender, answer) = oneshot::channel();
        let mut queue = self.0.queue();
        let wanted = match lane {
            QueueLane::Batch => self.0.limits.waiting,
            QueueLane::Single => self.0.limits.waiting_alone,
        };
        if queue.lane(lane).len() >= wanted {
            queue.counts.refused += 1;
            return Err(BatchError::Full { wanted });
        }
        queue.last += 1;
        let number = queue.last;
        let waiting = WaitingSession { answer: sender, binder, since: Instant::now() };
        queue.lane(lane).insert(number, waiting);
        let idle = !mem::replace(&mut queue.working, true);
        drop(queue);
        if idle {
            let worker = QueueWorker { shared: self.0.clone(), done: false };
            runtime.spawn_blocking(move || worker.serve_queue());
        }
        Ok((QueuePlace { shared: self.0.clone(), lane, number }, answer))
    }
}

impl std::fmt::Debug for QuoteBatcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QuoteBatcher").field("limits", &self.0.limits).finish_non_exhaustive()
    }
}

struct BatcherState {
    attester: Arc<dyn Attest>,
    /// One permit for each session that waits for GPU evidence; as many as may wait for a quote.
    gpu_places: Semaphore,
    gpu_turns: Arc<Semaphore>,
    limits: BatchLimits,
    queue: Mutex<BatchQueue>,
}

impl BatcherState {
    /// The queue, also after a panic: nothing panics while the lock is held.
    fn queue(&self) -> MutexGuard<'_, BatchQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Clone, Copy)]
enum QueueLane {
    Batch,
    Single,
}

/// Sessions in order of arrival, keyed by arrival number so that one that gives up can be removed.
type WaitingSessions = BTreeMap<u64, WaitingSession>;

#[derive(Default)]
struct BatchQueue {
    together: WaitingSessions,
    alone: WaitingSessions,
    /// Whether the last quote was for a single session, so that the other lane is next.
    was_alone: bool,
    counts: BatchCounts,
    /// The number of the last arrival.
    last: u64,
    /// Whether a worker runs or is about to.
    working: bool,
}

impl BatchQueue {
    fn lane(&mut self, lane: QueueLane) -> &mut WaitingSessions {
        match lane {
            QueueLane::Batch => &mut self.together,
            QueueLane::Single => &mut self.alone,
        }
    }

    /// The next batch; `None` if no session waits, and then the worker ends.
    fn take_batch(&mut self, most: usize) -> Option<WaitingSessions> {
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

struct WaitingSession {
    answer: oneshot::Sender<ShareResult>,
    binder: ReportData,
    since: Instant,
}

/// A place in the queue, freed when the session gives up.
struct QueuePlace {
    shared: Arc<BatcherState>,
    lane: QueueLane,
    number: u64,
}

impl Drop for QueuePlace {
    fn drop(&mut self) {
        let mut queue = self.shared.queue();
        let gone = queue.lane(self.lane).remove(&self.number);
        queue.counts.abandoned += u64::from(gone.is_some());
    }
}

type ShareResult = Result<QuoteShare, BatchError>;

/// A session's part of a signed batch; each session copies its own path out of the tree.
struct QuoteShare {
    index: usize,
    signed: Arc<SignedBatch>,
}

struct SignedBatch {
    collateral: Option<Arc<[u8]>>,
    quote: Arc<[u8]>,
    /// `None` if the quote is over the one binder.
    tree: Option<BatchTree>,
}

impl QuoteShare {
    fn into_batched_quote(self) -> Result<BatchedQuote, BatchError> {
        let SignedBatch { collateral, quote, tree } = &*self.signed;
        let path = match tree {
            // A share whose path is not in the tree would prove nothing.
            Some(tree) => Some(tree.path(self.index).ok_or(BatchError::WorkerEnded)?),
            None => None,
        };
        Ok(BatchedQuote { collateral: collateral.clone(), path, quote: quote.clone() })
    }
}

/// Serves the queue on a thread that may block, and ends when no session waits.
struct QueueWorker {
    shared: Arc<BatcherState>,
    /// Whether the worker has ended, so that the next session starts another one.
    done: bool,
}

impl QueueWorker {
    fn serve_queue(mut self) {
        while let Some(batch) = self.next_batch() {
            let batch: Vec<WaitingSession> = batch.into_values().collect();
            // The attester is foreign code: its panic must end this batch only.
            let attest_batch = || self.attest_batch(&batch);
            let signed = catch_unwind(AssertUnwindSafe(attest_batch))
                .unwrap_or(Err(BatchError::WorkerEnded));
            self.shared.queue().counts.failed += u64::from(signed.is_err());
            let signed = signed.map(Arc::new);
            for (index, waiting) in batch.into_iter().enumerate() {
                let share = signed.clone().map(|signed| QuoteShare { index, signed });
                // A session that has given up since then does not receive it.
                let _ = waiting.answer.send(share);
            }
        }
    }

    fn next_batch(&mut self) -> Option<WaitingSessions> {
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
        let batch = self.shared.queue().take_batch(limits.sessions);
        self.done = batch.is_none();
        batch
    }

    fn attest_batch(&self, batch: &[WaitingSession]) -> Result<SignedBatch, BatchError> {
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

impl Drop for QueueWorker {
    /// A runtime that shuts down drops its tasks; the sessions that still wait then get an error.
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

fn build_tree(batch: &[WaitingSession]) -> Result<BatchTree, BatchError> {
    let mut salts = vec![0; batch.len() * SALT_BYTES];
    rand::fill(&mut salts).map_err(|_| BatchError::Randomness)?;
    let (salts, _) = salts.as_chunks::<SALT_BYTES>();
    let leaf =
        |(waiting, salt): (&WaitingSession, &_)| Leaf { binder: waiting.binder, salt: *salt };
    let leaves: Vec<Leaf> = batch.iter().zip(salts).map(leaf).collect();
    // The limits keep a batch within the sizes of a tree.
    BatchTree::new(&leaves).map_err(|_| BatchError::WorkerEnded)
}
