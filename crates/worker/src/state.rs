//! The running generations of the worker, and the processing of its messages.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicBool, mpsc::SyncSender},
    time::Instant,
};

use confide_engine::text::ModelText;
use confide_engine::{EngineError, FinishReason};
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::{
    adapter::{AdapterPlacement, LoadedAdapter},
    feed::{EventFeed, FeedEnd, TOKENS_QUEUED_MAX},
    message::{
        self, AdapterAnswer, DeltaRequest, EndReason, GenerationEnd, Welcome, WorkerFault,
        WorkerMessage,
    },
    options::WorkerDeadlines,
    relay::{self, DELTA_THREADS_MAX, DeltaThreadHandle},
    report,
};

/// The state that the engine, its supervisor and its generations share.
pub(crate) struct SharedWorkerState {
    pub(crate) deadlines: WorkerDeadlines,
    pub(crate) name: String,
    /// The lock that each load, unload and restart holds, so that one runs at a time.
    pub(crate) change: Mutex<()>,
    /// Permits for the relay threads.
    pub(crate) relays: Arc<Semaphore>,
    pub(crate) stopping: AtomicBool,
    pub(crate) text: Arc<ModelText>,
    pub(crate) vocabulary: u32,
    pub(crate) welcome: Welcome,
    state: Mutex<WorkerState>,
}

pub(crate) struct WorkerState {
    pub(crate) link: WorkerLink,
    /// The loaded adapters, in the order of loading.
    pub(crate) adapters: Vec<Arc<LoadedAdapter>>,
    /// The adapter that is being loaded or unloaded, and the channel for its answer.
    pub(crate) changing: Option<(String, SyncSender<AdapterAnswer>)>,
    pub(crate) statuses: VecDeque<SyncSender<Value>>,
    running: HashMap<u32, RunningGeneration>,
    next_id: u32,
    /// The last instant at which the worker sent a message or had nothing to do.
    quiet_since: Instant,
}

/// The connection to the worker.
pub(crate) enum WorkerLink {
    Connected(SyncSender<Vec<u8>>),
    /// The reason why there is no connection.
    Disconnected(String),
}

/// A generation that was requested and has not ended.
pub(crate) struct RunningGeneration {
    feed: Arc<EventFeed>,
    prompt_tokens: u32,
    completion: Option<u32>,
    adapter: Option<Arc<LoadedAdapter>>,
    relay: Option<DeltaThreadHandle>,
    requested_at: Instant,
    begun: bool,
    cancelled: Option<Instant>,
    /// The number of tokens that the worker may still send.
    left: u32,
}

impl SharedWorkerState {
    pub(crate) fn new(
        welcome: Welcome,
        text: Arc<ModelText>,
        name: String,
        deadlines: WorkerDeadlines,
        frames: SyncSender<Vec<u8>>,
    ) -> Self {
        let state = WorkerState {
            link: WorkerLink::Connected(frames),
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
            relays: Arc::new(Semaphore::new(DELTA_THREADS_MAX)),
            stopping: AtomicBool::new(false),
            vocabulary: text.vocabulary_size() as u32,
            text,
            welcome,
            state: Mutex::new(state),
        }
    }

    pub(crate) fn lock_state(&self) -> MutexGuard<'_, WorkerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cancels a generation in the worker.
    pub(crate) fn cancel_generation(&self, id: u32) {
        self.lock_state().cancel_generation(id);
    }

    /// Processes a message from the worker.
    ///
    /// # Errors
    /// A description of the unexpected message, after which the connection cannot be used any more.
    pub(crate) fn process_message(&self, message: WorkerMessage) -> Result<(), String> {
        let mut state = self.lock_state();
        state.quiet_since = Instant::now();
        match message {
            WorkerMessage::Tokens(tokens) => tokens
                .into_iter()
                .try_for_each(|(id, token)| state.add_token(id, token, self.vocabulary)),
            WorkerMessage::End(ended) => {
                let running = state.remove_running(ended.id)?;
                drop(state);
                running.finish(*ended);
                Ok(())
            }
            WorkerMessage::Refused { id, error } => {
                let limit = (self.welcome.slots + self.welcome.queue) as usize;
                let running = state.remove_running(id)?;
                drop(state);
                running.feed.end(FeedEnd::Failed(running.to_refusal_error(&error, limit)));
                Ok(())
            }
            WorkerMessage::DeltaRequest(need) => state.queue_delta_request(need, &self.relays),
            WorkerMessage::Adapter(answer) => {
                let (wanted, sender) =
                    state.changing.take().ok_or("an adapter answer that was not requested")?;
                if wanted != answer.name {
                    let got = message::to_printable(&answer.name);
                    return Err(format!("an answer for adapter {got:?}, wanted {wanted:?}"));
                }
                // The caller may have stopped waiting.
                let _ = sender.try_send(answer);
                Ok(())
            }
            WorkerMessage::Status(status) => {
                let sender = state.statuses.pop_front().ok_or("a status that was not requested")?;
                let _ = sender.try_send(status);
                Ok(())
            }
            WorkerMessage::Welcome(_) => Err("a second welcome".into()),
        }
    }

