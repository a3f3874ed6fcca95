//! The routes of OpenAI's API.

use std::sync::Arc;

use axum::{
    Router,
    body::Body,
    extract::{DefaultBodyLimit, Path, State},
    middleware,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use confide_engine::Generation;
use http::{HeaderName, HeaderValue, Method, Uri, header};
use serde_json::{Value, json};

use crate::{
    body::{json_response, read_body},
    chunk::{ChunkWriter, CompletionRoute},
    counters::AnswerMeter,
    error::ApiError,
    events::AnswerStream,
    gate::Slot,
    loading, pages,
    parse::{ParsedRequest, parse_chat, parse_completion},
    server_state::{ServeOptions, ServerState, read_answer},
};

/// Makes the router of all routes.
pub fn router(options: ServeOptions) -> Router {
    let origins: Arc<[HeaderValue]> = options.origins.clone().into();
    let extra_routes = options.extra_routes.clone();
    let server = Arc::new(ServerState::new(options));
    let extra = extra_routes.map_or_else(Router::new, |routes| routes(Arc::clone(&server)));
    Router::new()
        .route("/health", get(show_health))
        .route("/v1/chat/completions", post(complete_chat))
        .route("/v1/completions", post(complete_text))
        .route("/v1/models", get(list_models))
        .route("/v1/models/{*name}", get(show_model))
        .route("/v1/load_lora_adapter", post(loading::load_adapter))
        .route("/v1/unload_lora_adapter", post(loading::unload_adapter))
        .with_state(server)
        .merge(extra)
        .fallback(answer_unknown_route)
        .method_not_allowed_fallback(answer_wrong_method)
        // The handlers limit the body's length and time themselves.
        .layer(DefaultBodyLimit::disable())
        .layer(middleware::from_fn_with_state(origins, pages::refuse_foreign_origins))
}

async fn complete_chat(server: State<Arc<ServerState>>, body: Body) -> Result<Response, ApiError> {
    let body = read_body(&server.options.limits, body).await?;
    let parsed = parse_chat(&body, server.options.limits.prompt_tokens)?;
    complete(&server, CompletionRoute::Chat, parsed, body.len()).await
}

async fn complete_text(server: State<Arc<ServerState>>, body: Body) -> Result<Response, ApiError> {
    let body = read_body(&server.options.limits, body).await?;
    let parsed = parse_completion(&body, server.options.limits.prompt_tokens)?;
    complete(&server, CompletionRoute::Completion, parsed, body.len()).await
}

async fn show_health() -> Response {
    json_response(&json!({ "status": "ok" }))
}

async fn list_models(server: State<Arc<ServerState>>) -> Response {
    let data: Vec<Value> = server.models().iter().map(|model| server.model_object(model)).collect();
    json_response(&json!({ "object": "list", "data": data }))
}

async fn show_model(
    server: State<Arc<ServerState>>,
    Path(name): Path<String>,
) -> Result<Response, ApiError> {
    Ok(json_response(&server.model_object(&server.find_model(&name)?)))
}

async fn answer_unknown_route(method: Method, uri: Uri) -> ApiError {
    ApiError::NoRoute { method: method.to_string(), path: uri.path().into() }
}

async fn answer_wrong_method(method: Method, uri: Uri) -> ApiError {
    ApiError::NotAllowed { method: method.to_string(), path: uri.path().into() }
}

async fn complete(
    server: &ServerState,
    route: CompletionRoute,
    parsed: ParsedRequest,
    body_bytes: usize,
) -> Result<Response, ApiError> {
    let ParsedRequest { request, stream, include_usage } = parsed;
    let model = server.find_model(&request.model)?;
    let slot = server.gate.enter().await?;
    let heading = server.new_heading(route, model);
    let generation = server.start_generation(request, body_bytes).await?;
    let meter = server.counters.start_answer_meter();
    if stream {
        let chunks = ChunkWriter::new(heading, include_usage);
        return Ok(stream_response(server, chunks, generation, meter, slot));
    }
    let limit = server.options.limits.generation;
    let answer = tokio::time::timeout(limit, read_answer(generation, meter)).await;
    let (text, ending) = answer.map_err(|_| ApiError::Deadline { limit })??;
    let answer = json_response(&heading.completion_object(&text, &ending));
    Ok(([(SERVER_TIMING, server_timing(&slot))], answer).into_response())
}

/// The field of W3C Server-Timing, which states the request's wait for a slot.
const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

fn server_timing(slot: &Slot) -> HeaderValue {
    let text = format!("queue;dur={:.3}", slot.waiting_time().as_secs_f64() * 1e3);
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("queue"))
}

fn stream_response(
    server: &ServerState,
    chunks: ChunkWriter,
    generation: Generation,
    meter: AnswerMeter,
    slot: Slot,
) -> Response {
    let timing = server_timing(&slot);
    let events =
        AnswerStream::new(generation, chunks, server.options.limits.generation, meter, slot);
    let kind = HeaderValue::from_static("text/event-stream");
    let cache = HeaderValue::from_static("no-cache");
    let headers =
        [(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, cache), (SERVER_TIMING, timing)];
    (headers, Body::new(events)).into_response()
}
