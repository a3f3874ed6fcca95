//! Adapters at this end: the worker requests deltas, and one thread for each generation answers.

use std::{
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, SyncSender},
    },
    thread,
};

use confide_engine::{AdapterLossPolicy, AdapterReport, EngineError};
use confide_lora::{
    AdaptError, DeltaProvider, DeltaReport, DeltaSession, Projection, ProjectionSite, Reservation,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    feed::EventFeed,
    message::{self, DeltaRequest},
};

/// The largest number of relay threads: one for each running generation, and some whose generation
/// has ended while their host still computes.
pub(crate) const DELTA_THREADS_MAX: usize = 512;

/// The thread that applies an adapter of this process in one generation.
pub(crate) struct DeltaThreadHandle {
    needs: SyncSender<DeltaRequest>,
    account: Arc<SharedDeltaState>,
}

/// An adapter that is applied in this process.
#[derive(Clone)]
pub(crate) struct LocalAdapter {
    pub(crate) name: String,
    pub(crate) adapter: Arc<dyn DeltaProvider>,
    pub(crate) on_loss: AdapterLossPolicy,
}

#[derive(Default)]
struct SharedDeltaState {
    state: Mutex<DeltaState>,
    /// Whether the worker waits for an answer.
    is_waiting: AtomicBool,
}

#[derive(Default)]
struct DeltaState {
    report: DeltaReport,
    lost: Option<AdaptError>,
}

impl SharedDeltaState {
    fn lock_state(&self) -> MutexGuard<'_, DeltaState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DeltaThreadHandle {
    /// Starts the thread for a generation. `tokens` are the numbers of tokens of the prompt and, if
    /// the request limits it, of the completion. The thread ends after the relay is dropped, once
    /// its host has answered.
    pub(crate) fn start(
        relayed: &LocalAdapter,
        tokens: (u32, Option<u32>),
        feed: &Arc<EventFeed>,
        frames: SyncSender<Vec<u8>>,
        permits: &Arc<Semaphore>,
    ) -> io::Result<Self> {
        let permit = Arc::clone(permits).try_acquire_owned().map_err(|_| {
            io::Error::other(format!("{DELTA_THREADS_MAX} relay threads already run"))
        })?;
        let (needs, received) = mpsc::sync_channel(1);
        let account = Arc::<SharedDeltaState>::default();
        let thread = DeltaThread {
            relayed: relayed.clone(),
            tokens,
            _reservation: Reservation::UNLIMITED,
            deltas: None,
            account: Arc::clone(&account),
            feed: Arc::clone(feed),
            frames,
            _permit: permit,
        };
        thread::Builder::new().name("worker-relay".into()).spawn(move || thread.run(&received))?;
        Ok(Self { needs, account })
    }

    /// Passes a request to the thread; returns `false` if the previous one is not answered yet.
    pub(crate) fn queue_request(&self, need: DeltaRequest) -> bool {
        !self.account.is_waiting.swap(true, Ordering::AcqRel) && self.needs.try_send(need).is_ok()
    }

    /// Whether the worker waits for an answer.
    pub(crate) fn is_answer_pending(&self) -> bool {
        self.account.is_waiting.load(Ordering::Acquire)
    }

    pub(crate) fn report(&self, relayed: &LocalAdapter) -> AdapterReport {
        let state = self.account.lock_state();
        AdapterReport {
            report: state.report.clone(),
            guarantee: relayed.adapter.guarantee(),
            lost: state.lost.clone(),
        }
    }

    /// The error that ends the generation; `None` if the adapter works, or if the base model may
    /// continue.
    pub(crate) fn failure(&self, relayed: &LocalAdapter) -> Option<EngineError> {
        let error = self.account.lock_state().lost.clone()?;
        let name = relayed.name.clone();
        (relayed.on_loss == AdapterLossPolicy::Fail).then_some(EngineError::Adapter { name, error })
    }
}

/// Whether the outputs of a request have the widths of the adapter's sites.
pub(crate) fn has_adapter_widths(adapter: &dyn DeltaProvider, need: &DeltaRequest) -> bool {
    let rows = need.rows.len() / need.width;
    let length = |projection: &Projection| {
        let site = ProjectionSite { layer: need.layer, projection: *projection };
        let width = adapter.sites().get(&site)?;
        let reads = projection.input() == need.source && width.input == need.width;
        reads.then_some(width.output * rows)
    };
    let all: Option<usize> = need.outputs.iter().map(length).sum();
    all == Some(need.values.len())
}

struct DeltaThread {
    relayed: LocalAdapter,
    /// The numbers of tokens of the prompt and, if limited, of the completion.
    tokens: (u32, Option<u32>),
    /// The reservation of the adapter's budget, held while the generation runs.
    _reservation: Reservation,
    deltas: Option<Box<dyn DeltaSession>>,
    account: Arc<SharedDeltaState>,
    feed: Arc<EventFeed>,
    frames: SyncSender<Vec<u8>>,
    /// The permit of this thread, returned when it ends.
    _permit: OwnedSemaphorePermit,
}

impl DeltaThread {
    fn run(mut self, received: &Receiver<DeltaRequest>) {
        while let Ok(mut need) = received.recv() {
            let added = self.apply_adapter(&mut need);
            let frame =
                message::encode_deltas(&need, added.as_ref().map(|()| need.values.as_slice()));
            self.account.is_waiting.store(false, Ordering::Release);
            // The supervisor handles a connection that accepts no more frames.
            if self.frames.try_send(frame).is_err() {
                return;
            }
        }
    }

    /// Adds the adapter's deltas to the values of the request. If the adapter is lost and the base
    /// model may answer, the values stay unchanged.
    fn apply_adapter(&mut self, need: &mut DeltaRequest) -> Result<(), AdaptError> {
        if self.account.lock_state().lost.is_some() {
            return Ok(());
        }
        let done = self.add_deltas(need);
        let Err(error) = done else { return Ok(()) };
        self.account.lock_state().lost = Some(error.clone());
        match self.relayed.on_loss {
            AdapterLossPolicy::Fail => Err(error),
            AdapterLossPolicy::Base => {
                // The event comes before the first token without the adapter.
                self.feed.push_adapter_lost(error);
                Ok(())
            }
        }
    }

    fn add_deltas(&mut self, need: &mut DeltaRequest) -> Result<(), AdaptError> {
        if self.deltas.is_none() {
            let (prompt, completion) = self.tokens;
            self._reservation = self.relayed.adapter.reserve_answers(prompt, completion)?;
            self.deltas = Some(self.relayed.adapter.open_session()?);
        }
        let Some(deltas) = &mut self.deltas else { return Ok(()) };
        let rows = need.rows.len() / need.width;
        let mut rest = need.values.as_mut_slice();
        let mut outputs = Vec::with_capacity(need.outputs.len());
        for projection in &need.outputs {
            let site = ProjectionSite { layer: need.layer, projection: *projection };
            let width = self.relayed.adapter.sites().get(&site).map_or(0, |width| width.output);
            let (output, after) = std::mem::take(&mut rest).split_at_mut(width * rows);
            outputs.push((*projection, output));
            rest = after;
        }
        let added = deltas.add_deltas(need.layer, need.source, &need.rows, &mut outputs);
        self.account.lock_state().report = deltas.report();
        added
    }
}
