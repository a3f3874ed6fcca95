//! One quote for all the sessions that wait for one.
//!
//! A device makes quotes one after the other, about 39 ms each. While it makes one, the binders of
//! new sessions are collected; the next quote is over the root of a tree of all of them, and each
//! session gets its path ([`confide_evidence::batch`]). An idle device serves a lone session at
//! once, over its own binder and without a path; after a shared quote it waits until arrivals
//! pause ([`crate::batch_start`]).

use std::{
    collections::BTreeMap,
    future::Future,
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
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

use crate::{
    batch_error::BatchError,
    batch_start::{Arrivals, StartTimes},
    error::ChannelError,
    own_evidence,
};

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
    /// The longest wait of a session, from its binder to its quote.
    pub wait: Duration,
}

impl BatchLimits {
    fn check_bounds(&self) -> Result<(), ChannelError> {
        let refuse = |option, wanted, got| Err(ChannelError::Option { option, wanted, got });
        if !(1..=BATCH_MAX).contains(&self.sessions) {
            return refuse("batch sessions", "1 to 1024", self.sessions.to_string());
        }
        if self.waiting == 0 || self.waiting_alone == 0 {
            return refuse("batch waiting", "at least 1", "0".into());
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
        Self::with_start_times(attester, BatchLimits::default(), StartTimes::default())
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
        Ok(Self::with_start_times(attester, limits, StartTimes::default()))
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
        let waiting = queue.batch_lane.len() + queue.single_lane.len();
        BatchCounts { waiting: waiting as u64, ..queue.counts }
    }

    /// A queue with limits within their bounds.
    fn with_start_times(
        attester: Arc<dyn Attest>,
        limits: BatchLimits,
        start_times: StartTimes,
    ) -> Self {
        let gpu_turns = Arc::new(Semaphore::new(GPU_IN_FLIGHT_MAX));
        let gpu_places = Semaphore::new(limits.waiting.min(Semaphore::MAX_PERMITS));
        Self(Arc::new(BatcherState {
            attester,
            gpu_places,
            gpu_turns,
            limits,
            batch_full: Condvar::new(),
            queue: Mutex::default(),
            start_times,
        }))
    }

    async fn wait_for_quote(
        self,
        binder: ReportData,
        lane: QueueLane,
    ) -> Result<BatchedQuote, BatchError> {
        let wanted = self.0.limits.wait;
        let (mut place, answer) = self.join_queue(binder, lane)?;
        let answer = tokio::time::timeout(wanted, answer).await;
        place.is_taken = answer.is_ok();
        match answer {
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
        queue.last_number += 1;
        let number = queue.last_number;
        let since = Instant::now();
        queue.lane(lane).insert(number, WaitingSession { answer: sender, binder, since });
        let idle = !mem::replace(&mut queue.has_worker, true);
        let full = queue.batch_lane.len() == self.0.limits.sessions;
        drop(queue);
        if idle {
            let worker =
                QueueWorker { shared: self.0.clone(), has_ended: false, free_since: since };
            runtime.spawn_blocking(move || worker.serve_queue());
        } else if full {
            self.0.batch_full.notify_one();
        }
        Ok((QueuePlace { shared: self.0.clone(), lane, number, is_taken: false }, answer))
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
    /// Wakes a worker that waits for more sessions when the batch has its largest size.
    batch_full: Condvar,
    start_times: StartTimes,
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
    batch_lane: WaitingSessions,
    single_lane: WaitingSessions,
    /// Whether the last quote was for the lane of single sessions, so that the other lane is next.
    last_was_single: bool,
    counts: BatchCounts,
    /// The number of sessions under the last quote.
    last_batch: usize,
    /// The number of the last arrival.
    last_number: u64,
    /// Whether a worker runs or is about to.
    has_worker: bool,
}

impl BatchQueue {
    fn lane(&mut self, lane: QueueLane) -> &mut WaitingSessions {
        match lane {
            QueueLane::Batch => &mut self.batch_lane,
            QueueLane::Single => &mut self.single_lane,
        }
    }

    /// When a device that is free since `free_since` starts on the next quote; `None` if it need not
    /// wait: the batch is full, this lane is empty, or the other one is not. A quote for the other
    /// lane gives this one time enough to collect.
    fn next_start(
        &self,
        limits: &BatchLimits,
        times: StartTimes,
        free_since: Instant,
    ) -> Option<Instant> {
        let (_, first) = self.batch_lane.first_key_value()?;
        let (_, last) = self.batch_lane.last_key_value()?;
        let count = self.batch_lane.len();
        if count >= limits.sessions || !self.single_lane.is_empty() {
            return None;
        }
        let waiting = Arrivals { count, first: first.since, last: last.since };
        Some(times.start_instant(self.last_batch, free_since, waiting))
    }

    /// The next batch; `None` if no session waits, and then the worker ends.
    fn take_batch(&mut self, most: usize) -> Option<WaitingSessions> {
        self.last_was_single = match (self.batch_lane.is_empty(), self.single_lane.is_empty()) {
            (true, true) => {
                self.has_worker = false;
                return None;
            }
            (false, true) => false,
            (true, false) => true,
            (false, false) => !self.last_was_single,
        };
        let (lane, most) = match self.last_was_single {
            true => (&mut self.single_lane, 1),
            false => (&mut self.batch_lane, most),
        };
        let later = lane.keys().nth(most).copied();
        let later = later.map(|number| lane.split_off(&number)).unwrap_or_default();
        let batch = mem::replace(lane, later);
        self.last_batch = batch.len();
        let size = self.last_batch as u64;
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
    /// Whether the worker has taken the session out of the queue. The lock is then spared: when a
    /// batch has been answered, its sessions would contend for it with those that arrive.
    is_taken: bool,
}

impl Drop for QueuePlace {
    fn drop(&mut self) {
        if self.is_taken {
            return;
        }
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
    has_ended: bool,
    /// Since when the device is free: the last batch has been answered, or the first session came.
    free_since: Instant,
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
            self.free_since = Instant::now();
        }
    }

    /// Waits until the device should start, and takes the batch; `None` if no session waits.
    fn next_batch(&mut self) -> Option<WaitingSessions> {
        let shared = &self.shared;
        let mut queue = shared.queue();
        while let Some(start) =
            queue.next_start(&shared.limits, shared.start_times, self.free_since)
        {
            let left = start.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let woken = shared.batch_full.wait_timeout(queue, left);
            (queue, _) = woken.unwrap_or_else(PoisonError::into_inner);
        }
        let batch = queue.take_batch(shared.limits.sessions);
        self.has_ended = batch.is_none();
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
        if !self.has_ended {
            let mut queue = self.shared.queue();
            queue.has_worker = false;
            let left = (mem::take(&mut queue.batch_lane), mem::take(&mut queue.single_lane));
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

#[cfg(test)]
mod tests {
    use confide_evidence::AttestError;
    use futures_util::future::join_all;

    use super::*;

    struct Repeater;

    impl Attest for Repeater {
        fn attest(&self, report_data: &ReportData) -> Result<Vec<u8>, AttestError> {
            Ok(report_data.as_ref().to_vec())
        }

        fn collateral(&self) -> Option<Vec<u8>> {
            None
        }

        fn is_simulated(&self) -> bool {
            true
        }
    }

    #[tokio::test]
    async fn after_a_shared_quote_the_device_waits_for_more_until_the_batch_is_full() {
        let limits = BatchLimits { sessions: 3, ..BatchLimits::default() };
        // Longer than the test may take, so that only a full batch ends the wait.
        let times = StartTimes { gap: LONG, longest: LONG };
        let batcher = QuoteBatcher::with_start_times(Arc::new(Repeater), limits, times);
        batcher.0.queue().last_batch = 2;
        let waiting = [1, 2, 3].map(|n| tokio::spawn(batcher.attest(ReportData([n; 64]))));
        for quote in join_all(waiting).await {
            assert_eq!(quote.unwrap().unwrap().sessions(), 3);
        }
        assert_eq!(batcher.counts().quotes, 1);
    }

    #[tokio::test]
    async fn after_a_lone_session_the_device_waits_for_nobody() {
        let times = StartTimes { gap: LONG, longest: LONG };
        let limits = BatchLimits::default();
        let batcher = QuoteBatcher::with_start_times(Arc::new(Repeater), limits, times);
        for n in [1, 2] {
            assert_eq!(batcher.attest(ReportData([n; 64])).await.unwrap().sessions(), 1);
        }
    }

    const LONG: Duration = Duration::from_secs(60);
}
