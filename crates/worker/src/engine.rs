use std::{
    path::Path,
    sync::{
        Arc, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use confide_engine::text::{Answer, Text, manifest::Manifest};
use confide_engine::{
    AdapterReport, Engine, EngineError, Event, FinishReason, Generation, Model, OnLoss, Prompt,
    Request, Usage,
};
use confide_lora::{Adapt, Site, Width};
use futures_util::stream;
use serde_json::Value;

use crate::{
    adapter::{ADAPTERS_MAX, How, Loaded, in_worker},
    error::WorkerError,
    feed::Reading,
    message::{self, AdapterAnswer, Generate, Welcome},
    options::{Launch, Options},
    process::PrivateFolder,
    relay::Relayed,
    report,
    state::{Order, Shared},
    supervise::{Starter, supervise},
};

/// The engine in a process of its own. Dropped, it ends the process.
pub struct Worker {
    shared: Arc<Shared>,
    served: Model,
    stop_ids: Vec<u32>,
    special_ids: Vec<u32>,
    supervisor: Option<JoinHandle<()>>,
}

impl Worker {
    /// Starts a worker, or connects to one, and waits until it is ready. Where the model's folder has
    /// a manifest, every file is checked against it first.
    ///
    /// # Errors
    /// [`WorkerError`].
    pub fn start(options: Options) -> Result<Self, WorkerError> {
        let manifest = Manifest::read(&options.model)?;
        if let Some((manifest, _)) = &manifest {
            manifest.check(&options.model)?;
        }
        let text = Arc::new(Text::load(&options.model)?);
        let model = options.model.canonicalize();
        let model = model.map_err(WorkerError::system("the model's folder"))?;
        let name = options.model_name.unwrap_or_else(|| folder_name(&model));
        let folder = match &options.launch {
            Launch::Program(program) => Some(PrivateFolder::make(&program.folder)?),
            Launch::Socket(_) => None,
        };
        let starter = Starter {
            launch: options.launch,
            model,
            vocabulary: text.vocabulary(),
            deadlines: options.deadlines,
            folder,
        };
        let up = starter.start(&AtomicBool::new(false))?;
        let served = Model {
            name: name.clone(),
            context_tokens: up.welcome.context_tokens,
            manifest_sha256: manifest.map(|(_, sha256)| sha256),
            weights: Some(up.welcome.weights.clone()),
            parent: None,
        };
        let (stop_ids, special_ids) = (sorted(text.end_of_text()), sorted(&text.special()));
        let frames = up.connection.frames.clone();
        let shared =
            Arc::new(Shared::new(up.welcome.clone(), text, name, starter.deadlines, frames));
        let looked_after = Arc::clone(&shared);
        let supervisor = thread::Builder::new()
            .name("worker-supervisor".into())
            .spawn(move || supervise(&looked_after, &starter, up))
            .map_err(WorkerError::system("thread"))?;
        Ok(Self { shared, served, stop_ids, special_ids, supervisor: Some(supervisor) })
    }

    /// What the worker said it is.
    pub fn welcome(&self) -> &Welcome {
        &self.shared.welcome
    }

    /// What is in use, as the worker counts it. Blocks.
    ///
    /// # Errors
    /// [`EngineError::Unavailable`].
    pub fn status(&self) -> Result<Value, EngineError> {
        let (sender, answer) = mpsc::sync_channel(1);
        {
            let mut state = self.shared.state();
            let sent = state.frames()?.try_send(message::ask_status());
            sent.map_err(|_| unavailable("it does not read what is written"))?;
            state.statuses.push_back(sender);
        }
        received(&answer, self.shared.deadlines.answer)
    }

    /// Loads an adapter in the worker itself: `plain`, `one-graph`, `ipc`, `blind`. What it gives is
    /// to be handed to [`Engine::load_adapter`] under the same name, which makes it a model. Blocks.
    ///
    /// # Errors
    /// [`EngineError::NameTaken`], [`EngineError::TooManyAdapters`], [`EngineError::AdapterSite`],
    /// [`EngineError::Unavailable`], and [`EngineError::Failed`] with the worker's words.
    pub fn load_in_worker(
        &self,
        name: &str,
        kind: &str,
        spec: Value,
    ) -> Result<Arc<dyn Adapt>, EngineError> {
        let _change = self.shared.change.lock().unwrap_or_else(PoisonError::into_inner);
        if self.loaded(name).is_some_and(|loaded| !loaded.is_model) {
            self.forget(name)?;
        }
        self.check_name(name)?;
        let frame = message::load_adapter(name, kind, &spec);
        let answer = self.changed(name, frame, self.shared.deadlines.load)?;
        let adapter = match in_worker(answer) {
            Ok(adapter) => adapter,
            Err(reason) => {
                let _ = self.unload_there(name);
                return Err(EngineError::Failed { reason: format!("adapter {name:?}: {reason}") });
            }
        };
        if let Err(error) = self.check_sites(name, &*adapter) {
            let _ = self.unload_there(name);
            return Err(error);
        }
        let how = How::Worker { kind: kind.into(), spec, guarantee: adapter.guarantee() };
        self.shared.state().adapters.push(Arc::new(Loaded::new(name, how, false)));
        Ok(adapter)
    }

    fn loaded(&self, name: &str) -> Option<Arc<Loaded>> {
        self.shared.state().adapters.iter().find(|loaded| loaded.name == name).cloned()
    }

    /// The adapter of this name; `None` for the base model.
    fn find(&self, name: &str) -> Result<Option<Arc<Loaded>>, EngineError> {
        if name == self.shared.name {
            return Ok(None);
        }
        let found = self.loaded(name).filter(|loaded| loaded.is_model);
        found.map(Some).ok_or_else(|| EngineError::UnknownModel { got: name.into() })
    }

    fn check_name(&self, name: &str) -> Result<(), EngineError> {
        if name == self.shared.name || self.loaded(name).is_some() {
            return Err(EngineError::NameTaken { name: name.into() });
        }
        match self.shared.state().adapters.len() < ADAPTERS_MAX {
            true => Ok(()),
            false => Err(EngineError::TooManyAdapters { limit: ADAPTERS_MAX }),
        }
    }

    fn check_sites(&self, name: &str, adapter: &dyn Adapt) -> Result<(), EngineError> {
        adapter.sites().iter().try_for_each(|(site, got)| self.check_site(name, *site, *got))
    }

    fn check_site(&self, name: &str, site: Site, got: Width) -> Result<(), EngineError> {
        let shown = |width: Width| format!("{} to {}", width.input, width.output);
        let wanted = match self.shared.welcome.sites.width(site) {
            Some(wanted) if wanted == got => return Ok(()),
            Some(wanted) => shown(wanted),
            None => "no such projection".into(),
        };
        Err(EngineError::AdapterSite { name: name.into(), site, wanted, got: shown(got) })
    }

    /// Has the worker load or unload, and waits for its answer.
    fn changed(
        &self,
        name: &str,
        frame: Vec<u8>,
        limit: Duration,
    ) -> Result<AdapterAnswer, EngineError> {
        let (sender, answer) = mpsc::sync_channel(1);
        {
            let mut state = self.shared.state();
            if state.changing.is_some() {
                return Err(unavailable("it has not answered the load or unload before"));
            }
            let sent = state.frames()?.try_send(frame);
            sent.map_err(|_| unavailable("it does not read what is written"))?;
            state.changing = Some((name.into(), sender));
        }
        received(&answer, limit)
    }

    fn unload_there(&self, name: &str) -> Result<AdapterAnswer, EngineError> {
        self.changed(name, message::unload_adapter(name), self.shared.deadlines.answer)
    }

    /// Forgets an adapter here, and in the worker where there is one.
    fn forget(&self, name: &str) -> Result<(), EngineError> {
        let gone = {
            let mut state = self.shared.state();
            let at = state.adapters.iter().position(|loaded| loaded.name == name);
            at.map(|at| state.adapters.remove(at))
        };
        if gone.is_none() {
            return Err(EngineError::UnknownModel { got: name.into() });
        }
        match self.unload_there(name) {
            Err(error @ EngineError::Failed { .. }) => Err(error),
            // A worker that is not there has no adapter; one that comes back is not told of it.
            _ => Ok(()),
        }
    }
}

impl Engine for Worker {
    fn models(&self) -> Vec<Model> {
        let adapters = self.shared.state().adapters.clone();
        let adapted = adapters.iter().filter(|loaded| loaded.is_model).map(|loaded| Model {
            name: loaded.name.clone(),
            manifest_sha256: None,
            parent: Some(self.served.name.clone()),
            ..self.served.clone()
        });
        [self.served.clone()].into_iter().chain(adapted).collect()
    }

    fn count(&self, model: &str, prompt: &Prompt) -> Result<u32, EngineError> {
        self.find(model)?;
        Ok(self.shared.text.encode(prompt)?.len() as u32)
    }

    fn generate(&self, request: Request) -> Result<Generation, EngineError> {
        let adapter = self.find(&request.model)?;
        if let Some(adapter) = &adapter {
            adapter.check()?;
        }
        let ids = self.shared.text.encode(&request.prompt)?;
        let (got, context) = (ids.len() as u32, self.served.context_tokens);
        let limit = request.prompt_tokens_max.min(context.saturating_sub(1));
        if got > limit {
            return Err(EngineError::PromptTooLong { got, limit });
        }
        let most = request.max_tokens.unwrap_or(u32::MAX).min(context - got);
        if most == 0 {
            return Ok(nothing(got, adapter.as_deref()));
        }
        let (stop_ids, banned_ids) = match request.ignore_eos {
            true => (&[][..], &self.special_ids[..]),
            false => (&self.stop_ids[..], &[][..]),
        };
        let adapted = adapter.is_some();
        let name = adapter.as_ref().map(|loaded| loaded.name.clone());
        let generate = Generate {
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
        let (id, feed) =
            self.shared.state().start(Order { generate, adapter, limit, completion })?;
        let answer = Answer::new(Arc::clone(&self.shared.text), &request.stop, got, most);
        let shared = Arc::clone(&self.shared);
        let cancel = Box::new(move || shared.cancel(id));
        Ok(Generation::new(got, Reading::new(feed, answer, adapted, cancel)))
    }

    fn slots(&self) -> usize {
        self.shared.welcome.slots as usize
    }

    fn load_adapter(
        &self,
        name: &str,
        adapter: Arc<dyn Adapt>,
        on_loss: OnLoss,
    ) -> Result<(), EngineError> {
        let _change = self.shared.change.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(loaded) = self.loaded(name).filter(|loaded| !loaded.is_model) {
            return self.make_model(&loaded, on_loss);
        }
        self.check_name(name)?;
        self.check_sites(name, &*adapter)?;
        let how = How::Relay(Relayed { name: name.into(), adapter, on_loss });
        let loaded = Loaded::new(name, how, true);
        let answer = self.changed(name, loaded.frame(), self.shared.deadlines.load)?;
        if let Some(reason) = answer.error {
            return Err(EngineError::Failed { reason: format!("adapter {name:?}: {reason}") });
        }
        self.shared.state().adapters.push(Arc::new(loaded));
        Ok(())
    }

    fn unload_adapter(&self, name: &str) -> Result<(), EngineError> {
        let _change = self.shared.change.lock().unwrap_or_else(PoisonError::into_inner);
        self.find(name)?;
        self.forget(name)
    }
}

impl Worker {
    /// An adapter that the worker has already becomes a model.
    fn make_model(&self, loaded: &Loaded, on_loss: OnLoss) -> Result<(), EngineError> {
        if on_loss == OnLoss::Base {
            let reason = format!(
                "adapter {:?} is in the worker: an answer that loses it fails, and the base model \
                 cannot go on",
                loaded.name
            );
            return Err(EngineError::Failed { reason });
        }
        let model = Arc::new(Loaded::new(&loaded.name, loaded.how.clone(), true));
        let mut state = self.shared.state();
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

/// An answer of no tokens, for which no worker is needed.
fn nothing(prompt_tokens: u32, adapter: Option<&Loaded>) -> Generation {
    let usage = Usage { prompt_tokens, completion_tokens: 0 };
    let adapter = adapter.map(|loaded| AdapterReport {
        guarantee: match &loaded.how {
            How::Relay(relayed) => relayed.adapter.guarantee(),
            How::Worker { guarantee, .. } => guarantee.clone(),
        },
        ..report::of_worker(&Value::Null, &confide_lora::Guarantee::NONE)
    });
    let (reason, tail) = (FinishReason::Length, String::new());
    let finished = Event::Finished { reason, tail, usage, adapter };
    Generation::new(prompt_tokens, stream::iter([finished]))
}

fn received<T>(answer: &mpsc::Receiver<T>, limit: Duration) -> Result<T, EngineError> {
    answer.recv_timeout(limit).map_err(|error| match error {
        RecvTimeoutError::Timeout => {
            unavailable(&format!("it did not answer within {} s", limit.as_secs_f32()))
        }
        RecvTimeoutError::Disconnected => unavailable("it was lost before it answered"),
    })
}

fn unavailable(reason: &str) -> EngineError {
    EngineError::Unavailable { reason: format!("worker: {reason}") }
}

fn sorted(ids: &std::collections::HashSet<u32>) -> Vec<u32> {
    let mut ids: Vec<u32> = ids.iter().copied().collect();
    ids.sort_unstable();
    ids
}

/// The last part of the folder's own name.
fn folder_name(dir: &Path) -> String {
    dir.file_name().map_or_else(|| "model".into(), |name| name.to_string_lossy().into_owned())
}
