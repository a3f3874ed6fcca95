//! The engine that serves a worker's model and its adapters.

use std::{
    sync::{
        Arc, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use confide_engine::text::{
    AnswerDecoder, ModelText, manifest::check_folder_against_manifest, model_name_from_folder,
};
use confide_engine::{
    AdapterLossPolicy, AdapterReport, Engine, EngineError, FinishReason, Generation,
    GenerationEvent, Model, Prompt, Request, Usage, check_adapter_sites,
};
use confide_lora::DeltaProvider;
use futures_util::stream;
use serde_json::Value;

use crate::{
    adapter::{ADAPTERS_MAX, AdapterPlacement, LoadedAdapter, parse_load_answer},
    error::WorkerError,
    feed::EventStream,
    message::{self, AdapterAnswer, GenerateMessage, Welcome},
    options::{WorkerLaunch, WorkerOptions},
    process::PrivateFolder,
    relay::LocalAdapter,
    report,
    state::{GenerationRequest, SharedWorkerState},
    supervise::{WorkerStarter, supervise},
};

/// An engine that runs the model in a separate process, the worker. Dropping the engine ends the
/// process.
pub struct Worker {
    shared: Arc<SharedWorkerState>,
    served: Model,
    stop_ids: Vec<u32>,
    special_ids: Vec<u32>,
    supervisor: Option<JoinHandle<()>>,
}

impl Worker {
    /// Starts a worker, or connects to one, and waits until it is ready. If the model's folder has
    /// a manifest, every file is checked against it first.
    ///
    /// # Errors
    /// [`WorkerError`] if the model's folder cannot be used, or if no worker becomes ready.
    pub fn start(options: WorkerOptions) -> Result<Self, WorkerError> {
        let manifest_sha256 = check_folder_against_manifest(&options.model)?;
        let text = Arc::new(ModelText::load(&options.model)?);
        let model = options.model.canonicalize();
        let model = model.map_err(WorkerError::system("the model's folder"))?;
        let name = options.model_name.unwrap_or_else(|| model_name_from_folder(&model));
        let folder = match &options.launch {
            WorkerLaunch::Program(program) => Some(PrivateFolder::create(&program.folder)?),
            WorkerLaunch::Socket(_) => None,
        };
        let starter = WorkerStarter {
            launch: options.launch,
            model,
            vocabulary: text.vocabulary_size(),
            deadlines: options.deadlines,
            folder,
        };
        let up = starter.start(&AtomicBool::new(false))?;
        let served = Model {
            name: name.clone(),
            context_tokens: up.welcome.context_tokens,
            manifest_sha256,
            weights: Some(up.welcome.weights.clone()),
            parent: None,
        };
        let (stop_ids, special_ids) =
            (sort_ids(text.end_of_text_tokens()), sort_ids(&text.special_tokens()));
        let frames = up.connection.frames.clone();
        let shared = Arc::new(SharedWorkerState::new(
            up.welcome.clone(),
            text,
            name,
            starter.deadlines,
            frames,
        ));
        let looked_after = Arc::clone(&shared);
        let supervisor = thread::Builder::new()
            .name("worker-supervisor".into())
            .spawn(move || supervise(&looked_after, &starter, up))
            .map_err(WorkerError::system("thread"))?;
        Ok(Self { shared, served, stop_ids, special_ids, supervisor: Some(supervisor) })
    }

    /// The worker's description of itself.
    pub fn welcome(&self) -> &Welcome {
        &self.shared.welcome
    }

    /// Requests the worker's report on its use of resources. Blocks.
    ///
    /// # Errors
    /// [`EngineError::Unavailable`] if the worker is disconnected or does not answer in time.
    pub fn request_status(&self) -> Result<Value, EngineError> {
        let (sender, answer) = mpsc::sync_channel(1);
        {
            let mut state = self.shared.lock_state();
            state.send_frame(message::encode_status_request())?;
            state.statuses.push_back(sender);
        }
        wait_for_answer(&answer, self.shared.deadlines.answer)
    }

    /// Loads an adapter in the worker itself, of the kind `plain`, `one-graph`, `ipc` or `blind`.
    /// Pass the result to [`Engine::load_adapter`] with the same name to make it a model. Blocks.
    ///
    /// # Errors
    /// [`EngineError::NameTaken`], [`EngineError::TooManyAdapters`], [`EngineError::AdapterSite`],
    /// [`EngineError::Unavailable`], and [`EngineError::Failed`] with the worker's error.
    pub fn load_in_worker(
        &self,
        name: &str,
        kind: &str,
        spec: Value,
    ) -> Result<Arc<dyn DeltaProvider>, EngineError> {
        let _change = self.shared.change.lock().unwrap_or_else(PoisonError::into_inner);
        if self.find_loaded_adapter(name).is_some_and(|loaded| !loaded.is_served) {
            self.remove_adapter(name)?;
        }
        self.check_adapter_name(name)?;
        let frame = message::encode_load_adapter(name, kind, &spec);
        let answer = self.request_adapter_change(name, frame, self.shared.deadlines.load)?;
        let adapter = match parse_load_answer(answer) {
            Ok(adapter) => adapter,
            Err(reason) => {
                let _ = self.request_unload(name);
                return Err(EngineError::failure(format!("adapter {name:?}: {reason}")));
            }
        };
        if let Err(error) = self.check_adapter_sites(name, &*adapter) {
            let _ = self.request_unload(name);
            return Err(error);
        }
        let placement =
            AdapterPlacement::Worker { kind: kind.into(), spec, guarantee: adapter.guarantee() };
        self.shared
            .lock_state()
            .adapters
            .push(Arc::new(LoadedAdapter::new(name, placement, false)));
        Ok(adapter)
    }

    fn find_loaded_adapter(&self, name: &str) -> Option<Arc<LoadedAdapter>> {
        self.shared.lock_state().adapters.iter().find(|loaded| loaded.name == name).cloned()
    }

    /// The adapter of this name; `None` for the base model.
    fn find_adapter(&self, name: &str) -> Result<Option<Arc<LoadedAdapter>>, EngineError> {
        if name == self.shared.name {
            return Ok(None);
        }
        let found = self.find_loaded_adapter(name).filter(|loaded| loaded.is_served);
        found.map(Some).ok_or_else(|| EngineError::UnknownModel { got: name.into() })
    }

    fn check_adapter_name(&self, name: &str) -> Result<(), EngineError> {
        if name == self.shared.name || self.find_loaded_adapter(name).is_some() {
            return Err(EngineError::NameTaken { name: name.into() });
        }
        if self.shared.lock_state().adapters.len() >= ADAPTERS_MAX {
            return Err(EngineError::TooManyAdapters { limit: ADAPTERS_MAX });
        }
        Ok(())
    }

    fn check_adapter_sites(
        &self,
        name: &str,
        adapter: &dyn DeltaProvider,
    ) -> Result<(), EngineError> {
        check_adapter_sites(name, adapter, |site| self.shared.welcome.sites.width(site))
    }

    /// Sends a load or an unload to the worker, and waits for its answer.
    fn request_adapter_change(
        &self,
        name: &str,
        frame: Vec<u8>,
        limit: Duration,
    ) -> Result<AdapterAnswer, EngineError> {
        let (sender, answer) = mpsc::sync_channel(1);
        {
            let mut state = self.shared.lock_state();
            if state.changing.is_some() {
                return Err(unavailable_error("it has not answered the previous load or unload"));
            }
            state.send_frame(frame)?;
            state.changing = Some((name.into(), sender));
        }
        wait_for_answer(&answer, limit)
    }

    fn request_unload(&self, name: &str) -> Result<AdapterAnswer, EngineError> {
        self.request_adapter_change(
            name,
            message::encode_unload_adapter(name),
            self.shared.deadlines.answer,
        )
    }

    /// Unloads an adapter at this end, and in the worker if it is connected.
    fn remove_adapter(&self, name: &str) -> Result<(), EngineError> {
        let gone = {
            let mut state = self.shared.lock_state();
            let at = state.adapters.iter().position(|loaded| loaded.name == name);
            at.map(|at| state.adapters.remove(at))
        };
        if gone.is_none() {
            return Err(EngineError::UnknownModel { got: name.into() });
        }
        match self.request_unload(name) {
            Err(error @ EngineError::Failed { .. }) => Err(error),
            // A disconnected worker has no adapters, and a restarted one does not load this one.
            _ => Ok(()),
        }
    }
}

impl Engine for Worker {
    fn models(&self) -> Vec<Model> {
        let adapters = self.shared.lock_state().adapters.clone();
        let adapted = adapters.iter().filter(|loaded| loaded.is_served);
        let adapted = adapted.map(|loaded| self.served.with_adapter(loaded.name.clone()));
        [self.served.clone()].into_iter().chain(adapted).collect()
    }

    fn count_prompt_tokens(&self, model: &str, prompt: &Prompt) -> Result<u32, EngineError> {
        self.find_adapter(model)?;
        Ok(self.shared.text.encode(prompt)?.len() as u32)
    }

    fn generate(&self, request: Request) -> Result<Generation, EngineError> {
        let adapter = self.find_adapter(&request.model)?;
        if let Some(adapter) = &adapter {
            adapter.refuse_broken()?;
        }
        let ids = self.shared.text.encode(&request.prompt)?;
        let got = ids.len() as u32;
        let room = request.remaining_completion_tokens(got, self.served.context_tokens)?;
        let most = request.max_tokens.unwrap_or(u32::MAX).min(room);
        if most == 0 {
            return Ok(empty_generation(got, adapter.as_deref()));
        }
        let (stop_ids, banned_ids): (&[u32], &[u32]) =
            if request.ignore_eos { (&[], &self.special_ids) } else { (&self.stop_ids, &[]) };
        let adapted = adapter.is_some();
        let name = adapter.as_ref().map(|loaded| loaded.name.clone());
        let generate = GenerateMessage {
            id: 0,
            ids: &ids,
            max_tokens: most,
            sampling: request.sampling,
            stop_ids,
            banned_ids,
            adapter: name.as_deref(),
        };
        let completion = request.max_tokens.map(|_| most);
        let limit = (self.shared.welcome.slots + self.shared.welcome.queue) as usize;
        let (id, feed) = self.shared.lock_state().start_generation(GenerationRequest {
            generate,
            adapter,
            limit,
            completion,
        })?;
        let answer = AnswerDecoder::new(Arc::clone(&self.shared.text), &request.stop, got, most);
        let shared = Arc::clone(&self.shared);
        let cancel = Box::new(move || shared.cancel_generation(id));
        Ok(Generation::new(got, EventStream::new(feed, answer, adapted, cancel)))
    }

    fn slots(&self) -> usize {
        self.shared.welcome.slots as usize
    }

    fn load_adapter(
        &self,
        name: &str,
        adapter: Arc<dyn DeltaProvider>,
        on_loss: AdapterLossPolicy,
    ) -> Result<(), EngineError> {
        let _change = self.shared.change.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(loaded) = self.find_loaded_adapter(name).filter(|loaded| !loaded.is_served) {
            return self.promote_to_model(&loaded, on_loss);
        }
        self.check_adapter_name(name)?;
        self.check_adapter_sites(name, &*adapter)?;
        let placement = AdapterPlacement::DeltaThreadHandle(LocalAdapter {
            name: name.into(),
            adapter,
            on_loss,
        });
        let loaded = LoadedAdapter::new(name, placement, true);
        let answer = self.request_adapter_change(
            name,
            loaded.encode_load_frame(),
            self.shared.deadlines.load,
        )?;
        if let Some(reason) = answer.error {
            return Err(EngineError::failure(format!("adapter {name:?}: {reason}")));
        }
        self.shared.lock_state().adapters.push(Arc::new(loaded));
        Ok(())
    }

    fn unload_adapter(&self, name: &str) -> Result<(), EngineError> {
        let _change = self.shared.change.lock().unwrap_or_else(PoisonError::into_inner);
        self.find_adapter(name)?;
        self.remove_adapter(name)
    }
}

impl Worker {
    /// Makes a model of an adapter that the worker has already loaded.
    fn promote_to_model(
        &self,
        loaded: &LoadedAdapter,
        on_loss: AdapterLossPolicy,
    ) -> Result<(), EngineError> {
        if on_loss == AdapterLossPolicy::Base {
            let reason = format!(
                "adapter {:?} is in the worker: if it is lost, the answer fails, because the base \
                 model cannot continue",
                loaded.name
            );
            return Err(EngineError::Failed { reason });
        }
        let model = Arc::new(LoadedAdapter::new(&loaded.name, loaded.placement.clone(), true));
        let mut state = self.shared.lock_state();
        match state.adapters.iter_mut().find(|other| other.name == loaded.name) {
            Some(place) => *place = model,
            None => return Err(EngineError::UnknownModel { got: loaded.name.clone() }),
        }
        Ok(())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Release);
        if let Some(supervisor) = self.supervisor.take() {
            let _ = supervisor.join();
        }
    }
}

/// An answer without tokens, which needs no worker.
fn empty_generation(prompt_tokens: u32, adapter: Option<&LoadedAdapter>) -> Generation {
    let usage = Usage { prompt_tokens, completion_tokens: 0 };
    let adapter = adapter.map(|loaded| AdapterReport {
        guarantee: match &loaded.placement {
            AdapterPlacement::DeltaThreadHandle(relayed) => relayed.adapter.guarantee(),
            AdapterPlacement::Worker { guarantee, .. } => guarantee.clone(),
        },
        ..report::parse_adapter_report(&Value::Null, &confide_lora::Guarantee::NONE)
    });
    let (reason, tail) = (FinishReason::Length, String::new());
    let finished = GenerationEvent::Finished { reason, tail, usage, adapter };
    Generation::new(prompt_tokens, stream::iter([finished]))
}

fn wait_for_answer<T>(answer: &mpsc::Receiver<T>, limit: Duration) -> Result<T, EngineError> {
    answer.recv_timeout(limit).map_err(|error| match error {
        RecvTimeoutError::Timeout => {
            unavailable_error(&format!("it did not answer within {} s", limit.as_secs_f32()))
        }
        RecvTimeoutError::Disconnected => unavailable_error("it was lost before it answered"),
    })
}

fn unavailable_error(reason: &str) -> EngineError {
    EngineError::Unavailable { reason: format!("worker: {reason}") }
}

fn sort_ids(ids: &std::collections::HashSet<u32>) -> Vec<u32> {
    let mut ids: Vec<u32> = ids.iter().copied().collect();
    ids.sort_unstable();
    ids
}
