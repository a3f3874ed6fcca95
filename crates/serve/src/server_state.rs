//! What a server is made of, and what its handlers share: the engine behind its queue, the models, the counters.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use axum::Router;
use confide_engine::{Engine, EngineError, Event, Generation, Model, Request};
use confide_http::{AdmissionQueue, QueueLimits};
use futures_util::StreamExt;
use http::HeaderValue;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::{
    adapters::Adapters,
    chunk::{Ending, Heading, Route},
    clip::clip,
    counters::{Counters, Meter},
    error::ApiError,
    gate::Slot,
    limits::Limits,
};

/// Configuration of a server, and the engine behind it.
#[derive(Clone)]
pub struct Options {
    /// The engine that completes the prompts.
    pub engine: Arc<dyn Engine>,
    /// The limits of the server.
    pub limits: Limits,
    /// The clock of the `created` fields, in Unix seconds.
    pub clock: fn() -> u64,
    /// The adapters that requests may name.
    pub adapters: Arc<Adapters>,
    /// Makes further routes, which are served next to OpenAI's.
    pub extra_routes: Option<ExtraRoutes>,
    /// Web origins whose pages may send requests and open WebSockets; by default none.
    pub origins: Vec<HeaderValue>,
}

/// Makes routes that a caller adds, on the state of the server's own routes. They are guarded like
/// those: by the admission of connections and the origins of web pages.
pub type ExtraRoutes = Arc<dyn Fn(Arc<ServerState>) -> Router + Send + Sync>;

impl Options {
    /// An engine without adapters, under the default limits.
    pub fn new(engine: Arc<dyn Engine>, clock: fn() -> u64) -> Self {
        let adapters = Arc::new(Adapters::empty(Arc::clone(&engine)));
        let limits = Limits::default();
        Self { engine, limits, clock, adapters, extra_routes: None, origins: Vec::new() }
    }
}

/// The state that all handlers of a server share.
pub struct ServerState {
    pub(crate) options: Options,
    /// The queue for the engine's slots.
    pub(crate) gate: AdmissionQueue,
    pub(crate) counters: Arc<Counters>,
    /// Permits for loads and unloads that run or wait.
    pub(crate) loads: Arc<Semaphore>,
    started: u64,
    answers: AtomicU64,
}

impl ServerState {
    pub(crate) fn new(options: Options) -> Self {
        let limits = &options.limits;
        let queue = QueueLimits {
            concurrent: limits.concurrent.min(options.engine.slots()),
            queued: limits.queued,
            wait: limits.queue_wait,
        };
        Self {
            gate: AdmissionQueue::new(queue),
            counters: Arc::default(),
            loads: Arc::new(Semaphore::new(limits.loads)),
            started: (options.clock)(),
            answers: AtomicU64::new(0),
            options,
        }
    }

    /// The engine that completes the prompts.
    pub fn engine(&self) -> &Arc<dyn Engine> {
        &self.options.engine
    }

    /// The adapters that requests may name.
    pub fn adapters(&self) -> &Adapters {
        &self.options.adapters
    }

    /// The limits of the server.
    pub fn limits(&self) -> &Limits {
        &self.options.limits
    }

    /// The counters of the server since its start.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// Waits for a slot, which is the right to one running generation.
    ///
    /// # Errors
    /// [`EngineError::QueueFull`] if too many requests wait, [`ApiError::Busy`] if no slot
    /// came free in time.
    pub async fn enter(&self) -> Result<Slot, ApiError> {
        Ok(self.gate.enter().await?)
    }

    /// The models as requests may name them: base models, and the adapters that are listed.
    pub(crate) fn models(&self) -> Vec<Model> {
        let mut models = self.options.engine.models();
        let listed = |model: &Model| {
            model.parent.is_none() || self.options.adapters.find(&model.name).is_some()
        };
        models.retain(listed);
        models
    }

