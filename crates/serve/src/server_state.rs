//! The options of a server, and the state that its handlers share: the engine with its queue, the
//! models, the counters.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use axum::Router;
use confide_engine::{Engine, EngineError, Generation, GenerationEvent, Model, Request};
use confide_http::{AdmissionQueue, QueueLimits};
use futures_util::StreamExt;
use http::HeaderValue;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::{
    adapters::AdapterRegistry,
    chunk::{AnswerEnding, AnswerHeading, CompletionRoute},
    clip::truncate_with_ellipsis,
    counters::{AnswerMeter, ServerCounters},
    error::ApiError,
    gate::Slot,
    limits::ServeLimits,
};

/// Configuration of a server, and the engine behind it.
#[derive(Clone)]
pub struct ServeOptions {
    /// The engine that completes the prompts.
    pub engine: Arc<dyn Engine>,
    /// The limits of the server.
    pub limits: ServeLimits,
    /// The clock for the `created` fields, in Unix seconds.
    pub clock: fn() -> u64,
    /// The adapters that requests may name.
    pub adapters: Arc<AdapterRegistry>,
    /// Makes further routes, which are served in addition to OpenAI's.
    pub extra_routes: Option<ExtraRoutes>,
    /// The web origins whose pages may send requests and open WebSockets; none by default.
    pub origins: Vec<HeaderValue>,
}

/// Makes a caller's routes from the shared state. The limits on connections and on web origins
/// apply to them too.
pub type ExtraRoutes = Arc<dyn Fn(Arc<ServerState>) -> Router + Send + Sync>;

impl ServeOptions {
    /// Options for an engine without adapters, with the default limits.
    pub fn new(engine: Arc<dyn Engine>, clock: fn() -> u64) -> Self {
        let adapters = Arc::new(AdapterRegistry::empty(Arc::clone(&engine)));
        let limits = ServeLimits::default();
        Self { engine, limits, clock, adapters, extra_routes: None, origins: Vec::new() }
    }
}

/// The state that all handlers of a server share.
pub struct ServerState {
    pub(crate) options: ServeOptions,
    /// The queue for the engine's slots.
    pub(crate) gate: AdmissionQueue,
    pub(crate) counters: Arc<ServerCounters>,
    /// Permits for loads and unloads that run or wait.
    pub(crate) loads: Arc<Semaphore>,
    started: u64,
    answers: AtomicU64,
}

impl ServerState {
    pub(crate) fn new(options: ServeOptions) -> Self {
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
    pub fn adapters(&self) -> &AdapterRegistry {
        &self.options.adapters
    }

    /// The limits of the server.
    pub fn limits(&self) -> &ServeLimits {
        &self.options.limits
    }

    /// The counters of the server since its start.
    pub fn counters(&self) -> &Arc<ServerCounters> {
        &self.counters
    }

    /// Waits for a slot, which permits one running generation.
    ///
    /// # Errors
    /// [`EngineError::QueueFull`] if too many requests wait, [`ApiError::Busy`] if no slot became
    /// free in time.
    pub async fn acquire_slot(&self) -> Result<Slot, ApiError> {
        Ok(self.gate.enter().await?)
    }

    /// The models that requests may name: base models and listed adapters.
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
    pub fn find_model(&self, name: &str) -> Result<Model, ApiError> {
        let found = self.models().into_iter().find(|model| model.name == name);
        found.ok_or_else(|| self.unknown_model_error(name))
    }

    /// The model that adapters change.
    ///
    /// # Errors
    /// [`EngineError::Stopped`] if the engine no longer has a model.
    pub fn base_model(&self) -> Result<Model, ApiError> {
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

    /// The error for an unknown model. It lists the models, which are public.
    fn unknown_model_error(&self, got: &str) -> ApiError {
        let models = self.models();
        let served: Vec<String> = models.iter().map(|model| format!("{:?}", model.name)).collect();
        ApiError::NoModel { got: truncate_with_ellipsis(got), served: served.join(" or ") }
    }

    pub(crate) fn new_heading(&self, route: CompletionRoute, model: Model) -> AnswerHeading {
        let number = self.answers.fetch_add(1, Ordering::Relaxed);
        let created = (self.options.clock)();
        let kind = match route {
            CompletionRoute::Chat => "chatcmpl",
            CompletionRoute::Completion => "cmpl",
        };
        let id = format!("{kind}-{:x}-{number:x}", self.started);
        AnswerHeading { route, id, created, model: model.name, parent: model.parent }
    }

    /// Starts a generation. This runs off the event loop if it may take long, to tokenise a long
    /// prompt or to ask an adapter's host about its budget. `body_bytes` is the length of the
    /// request's body.
    ///
    /// # Errors
    /// Those of [`Engine::generate`].
    pub async fn start_generation(
        &self,
        request: Request,
        body_bytes: usize,
    ) -> Result<Generation, ApiError> {
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

/// Reads a generation to its end; returns its text and its ending.
///
/// # Errors
/// [`ApiError::Engine`] if the generation failed.
pub async fn read_answer(
    mut generation: Generation,
    mut meter: AnswerMeter,
) -> Result<(String, AnswerEnding), ApiError> {
    let mut text = String::new();
    while let Some(event) = generation.next().await {
        match event {
            GenerationEvent::Token(token) => {
                meter.count_token();
                text.push_str(&token.text);
            }
            // The ending also reports the loss.
            GenerationEvent::AdapterLost { reason } => {
                tracing::warn!(%reason, "an adapter was lost")
            }
            GenerationEvent::Finished { reason, tail, usage, adapter } => {
                meter.finish(adapter.as_ref());
                return Ok((text + &tail, AnswerEnding { reason, usage, adapter }));
            }
            GenerationEvent::Failed(error) => return Err(error.into()),
        }
    }
    Err(EngineError::Stopped.into())
}
