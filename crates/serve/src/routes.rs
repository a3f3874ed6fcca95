use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use axum::{
    Router,
    body::Body,
    extract::{DefaultBodyLimit, Path, State},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use bytes::Bytes;
use confide_engine::{EngineError, Event, FinishReason, Generation, Model, Request, Usage};
use futures_util::StreamExt;
use http::{HeaderValue, Method, Uri, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde_json::{Value, json};

use crate::{
    Limits, Options,
    chunk::{Chunks, Heading, Route},
    error::ApiError,
    events::Events,
    fields::clipped,
    gate::{Gate, Slot},
    parse::{self, Parsed},
};

/// The routes, to be served on any listener.
pub fn router(options: Options) -> Router {
    let slots = options.limits.concurrent.min(options.engine.slots());
    let gate = Gate::new(slots, options.limits.queued, options.limits.queue_wait);
    let models = options.engine.models().into_iter();
    let models = models.map(|model| (model.name.clone(), model)).collect();
    let started = (options.clock)();
    let site = Site { options, gate, models, started, answers: AtomicU64::new(0) };
    Router::new()
        .route("/health", get(health))
        .route("/v1/chat/completions", post(chat))
        .route("/v1/completions", post(completion))
        .route("/v1/models", get(list_models))
        .route("/v1/models/{*name}", get(show_model))
        .fallback(no_route)
        .method_not_allowed_fallback(not_allowed)
        // The handlers bound and time the body themselves.
        .layer(DefaultBodyLimit::disable())
        .with_state(Arc::new(site))
}

struct Site {
    options: Options,
    gate: Gate,
    models: BTreeMap<String, Model>,
    started: u64,
    answers: AtomicU64,
}

async fn chat(site: State<Arc<Site>>, body: Body) -> Result<Response, ApiError> {
    let body = read_body(&site, body).await?;
    let parsed = parse::chat(&body, site.options.limits.prompt_tokens)?;
    complete(&site, Route::Chat, parsed, body.len()).await
}

async fn completion(site: State<Arc<Site>>, body: Body) -> Result<Response, ApiError> {
    let body = read_body(&site, body).await?;
    let parsed = parse::completion(&body, site.options.limits.prompt_tokens)?;
    complete(&site, Route::Completion, parsed, body.len()).await
}

async fn health() -> Response {
    json_response(&json!({ "status": "ok" }))
}

async fn list_models(site: State<Arc<Site>>) -> Response {
    let data: Vec<Value> = site.models.values().map(|model| site.model_object(model)).collect();
    json_response(&json!({ "object": "list", "data": data }))
}

async fn show_model(
    site: State<Arc<Site>>,
    Path(name): Path<String>,
) -> Result<Response, ApiError> {
    let model = site.models.get(&name).ok_or_else(|| site.no_model(&name))?;
    Ok(json_response(&site.model_object(model)))
}

async fn no_route(method: Method, uri: Uri) -> ApiError {
    ApiError::NoRoute { method: method.to_string(), path: uri.path().into() }
}

async fn not_allowed(method: Method, uri: Uri) -> ApiError {
    ApiError::NotAllowed { method: method.to_string(), path: uri.path().into() }
}

impl Site {
    fn model_object(&self, model: &Model) -> Value {
        let mut object = json!({
            "id": model.name,
            "object": "model",
            "created": self.started,
            "owned_by": "confide",
            "context_tokens": model.context_tokens,
        });
        if let Some(digest) = &model.manifest_sha256 {
            object["confide_manifest_sha256"] = Value::from(digest.as_str());
        }
        object
    }

    /// Names what is served: a name is easily mistaken, and the list is no secret.
    fn no_model(&self, got: &str) -> ApiError {
        let served: Vec<String> = self.models.keys().map(|name| format!("{name:?}")).collect();
        ApiError::NoModel { got: clipped(got), served: served.join(" or ") }
    }

    fn heading(&self, route: Route, model: String) -> Heading {
        let number = self.answers.fetch_add(1, Ordering::Relaxed);
        let created = (self.options.clock)();
        let kind = match route {
            Route::Chat => "chatcmpl",
            Route::Completion => "cmpl",
        };
        let id = format!("{kind}-{:x}-{number:x}", self.started);
        Heading { route, id, created, model }
    }
}

async fn read_body(site: &Site, body: Body) -> Result<Bytes, ApiError> {
    let limits = &site.options.limits;
    match tokio::time::timeout(limits.body_wait, read_bounded(body, limits)).await {
        Err(_) => Err(ApiError::BodyLate { limit: limits.body_wait }),
        Ok(body) => body,
    }
}

async fn read_bounded(mut body: Body, limits: &Limits) -> Result<Bytes, ApiError> {
    let limit = limits.body_bytes;
    match Limited::new(&mut body, limit).collect().await {
        Ok(whole) => return Ok(whole.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {}
        Err(error) => return Err(ApiError::BodyBroken { reason: error.to_string() }),
    }
    let mut left = limits.discarded_bytes;
    while let Some(Ok(frame)) = body.frame().await {
        let length = frame.data_ref().map_or(0, Bytes::len);
        let Some(rest) = left.checked_sub(length) else { break };
        left = rest;
    }
    Err(ApiError::BodyTooLarge { limit })
}

async fn complete(
    site: &Site,
    route: Route,
    parsed: Parsed,
    body_bytes: usize,
) -> Result<Response, ApiError> {
    let Parsed { request, stream, include_usage } = parsed;
    if !site.models.contains_key(&request.model) {
        return Err(site.no_model(&request.model));
    }
    let slot = site.gate.enter().await?;
    let heading = site.heading(route, request.model.clone());
    let generation = start(site, request, body_bytes).await?;
    if stream {
        return Ok(streamed(site, Chunks::new(heading, include_usage), generation, slot));
    }
    let limit = site.options.limits.generation;
    let answer = tokio::time::timeout(limit, whole(generation)).await;
    let (text, reason, usage) = answer.map_err(|_| ApiError::Deadline { limit })??;
    Ok(json_response(&heading.whole(&text, reason, usage)))
}

/// Starts the generation, off the event loop where a long prompt takes long to tokenise.
async fn start(site: &Site, request: Request, body_bytes: usize) -> Result<Generation, ApiError> {
    const INLINE_BYTES_MAX: usize = 16 << 10;
    let engine = Arc::clone(&site.options.engine);
    if body_bytes <= INLINE_BYTES_MAX {
        return Ok(engine.generate(request)?);
    }
    let started = tokio::task::spawn_blocking(move || engine.generate(request)).await;
    Ok(started.map_err(|_| EngineError::Stopped)??)
}

fn streamed(site: &Site, chunks: Chunks, generation: Generation, slot: Slot) -> Response {
    let events = Events::new(generation, chunks, site.options.limits.generation, slot);
    let kind = HeaderValue::from_static("text/event-stream");
    let cache = HeaderValue::from_static("no-cache");
    let headers = [(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, cache)];
    (headers, Body::new(events)).into_response()
}

async fn whole(mut generation: Generation) -> Result<(String, FinishReason, Usage), ApiError> {
    let mut text = String::new();
    while let Some(event) = generation.next().await {
        match event {
            Event::Token(token) => text.push_str(&token.text),
            Event::Finished { reason, tail, usage, .. } => {
                return Ok((text + &tail, reason, usage));
            }
            Event::AdapterLost { reason } => {
                return Err(EngineError::Failed { reason: reason.to_string() }.into());
            }
            Event::Failed(error) => return Err(error.into()),
        }
    }
    Err(EngineError::Stopped.into())
}

fn json_response(value: &Value) -> Response {
    let kind = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, kind)], value.to_string()).into_response()
}
