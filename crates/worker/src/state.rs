//! What runs in the worker now, and what becomes of it.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicBool, mpsc::SyncSender},
    time::Instant,
};

use confide_engine::text::Text;
use confide_engine::{EngineError, FinishReason};
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::{
    adapter::{LoadedAdapter, Placement},
    feed::{End, Feed, TOKENS_QUEUED_MAX},
    message::{self, AdapterAnswer, Fault, FromWorker, GenerationEnd, Need, Reason, Welcome},
    options::Deadlines,
    relay::{self, RELAYS_MAX, Relay},
    report,
};

/// The state that the engine, its supervisor and its generations share.
pub(crate) struct Shared {
    pub(crate) deadlines: Deadlines,
    pub(crate) name: String,
    /// Held during a load, an unload or a restart, of which one runs at a time.
    pub(crate) change: Mutex<()>,
    /// Permits for the threads that answer for adapters at this end.
    pub(crate) relays: Arc<Semaphore>,
    pub(crate) stopping: AtomicBool,
    pub(crate) text: Arc<Text>,
    pub(crate) vocabulary: u32,
    pub(crate) welcome: Welcome,
    state: Mutex<WorkerState>,
}

pub(crate) struct WorkerState {
    pub(crate) link: Link,
    /// The adapters that are loaded, in the order of their loading.
    pub(crate) adapters: Vec<Arc<LoadedAdapter>>,
    /// The adapter that is being loaded or unloaded, and where its answer goes.
    pub(crate) changing: Option<(String, SyncSender<AdapterAnswer>)>,
    pub(crate) statuses: VecDeque<SyncSender<Value>>,
    running: HashMap<u32, RunningGeneration>,
    next_id: u32,
    /// When the worker was last heard, or last had nothing to say.
    quiet_since: Instant,
}

/// The connection to the worker.
pub(crate) enum Link {
    Connected(SyncSender<Vec<u8>>),
    /// Why there is no connection.
    Disconnected(String),
}

/// A generation that the worker was asked for and has not ended.
pub(crate) struct RunningGeneration {
    feed: Arc<Feed>,
    prompt_tokens: u32,
    completion: Option<u32>,
    adapter: Option<Arc<LoadedAdapter>>,
    relay: Option<Relay>,
    requested_at: Instant,
    begun: bool,
    cancelled: Option<Instant>,
    /// Tokens that the worker may still send.
    left: u32,
}

