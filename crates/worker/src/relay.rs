//! Adapters at this end: the worker asks for deltas, a thread of each generation answers.

use std::{
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, SyncSender},
    },
    thread,
};

use confide_engine::{AdapterReport, EngineError, OnLoss};
use confide_lora::{Adapt, AdaptError, Deltas, Projection, Report, Reservation, Site};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    feed::Feed,
    message::{self, Need},
};

/// Threads that answer for an adapter at once: one for each running generation, and some whose
/// generation has ended while their host still computes.
pub(crate) const RELAYS_MAX: usize = 512;

/// An adapter of this process at work in one generation.
pub(crate) struct Relay {
    needs: SyncSender<Need>,
    account: Arc<Account>,
}

/// An adapter that is applied in this process.
#[derive(Clone)]
pub(crate) struct RelayedAdapter {
    pub(crate) name: String,
    pub(crate) adapter: Arc<dyn Adapt>,
    pub(crate) on_loss: OnLoss,
}

#[derive(Default)]
struct Account {
    state: Mutex<RelayState>,
    /// Whether the worker waits for an answer.
    is_waiting: AtomicBool,
}

#[derive(Default)]
struct RelayState {
    report: Report,
    lost: Option<AdaptError>,
}

impl Account {
    fn state(&self) -> MutexGuard<'_, RelayState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Relay {
    /// Starts the thread for a generation of `tokens`: those of its prompt, and those that the
    /// request asked for, if it did. The thread ends with the relay, once its host has answered.
    pub(crate) fn start(
        relayed: &RelayedAdapter,
        tokens: (u32, Option<u32>),
        feed: &Arc<Feed>,
        frames: SyncSender<Vec<u8>>,
        permits: &Arc<Semaphore>,
    ) -> io::Result<Self> {
        let permit = Arc::clone(permits)
            .try_acquire_owned()
            .map_err(|_| io::Error::other(format!("{RELAYS_MAX} adapters answer already")))?;
        let (needs, received) = mpsc::sync_channel(1);
        let account = Arc::<Account>::default();
        let thread = Thread {
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

    /// Hands a need to the thread; `false` if the one before is not answered yet.
    pub(crate) fn answer(&self, need: Need) -> bool {
        !self.account.is_waiting.swap(true, Ordering::AcqRel) && self.needs.try_send(need).is_ok()
    }

    /// Whether the worker waits for an answer.
    pub(crate) fn is_asked(&self) -> bool {
        self.account.is_waiting.load(Ordering::Acquire)
    }

    pub(crate) fn report(&self, relayed: &RelayedAdapter) -> AdapterReport {
        let state = self.account.state();
        AdapterReport {
            report: state.report.clone(),
            guarantee: relayed.adapter.guarantee(),
            lost: state.lost.clone(),
        }
    }

    /// The error that ends the generation; `None` unless the adapter was lost and must not be.
    pub(crate) fn failure(&self, relayed: &RelayedAdapter) -> Option<EngineError> {
        let error = self.account.state().lost.clone()?;
        let name = relayed.name.clone();
        (relayed.on_loss == OnLoss::Fail).then_some(EngineError::Adapter { name, error })
    }
}

/// Whether the outputs of a need have the widths of the adapter's sites.
pub(crate) fn fits(adapter: &dyn Adapt, need: &Need) -> bool {
    let rows = need.rows.len() / need.width;
    let length = |projection: &Projection| {
        let site = Site { layer: need.layer, projection: *projection };
        let width = adapter.sites().get(&site)?;
        let reads = projection.input() == need.source && width.input == need.width;
        reads.then_some(width.output * rows)
    };
    let all: Option<usize> = need.outputs.iter().map(length).sum();
    all == Some(need.values.len())
}

struct Thread {
    relayed: RelayedAdapter,
    /// Tokens of the prompt, and those that the request asked for.
    tokens: (u32, Option<u32>),
    /// Held for as long as the generation runs.
    _reservation: Reservation,
    deltas: Option<Box<dyn Deltas>>,
    account: Arc<Account>,
    feed: Arc<Feed>,
    frames: SyncSender<Vec<u8>>,
    /// Given back when the thread ends.
    _permit: OwnedSemaphorePermit,
}

impl Thread {
    fn run(mut self, received: &Receiver<Need>) {
        while let Ok(mut need) = received.recv() {
            let added = self.apply(&mut need);
            let frame = message::deltas(&need, added.as_ref().map(|()| need.values.as_slice()));
            self.account.is_waiting.store(false, Ordering::Release);
            // The supervisor deals with a connection that takes no more frames.
            if self.frames.try_send(frame).is_err() {
                return;
            }
        }
    }

    /// Adds the adapter's part to the need's values. Once it is lost and the base model may answer,
    /// they stay as they are.
    fn apply(&mut self, need: &mut Need) -> Result<(), AdaptError> {
        if self.account.state().lost.is_some() {
            return Ok(());
        }
        let done = self.add(need);
        let Err(error) = done else { return Ok(()) };
        self.account.state().lost = Some(error.clone());
        match self.relayed.on_loss {
            OnLoss::Fail => Err(error),
            OnLoss::Base => {
                // The event comes before the first token without the adapter.
                self.feed.adapter_lost(error);
                Ok(())
            }
        }
    }

    fn add(&mut self, need: &mut Need) -> Result<(), AdaptError> {
        if self.deltas.is_none() {
            let (prompt, completion) = self.tokens;
            self._reservation = self.relayed.adapter.reserve(prompt, completion)?;
            self.deltas = Some(self.relayed.adapter.open()?);
        }
        let Some(deltas) = &mut self.deltas else { return Ok(()) };
        let rows = need.rows.len() / need.width;
        let mut rest = need.values.as_mut_slice();
        let mut outputs = Vec::with_capacity(need.outputs.len());
        for projection in &need.outputs {
            let site = Site { layer: need.layer, projection: *projection };
            let width = self.relayed.adapter.sites().get(&site).map_or(0, |width| width.output);
            let (output, after) = std::mem::take(&mut rest).split_at_mut(width * rows);
            outputs.push((*projection, output));
            rest = after;
        }
        let added = deltas.add(need.layer, need.source, &need.rows, &mut outputs);
        self.account.state().report = deltas.report();
        added
    }
}