    /// Ends generations that take too long.
    ///
    /// # Errors
    /// The reason why the worker counts as lost.
    pub(crate) fn enforce_deadlines(&self, now: Instant) -> Result<(), String> {
        let limits = &self.deadlines;
        let mut state = self.lock_state();
        let is_late = |running: &RunningGeneration| {
            let since = running.cancelled;
            since.is_some_and(|since| now.saturating_duration_since(since) > limits.cancel)
        };
        if state.running.values().any(is_late) {
            let limit = limits.cancel.as_secs_f32();
            return Err(format!("it did not end a cancelled generation within {limit} s"));
        }
        let is_waiting = |running: &RunningGeneration| {
            running.cancelled.is_none() && !running.is_answer_pending()
        };
        let is_slow = |running: &RunningGeneration| {
            let waited = now.saturating_duration_since(running.requested_at);
            is_waiting(running) && !running.begun && waited > limits.first_token
        };
        let slow = state.running.iter().filter(|(_, running)| is_slow(running));
        let slow: Vec<u32> = slow.map(|(id, _)| *id).collect();
        for id in slow {
            let limit = limits.first_token.as_secs_f32();
            state.fail_generation(id, format!("no first token within {limit} s"));
        }
        if state.running.is_empty()
            || state.running.values().any(RunningGeneration::is_answer_pending)
        {
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

    /// Marks the worker as disconnected. Running generations end later, with
    /// [`SharedWorkerState::fail_all_generations`].
    pub(crate) fn mark_disconnected(&self, reason: &str) {
        self.lock_state().link = WorkerLink::Disconnected(reason.into());
    }

    /// Ends all running generations with an error.
    pub(crate) fn fail_all_generations(&self, reason: &str) {
        let mut state = self.lock_state();
        state.link = WorkerLink::Disconnected(reason.into());
        let running: Vec<RunningGeneration> =
            state.running.drain().map(|(_, running)| running).collect();
        state.changing = None;
        state.statuses.clear();
        drop(state);
        for generation in running {
            let error = EngineError::Unavailable { reason: reason.into() };
            generation.feed.end(FeedEnd::Failed(error));
        }
    }

    pub(crate) fn set_connected(&self, frames: SyncSender<Vec<u8>>) {
        let mut state = self.lock_state();
        state.quiet_since = Instant::now();
        state.link = WorkerLink::Connected(frames);
    }
}

/// A generation to start.
pub(crate) struct GenerationRequest<'a> {
    pub(crate) generate: message::GenerateMessage<'a>,
    pub(crate) adapter: Option<Arc<LoadedAdapter>>,
    pub(crate) limit: usize,
    /// The limit on the completion in tokens; `None` if the request set none.
    pub(crate) completion: Option<u32>,
}

impl WorkerState {
    /// Returns the frame queue of the connection to the worker.
    fn frame_queue(&self) -> Result<&SyncSender<Vec<u8>>, EngineError> {
        match &self.link {
            WorkerLink::Connected(frames) => Ok(frames),
            WorkerLink::Disconnected(reason) => {
                Err(EngineError::Unavailable { reason: reason.clone() })
            }
        }
    }

    /// Sends a frame to the worker.
    pub(crate) fn send_frame(&self, frame: Vec<u8>) -> Result<(), EngineError> {
        self.frame_queue()?.try_send(frame).map_err(|_| {
            let reason = "worker: it does not read from the connection".into();
            EngineError::Unavailable { reason }
        })
    }

