//! Split mode over HTTP: hidden states for a client that keeps the LM head.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use axum::{body::Body, extract::State, response::Response};
use confide_engine::{AdapterReport, EngineError, Prompt, SplitModel, SplitSession};
use confide_serve::{
    ApiError, JsonFields, ServerCounters, adapter_report_json, drop_detached, json_response,
    read_body,
};
use serde_json::{Value, json};

use super::route_state::RouteState;
use crate::{
    error::no_hidden_states_error,
    split_mode::{
        ClientHead,
        frame::{self, ForwardRequest, TokenInput},
        milliseconds_since,
    },
};

/// The guarantee of split mode: the server can read the whole text.
pub(super) const SPLIT_GUARANTEE: &str =
    "none: the server reads token numbers, or embeddings that determine them";

/// A split session that stays open between messages.
pub(super) struct OpenSplitSession {
    /// `None` only while the value is being dropped.
    session: Option<Box<dyn SplitSession>>,
    adapter: Option<String>,
    counters: Arc<ServerCounters>,
}

impl Drop for OpenSplitSession {
    fn drop(&mut self) {
        let Some(session) = self.session.take() else { return };
        if let Some(report) = session.adapter_report() {
            self.counters.add_report(&report);
        }
        drop_detached(session);
    }
}

/// A hidden state, and the JSON object about its computation.
pub(super) struct HiddenStateAnswer {
    pub(super) hidden: Vec<f32>,
    pub(super) head: Value,
}

/// `GET /api/v1/split/config`: the shape of the model.
pub(super) async fn model_config(state: State<Arc<RouteState>>) -> Result<Response, ApiError> {
    Ok(json_response(&config_json(&state)?))
}

/// `POST /api/v1/split/tokenize`: the tokens of `{text}`.
pub(super) async fn tokenize(
    state: State<Arc<RouteState>>,
    body: Body,
) -> Result<Response, ApiError> {
    let mut fields = JsonFields::parse(&read_body(state.server.limits(), body).await?)?;
    let text = fields.take_text("text")?.ok_or(ApiError::Missing { param: "text".into() })?;
    fields.finish(&["session_id"])?;
    Ok(json_response(&token_ids_json(&state, text).await?))
}

/// `POST /api/v1/split/forward`: a hidden state as on the socket, but each request opens a session.
pub(super) async fn forward(
    state: State<Arc<RouteState>>,
    body: Body,
) -> Result<Response, ApiError> {
    let asked = frame::parse_forward_body(&read_body(state.server.limits(), body).await?)?;
    if asked.incremental {
        return Err(ApiError::invalid_field(
            "incremental",
            "false: a request has no session; use /api/v1/split/stream",
            &Value::Bool(true),
        ));
    }
    let answer = forward_tokens(&state, &mut None, asked).await?;
    Ok(json_response(&answer_to_json(answer)))
}

/// `POST /api/v1/split/verify`: compares the result of a `forward` with the hidden state that the
/// client expects.
pub(super) async fn verify_forward(
    state: State<Arc<RouteState>>,
    body: Body,
) -> Result<Response, ApiError> {
    let mut fields = JsonFields::parse(&read_body(state.server.limits(), body).await?)?;
    let claimed = fields.take_text("pre_activations_b64")?;
    let claimed = claimed.ok_or(ApiError::Missing { param: "pre_activations_b64".into() })?;
    let claimed = frame::floats_from_base64(&claimed, "pre_activations_b64")?;
    let answer = forward_tokens(&state, &mut None, frame::parse_forward_fields(fields)?).await?;
    let difference = relative_difference(&claimed, &answer.hidden);
    Ok(json_response(&json!({
        "match": difference.is_some_and(|difference| difference < TOLERANCE),
        "relative_difference": difference,
        "tolerance": TOLERANCE,
        "confide": answer.head["confide"],
    })))
}

/// The relative error against plain LoRA below which adapted logits count as a match.
pub(super) const TOLERANCE: f64 = 1e-3;

/// The norm of the difference over the norm of `wanted`; `None` if the widths differ.
pub(super) fn relative_difference(got: &[f32], wanted: &[f32]) -> Option<f64> {
    if got.len() != wanted.len() {
        return None;
    }
    let squares = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>().sqrt();
    let wide = |value: &f32| f64::from(*value);
    let far = squares(&mut got.iter().zip(wanted).map(|(got, wanted)| wide(got) - wide(wanted)));
    Some(far / squares(&mut wanted.iter().map(wide)).max(f64::MIN_POSITIVE))
}

pub(super) fn config_json(state: &RouteState) -> Result<Value, ApiError> {
    let (split, base) = (require_split_model(state)?, state.server.base_model()?);
    let adapters = state.server.adapters().list();
    let active = state.server.adapters().active();
    Ok(json!({
        "type": "config",
        "model": base.name,
        "hidden_dim": split.width(),
        "context_tokens": split.context_tokens(),
        "adapters": adapters.iter().map(|adapter| &adapter.name).collect::<Vec<_>>(),
        "active_adapter": active.map(|adapter| adapter.name.clone()),
        "split_guarantee": SPLIT_GUARANTEE,
        "message_bytes_max": state.limits.message_bytes,
        // The report's server adds its own top 256; here the LM head is the client's.
        "top_logits": 0,
        "tokenizer": state.head.is_some(),
    }))
}