    /// The model with this name.
    ///
    /// # Errors
    /// [`ApiError::NoModel`] if no model has this name.
    pub fn model(&self, name: &str) -> Result<Model, ApiError> {
        let found = self.models().into_iter().find(|model| model.name == name);
        found.ok_or_else(|| self.no_model(name))
    }

    /// The model that adapters change.
    ///
    /// # Errors
    /// [`EngineError::Stopped`] if the engine no longer has a model.
    pub fn base(&self) -> Result<Model, ApiError> {
        let base = self.models().into_iter().find(|model| model.parent.is_none());
        base.ok_or_else(|| EngineError::Stopped.into())
    }

    /// The model as an object of OpenAI's API, with vLLM's `parent` and `root`.
    pub(crate) fn model_object(&self, model: &Model) -> Value {
        let mut object = json!({
            "id": model.name,
            "object": "model",
            "created": self.started,
            "owned_by": "confide",
            "context_tokens": model.context_tokens,
            "parent": model.parent,
            "root": model.name,
        });
        if let Some(digest) = &model.manifest_sha256 {
            object["confide_manifest_sha256"] = Value::from(digest.as_str());
        }
        if let Some(weights) = &model.weights {
            object["confide_weights"] = Value::from(weights.as_str());
        }
        if let Some(adapter) = self.options.adapters.find(&model.name) {
            object["root"] = Value::from(adapter.root.as_str());
            object["guarantee"] = adapter.guarantee().to_string().into();
            object["base_model"] = adapter.base.name().into();
        }
        object
    }

    /// The error for an unknown model. It lists the models: a name is easily mistyped, and the list
    /// is public.
    fn no_model(&self, got: &str) -> ApiError {
        let models = self.models();
        let served: Vec<String> = models.iter().map(|model| format!("{:?}", model.name)).collect();
        ApiError::NoModel { got: clip(got), served: served.join(" or ") }
    }

    pub(crate) fn heading(&self, route: Route, model: Model) -> Heading {
        let number = self.answers.fetch_add(1, Ordering::Relaxed);
        let created = (self.options.clock)();
        let kind = match route {
            Route::Chat => "chatcmpl",
            Route::Completion => "cmpl",
        };
        let id = format!("{kind}-{:x}-{number:x}", self.started);
        Heading { route, id, created, model: model.name, parent: model.parent }
    }

    /// Starts a generation, off the event loop if that may take long: for tokenising a long
    /// prompt, and for asking an adapter's host whether its budget suffices. `body_bytes` is the
    /// length of the request's body.
    ///
    /// # Errors
    /// Those of [`Engine::generate`].
    pub async fn start(&self, request: Request, body_bytes: usize) -> Result<Generation, ApiError> {
        const INLINE_BYTES_MAX: usize = 16 << 10;
        let engine = Arc::clone(&self.options.engine);
        let adapted = self.options.adapters.find(&request.model).is_some();
        if body_bytes <= INLINE_BYTES_MAX && !adapted {
            return Ok(engine.generate(request)?);
        }
        let started = tokio::task::spawn_blocking(move || engine.generate(request)).await;
        Ok(started.map_err(|_| EngineError::Stopped)??)
    }
}

/// Reads a generation to its end; returns its text, and its ending.
///
/// # Errors
/// [`ApiError::Engine`] if the generation failed or broke off.
pub async fn read_answer(
    mut generation: Generation,
    mut meter: Meter,
) -> Result<(String, Ending), ApiError> {
    let mut text = String::new();
    while let Some(event) = generation.next().await {
        match event {
            Event::Token(token) => {
                meter.token();
                text.push_str(&token.text);
            }
            // The ending reports the loss, too.
            Event::AdapterLost { reason } => tracing::warn!(%reason, "an adapter was lost"),
            Event::Finished { reason, tail, usage, adapter } => {
                meter.finish(adapter.as_ref());
                return Ok((text + &tail, Ending { reason, usage, adapter }));
            }
            Event::Failed(error) => return Err(error.into()),
        }
    }
    Err(EngineError::Stopped.into())
}