    /// Sends a request; returns its id and the feed of its events.
    pub(crate) fn start_generation(
        &mut self,
        order: GenerationRequest<'_>,
    ) -> Result<(u32, Arc<EventFeed>), EngineError> {
        self.frame_queue()?;
        if self.running.len() >= order.limit {
            return Err(EngineError::QueueFull { limit: order.limit });
        }
        let id = self.next_free_id();
        let generate = message::GenerateMessage { id, ..order.generate };
        let frame = message::encode_generate(&generate).ok_or_else(|| EngineError::Prompt {
            reason: format!("{} tokens do not fit a frame", generate.ids.len()),
        })?;
        let feed = Arc::<EventFeed>::default();
        let now = Instant::now();
        self.send_frame(frame)?;
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

    fn next_free_id(&mut self) -> u32 {
        loop {
            let id = self.next_id;
            self.next_id = self.next_id.wrapping_add(1);
            if !self.running.contains_key(&id) {
                return id;
            }
        }
    }

    fn cancel_generation(&mut self, id: u32) {
        let Some(running) = self.running.get_mut(&id) else { return };
        if running.cancelled.is_none() {
            running.cancelled = Some(Instant::now());
            if let WorkerLink::Connected(frames) = &self.link {
                let _ = frames.try_send(message::encode_cancel(id));
            }
        }
    }

    /// Fails a generation that still runs in the worker.
    fn fail_generation(&mut self, id: u32, reason: String) {
        if let Some(running) = self.running.get(&id) {
            running.feed.end(FeedEnd::Failed(EngineError::failure(reason)));
        }
        self.cancel_generation(id);
    }

    /// Removes a generation that has ended.
    fn remove_running(&mut self, id: u32) -> Result<RunningGeneration, String> {
        self.running
            .remove(&id)
            .ok_or_else(|| format!("an end of generation {id}, which is not running"))
    }

    fn add_token(&mut self, id: u32, token: u32, vocabulary: u32) -> Result<(), String> {
        let Some(running) = self.running.get_mut(&id) else {
            return Err(format!("a token for generation {id}, which is not running"));
        };
        running.left = running
            .left
            .checked_sub(1)
            .ok_or_else(|| format!("more tokens for generation {id} than were requested"))?;
        if token >= vocabulary {
            return Err(format!("token: wanted a number below {vocabulary}, got {token}"));
        }
        running.begun = true;
        if running.cancelled.is_none() && !running.feed.push_token(token) {
            self.fail_generation(
                id,
                format!("the reader of the answer is {TOKENS_QUEUED_MAX} tokens behind"),
            );
        }
        Ok(())
    }

    fn queue_delta_request(
        &mut self,
        need: DeltaRequest,
        relays: &Arc<Semaphore>,
    ) -> Result<(), String> {
        let WorkerLink::Connected(frames) = &self.link else { return Ok(()) };
        let id = need.id;
        let Some(running) = self.running.get_mut(&id) else {
            return Err(format!("a need of generation {id}, which is not running"));
        };
        if running.cancelled.is_some() {
            return Ok(());
        }
        let relayed = match running.adapter.as_deref().map(|loaded| &loaded.placement) {
            Some(AdapterPlacement::DeltaThreadHandle(relayed)) => relayed,
            _ => {
                return Err(format!("a need of generation {id}, whose adapter is not at this end"));
            }
        };
        if !relay::has_adapter_widths(&*relayed.adapter, &need) {
            return Err(format!(
                "a need of generation {id} whose widths differ from its adapter's"
            ));
        }
        if running.relay.is_none() {
            let tokens = (running.prompt_tokens, running.completion);
            match DeltaThreadHandle::start(relayed, tokens, &running.feed, frames.clone(), relays) {
                Ok(relay) => running.relay = Some(relay),
                Err(error) => {
                    self.fail_generation(id, format!("adapter: {error}"));
                    return Ok(());
                }
            }
        }
        if !running.relay.as_ref().is_some_and(|relay| relay.queue_request(need)) {
            return Err(format!("a second need of generation {id} before the first was answered"));
        }
        Ok(())
    }
}

impl RunningGeneration {
    fn is_answer_pending(&self) -> bool {
        self.relay.as_ref().is_some_and(DeltaThreadHandle::is_answer_pending)
    }

    fn finish(self, ended: GenerationEnd) {
        let reason = match ended.reason {
            EndReason::Length => FinishReason::Length,
            // A cancelled generation already has all tokens that its reader needs.
            EndReason::Stop | EndReason::Cancelled => FinishReason::Stop,
            EndReason::Failed(fault) => {
                let error = self.adapter_failure().unwrap_or_else(|| self.to_engine_error(&fault));
                return self.feed.end(FeedEnd::Failed(error));
            }
        };
        let adapter = self.adapter.as_deref().map(|loaded| match &loaded.placement {
            AdapterPlacement::DeltaThreadHandle(relayed) => match &self.relay {
                Some(relay) => relay.report(relayed),
                None => report::parse_adapter_report(&Value::Null, &relayed.adapter.guarantee()),
            },
            AdapterPlacement::Worker { guarantee, .. } => {
                report::parse_adapter_report(&ended.adapter, guarantee)
            }
        });
        self.feed.end(FeedEnd::Completed { reason, adapter });
    }

    fn adapter_failure(&self) -> Option<EngineError> {
        match (&self.relay, self.adapter.as_deref().map(|loaded| &loaded.placement)) {
            (Some(relay), Some(AdapterPlacement::DeltaThreadHandle(relayed))) => {
                relay.failure(relayed)
            }
            _ => None,
        }
    }

    fn to_engine_error(&self, fault: &WorkerFault) -> EngineError {
        let reason = fault.message.clone();
        match (fault.kind.as_str(), &self.adapter) {
            ("out_of_memory", _) => EngineError::OutOfMemory { reason },
            ("adapter", Some(loaded)) => {
                let error = report::to_adapt_error(fault);
                EngineError::Adapter { name: loaded.name.clone(), error }
            }
            ("prompt_too_long", _) => {
                let got = self.prompt_tokens;
                EngineError::PromptTooLong { got, limit: got.saturating_sub(1) }
            }
            _ => EngineError::Failed { reason },
        }
    }

    fn to_refusal_error(&self, fault: &WorkerFault, limit: usize) -> EngineError {
        match fault.kind.as_str() {
            "queue_full" => EngineError::QueueFull { limit },
            _ => self.to_engine_error(fault),
        }
    }
}