pub(super) async fn token_ids_json(
    state: &Arc<RouteState>,
    text: String,
) -> Result<Value, ApiError> {
    let head = load_head(state).await?;
    let encoding = tokio::task::spawn_blocking(move || head.encode(&Prompt::Text(text)));
    let ids = encoding.await.map_err(|_| EngineError::Stopped)??;
    Ok(json!({ "type": "token_ids", "token_ids": ids, "split_guarantee": SPLIT_GUARANTEE }))
}

/// Runs the model on tokens in the open session, or in a new one.
pub(super) async fn forward_tokens(
    state: &Arc<RouteState>,
    open: &mut Option<OpenSplitSession>,
    asked: ForwardRequest,
) -> Result<HiddenStateAnswer, ApiError> {
    let split = require_split_model(state)?;
    let adapter = select_adapter(state, &asked)?;
    let _slot = state.server.acquire_slot().await?;
    let (limit, counters) = (state.server.limits().generation, Arc::clone(state.server.counters()));
    let held = open.take();
    let started = Instant::now();
    let work = tokio::task::spawn_blocking(move || {
        forward_tokens_blocking(&*split, held, adapter, counters, &asked)
            .map(|done| (done, asked.session_id))
    });
    let done = tokio::time::timeout(limit, work).await;
    let done = done.map_err(|_| ApiError::Deadline { limit })?.map_err(|_| EngineError::Stopped)?;
    let ((reading, hidden), session_id) = done?;
    state.split_forwards.fetch_add(1, Ordering::Relaxed);
    let session = reading.session.as_ref();
    let report = session.and_then(|session| session.adapter_report());
    let head = json!({
        "type": "result",
        "seq_len": 1,
        "hidden_dim": hidden.len(),
        "total_ms": milliseconds_since(started),
        "cached_seq_len": session.map(|session| session.token_count()),
        "expert_name": reading.adapter,
        "session_id": session_id,
        "top_logits": 0,
        "encrypted": report.as_ref().is_some_and(|report| report.report.he_operations > 0),
        "he_operations": report.as_ref().map_or(0, |report| report.report.he_operations),
        "split_guarantee": SPLIT_GUARANTEE,
        "confide": adapter_label_or_null(reading.adapter.as_deref(), report.as_ref()),
    });
    *open = Some(reading);
    Ok(HiddenStateAnswer { hidden, head })
}

/// Converts the answer to one JSON object.
pub(super) fn answer_to_json(answer: HiddenStateAnswer) -> Value {
    let HiddenStateAnswer { hidden, mut head } = answer;
    head["pre_activations_b64"] = frame::floats_to_base64(&hidden).into();
    head
}

pub(super) fn require_split_model(state: &RouteState) -> Result<Arc<dyn SplitModel>, ApiError> {
    state.server.engine().split_model().ok_or_else(no_hidden_states_error)
}

/// Returns the LM head, which is loaded on the first call.
pub(super) async fn load_head(state: &Arc<RouteState>) -> Result<Arc<dyn ClientHead>, ApiError> {
    let late = state.head.clone().ok_or_else(no_hidden_states_error)?;
    let loading = tokio::task::spawn_blocking(move || late.load());
    Ok(loading.await.map_err(|_| EngineError::Stopped)??)
}

fn adapter_label_or_null(name: Option<&str>, report: Option<&AdapterReport>) -> Option<Value> {
    Some(adapter_report_json(name?, report?))
}

/// The adapter of a request: the named one, or the active one; `None` for the base model.
fn select_adapter(state: &RouteState, asked: &ForwardRequest) -> Result<Option<String>, ApiError> {
    let name = match (&asked.adapter, asked.adapted) {
        (_, false) => return Ok(None),
        (Some(name), true) => state.server.find_model(name)?,
        (None, true) => {
            return Ok(state.server.adapters().active().map(|adapter| adapter.name.clone()));
        }
    };
    Ok(name.parent.is_some().then_some(name.name))
}

fn forward_tokens_blocking(
    split: &dyn SplitModel,
    held: Option<OpenSplitSession>,
    adapter: Option<String>,
    counters: Arc<ServerCounters>,
    asked: &ForwardRequest,
) -> Result<(OpenSplitSession, Vec<f32>), EngineError> {
    let mut reading = match held {
        Some(held) if held.adapter == adapter => held,
        _ => OpenSplitSession {
            session: Some(split.open_session(adapter.as_deref())?),
            adapter,
            counters,
        },
    };
    let session = reading.session.as_mut().ok_or(EngineError::Stopped)?;
    if !asked.incremental {
        session.restart();
    }
    let hidden = match &asked.input {
        TokenInput::Ids(ids) => session.forward(ids)?,
        TokenInput::Embeddings(rows) => session.forward_embeddings(rows)?,
    };
    Ok((reading, hidden))
}