impl Shared {
    pub(crate) fn new(
        welcome: Welcome,
        text: Arc<Text>,
        name: String,
        deadlines: Deadlines,
        frames: SyncSender<Vec<u8>>,
    ) -> Self {
        let state = WorkerState {
            link: Link::Connected(frames),
            adapters: Vec::new(),
            changing: None,
            statuses: VecDeque::new(),
            running: HashMap::new(),
            next_id: 1,
            quiet_since: Instant::now(),
        };
        Self {
            deadlines,
            name,
            change: Mutex::default(),
            relays: Arc::new(Semaphore::new(RELAYS_MAX)),
            stopping: AtomicBool::new(false),
            vocabulary: text.vocabulary() as u32,
            text,
            welcome,
            state: Mutex::new(state),
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, WorkerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the worker that nobody waits for a generation any longer.
    pub(crate) fn cancel(&self, id: u32) {
        self.state().cancel(id);
    }

    /// Handles a message of the worker.
    ///
    /// # Errors
    /// The message that was not expected: the connection cannot be used any longer.
    pub(crate) fn receive(&self, message: FromWorker) -> Result<(), String> {
        let mut state = self.state();
        state.quiet_since = Instant::now();
        match message {
            FromWorker::Tokens(tokens) => tokens
                .into_iter()
                .try_for_each(|(id, token)| state.token(id, token, self.vocabulary)),
            FromWorker::End(ended) => {
                let running = state.remove_running(ended.id)?;
                drop(state);
                running.end(*ended);
                Ok(())
            }
            FromWorker::Refused { id, error } => {
                let limit = (self.welcome.slots + self.welcome.queue) as usize;
                let running = state.remove_running(id)?;
                drop(state);
                running.feed.end(End::Failed(running.refusal(&error, limit)));
                Ok(())
            }
            FromWorker::Need(need) => state.need(need, &self.relays),
            FromWorker::Adapter(answer) => {
                let (wanted, sender) =
                    state.changing.take().ok_or("an adapter nobody asked for")?;
                if wanted != answer.name {
                    let got = message::printable(&answer.name);
                    return Err(format!("adapter {got:?} in place of {wanted:?}"));
                }
                // The caller may have stopped waiting.
                let _ = sender.try_send(answer);
                Ok(())
            }
            FromWorker::Status(status) => {
                let sender = state.statuses.pop_front().ok_or("a status nobody asked for")?;
                let _ = sender.try_send(status);
                Ok(())
            }
            FromWorker::Welcome(_) => Err("a second welcome".into()),
        }
    }

    /// Ends generations that take too long.
    ///
    /// # Errors
    /// Why the worker itself is taken for dead.
    pub(crate) fn check_time(&self, now: Instant) -> Result<(), String> {
        let limits = &self.deadlines;
        let mut state = self.state();
        let is_late = |running: &RunningGeneration| {
            let since = running.cancelled;
            since.is_some_and(|since| now.saturating_duration_since(since) > limits.cancel)
        };
        if state.running.values().any(is_late) {
            let limit = limits.cancel.as_secs_f32();
            return Err(format!("it did not end a cancelled generation within {limit} s"));
        }
        let is_waiting =
            |running: &RunningGeneration| running.cancelled.is_none() && !running.is_asked();
        let is_slow = |running: &RunningGeneration| {
            let waited = now.saturating_duration_since(running.requested_at);
            is_waiting(running) && !running.begun && waited > limits.first_token
        };
        let slow = state.running.iter().filter(|(_, running)| is_slow(running));
        let slow: Vec<u32> = slow.map(|(id, _)| *id).collect();
        for id in slow {
            let limit = limits.first_token.as_secs_f32();
            state.fail(id, format!("no first token within {limit} s"));
        }
        if state.running.is_empty() || state.running.values().any(RunningGeneration::is_asked) {
            state.quiet_since = now;
            return Ok(());
        }
        let begun = state.running.values().any(|running| running.begun);
        let limit = if begun { limits.silence } else { limits.first_token };
        if now.saturating_duration_since(state.quiet_since) > limit {
            return Err(format!("it was silent for {} s", limit.as_secs_f32()));
        }
        Ok(())
    }

    /// Marks the worker as disconnected. Running generations end once the reason is complete.
    pub(crate) fn disconnect(&self, reason: &str) {
        self.state().link = Link::Disconnected(reason.into());
    }

    /// Ends all running generations.
    pub(crate) fn fail_all(&self, reason: &str) {
        let mut state = self.state();
        state.link = Link::Disconnected(reason.into());
        let running: Vec<RunningGeneration> =
            state.running.drain().map(|(_, running)| running).collect();
        state.changing = None;
        state.statuses.clear();
        drop(state);
        for generation in running {
            let error = EngineError::Unavailable { reason: reason.into() };
            generation.feed.end(End::Failed(error));
        }
    }

    pub(crate) fn reconnect(&self, frames: SyncSender<Vec<u8>>) {
        let mut state = self.state();
        state.quiet_since = Instant::now();
        state.link = Link::Connected(frames);
    }
}

/// A generation that is to be started.
pub(crate) struct GenerationOrder<'a> {
    pub(crate) generate: message::Generate<'a>,
    pub(crate) adapter: Option<Arc<LoadedAdapter>>,
    pub(crate) limit: usize,
    /// Tokens that the request asked for; `None` if it set no limit.
    pub(crate) completion: Option<u32>,
}

impl WorkerState {
    /// The frames of the connection to the worker.
    fn frames(&self) -> Result<&SyncSender<Vec<u8>>, EngineError> {
        match &self.link {
            Link::Connected(frames) => Ok(frames),
            Link::Disconnected(reason) => Err(EngineError::Unavailable { reason: reason.clone() }),
        }
    }

    /// Sends a frame to the worker.
    pub(crate) fn send(&self, frame: Vec<u8>) -> Result<(), EngineError> {
        self.frames()?.try_send(frame).map_err(|_| {
            let reason = "worker: it does not read what is written".into();
            EngineError::Unavailable { reason }
        })
    }

    /// Sends a request; returns its id and the feed of its events.
    pub(crate) fn start(
        &mut self,
        order: GenerationOrder<'_>,
    ) -> Result<(u32, Arc<Feed>), EngineError> {
        self.frames()?;
        if self.running.len() >= order.limit {
            return Err(EngineError::QueueFull { limit: order.limit });
        }
        let id = self.free_id();
        let generate = message::Generate { id, ..order.generate };
        let frame = message::generate(&generate).ok_or_else(|| EngineError::Prompt {
            reason: format!("{} tokens do not fit a frame", generate.ids.len()),
        })?;
        let feed = Arc::<Feed>::default();
        let now = Instant::now();
        self.send(frame)?;
        if self.running.is_empty() {
            self.quiet_since = now;
        }
        let running = RunningGeneration {
            feed: Arc::clone(&feed),
            prompt_tokens: generate.ids.len() as u32,
            completion: order.completion,
            adapter: order.adapter,
            relay: None,
            requested_at: now,
            begun: false,
            cancelled: None,
            left: generate.max_tokens,
        };
        self.running.insert(id, running);
        Ok((id, feed))
    }

    fn free_id(&mut self) -> u32 {
        loop {
            let id = self.next_id;
            self.next_id = self.next_id.wrapping_add(1);
            if !self.running.contains_key(&id) {
                return id;
            }
        }
    }

    fn cancel(&mut self, id: u32) {
        let Some(running) = self.running.get_mut(&id) else { return };
        if running.cancelled.is_none() {
            running.cancelled = Some(Instant::now());
            if let Link::Connected(frames) = &self.link {
                let _ = frames.try_send(message::cancel(id));
            }
        }
    }

    /// Fails a generation that the worker still has.
    fn fail(&mut self, id: u32, reason: String) {
        if let Some(running) = self.running.get(&id) {
            running.feed.end(End::Failed(EngineError::failure(reason)));
        }
        self.cancel(id);
    }

    /// Removes a generation that has ended.
    fn remove_running(&mut self, id: u32) -> Result<RunningGeneration, String> {
        self.running.remove(&id).ok_or_else(|| format!("an end of generation {id}: none runs"))
    }

    fn token(&mut self, id: u32, token: u32, vocabulary: u32) -> Result<(), String> {
        let Some(running) = self.running.get_mut(&id) else {
            return Err(format!("a token for generation {id}: none runs"));
        };
        running.left = running
            .left
            .checked_sub(1)
            .ok_or_else(|| format!("generation {id} has more tokens than were asked for"))?;
        if token >= vocabulary {
            return Err(format!("token {token}: wanted one below {vocabulary}"));
        }
        running.begun = true;
        if running.cancelled.is_none() && !running.feed.token(token) {
            self.fail(id, format!("its reader is {TOKENS_QUEUED_MAX} tokens behind"));
        }
        Ok(())
    }

    fn need(&mut self, need: Need, relays: &Arc<Semaphore>) -> Result<(), String> {
        let Link::Connected(frames) = &self.link else { return Ok(()) };
        let id = need.id;
        let Some(running) = self.running.get_mut(&id) else {
            return Err(format!("a need of generation {id}: none runs"));
        };
        if running.cancelled.is_some() {
            return Ok(());
        }
        let relayed = match running.adapter.as_deref().map(|loaded| &loaded.placement) {
            Some(Placement::Relay(relayed)) => relayed,
            _ => return Err(format!("a need of generation {id}: its adapter is not here")),
        };
        if !relay::fits(&*relayed.adapter, &need) {
            return Err(format!("a need of generation {id} that is not of its adapter's widths"));
        }
        if running.relay.is_none() {
            let tokens = (running.prompt_tokens, running.completion);
            match Relay::start(relayed, tokens, &running.feed, frames.clone(), relays) {
                Ok(relay) => running.relay = Some(relay),
                Err(error) => {
                    self.fail(id, format!("adapter: {error}"));
                    return Ok(());
                }
            }
        }
        if !running.relay.as_ref().is_some_and(|relay| relay.answer(need)) {
            return Err(format!("a second need of generation {id} before the first was answered"));
        }
        Ok(())
    }
}

impl RunningGeneration {
    fn is_asked(&self) -> bool {
        self.relay.as_ref().is_some_and(Relay::is_asked)
    }

    fn end(self, ended: GenerationEnd) {
        let reason = match ended.reason {
            Reason::Length => FinishReason::Length,
            // The reader that cancelled has what it wanted.
            Reason::Stop | Reason::Cancelled => FinishReason::Stop,
            Reason::Failed(fault) => {
                let error = self.relay_failure().unwrap_or_else(|| self.failure(&fault));
                return self.feed.end(End::Failed(error));
            }
        };
        let adapter = self.adapter.as_deref().map(|loaded| match &loaded.placement {
            Placement::Relay(relayed) => match &self.relay {
                Some(relay) => relay.report(relayed),
                None => report::read_report(&Value::Null, &relayed.adapter.guarantee()),
            },
            Placement::Worker { guarantee, .. } => report::read_report(&ended.adapter, guarantee),
        });
        self.feed.end(End::Completed { reason, adapter });
    }

    fn relay_failure(&self) -> Option<EngineError> {
        match (&self.relay, self.adapter.as_deref().map(|loaded| &loaded.placement)) {
            (Some(relay), Some(Placement::Relay(relayed))) => relay.failure(relayed),
            _ => None,
        }
    }

    fn failure(&self, fault: &Fault) -> EngineError {
        let reason = fault.message.clone();
        match (fault.kind.as_str(), &self.adapter) {
            ("out_of_memory", _) => EngineError::OutOfMemory { reason },
            ("adapter", Some(loaded)) => {
                let error = report::adapt_error(fault);
                EngineError::Adapter { name: loaded.name.clone(), error }
            }
            ("prompt_too_long", _) => {
                let got = self.prompt_tokens;
                EngineError::PromptTooLong { got, limit: got.saturating_sub(1) }
            }
            _ => EngineError::Failed { reason },
        }
    }

    fn refusal(&self, fault: &Fault, limit: usize) -> EngineError {
        match fault.kind.as_str() {
            "queue_full" => EngineError::QueueFull { limit },
            _ => self.failure(fault),
        }
    }
}
