//! Split mode over HTTP: hidden states for a client that keeps the LM head.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use axum::{body::Body, extract::State, response::Response};
use confide_engine::{AdapterReport, EngineError, Prompt, Split, SplitSession};
use confide_serve::{ApiError, Counters, Fields, drop_detached, json_response, label, read_body};
use serde_json::{Value, json};

use super::layer::Layer;
use crate::{
    error::no_hidden_states,
    split_mode::{
        Head,
        frame::{self, Forward, Input},
        since_ms,
    },
};

/// The guarantee of split mode: nothing of the text is hidden from the server.
pub(super) const SPLIT_GUARANTEE: &str =
    "none: the server reads token numbers, or embeddings that determine them";

/// A split session that stays open between messages.
pub(super) struct Reading {
    /// `None` only while it is dropped.
    session: Option<Box<dyn SplitSession>>,
    adapter: Option<String>,
    counters: Arc<Counters>,
}

impl Drop for Reading {
    fn drop(&mut self) {
        let Some(session) = self.session.take() else { return };
        if let Some(report) = session.adapter() {
            self.counters.add_report(&report);
        }
        drop_detached(session);
    }
}

/// A hidden state, and the cost of computing it.
pub(super) struct Answer {
    pub(super) hidden: Vec<f32>,
    pub(super) head: Value,
}

/// `GET /api/v1/split/config`: the shape of the model.
pub(super) async fn config(layer: State<Arc<Layer>>) -> Result<Response, ApiError> {
    Ok(json_response(&config_object(&layer)?))
}

/// `POST /api/v1/split/tokenize`: the tokens of `{text}`.
pub(super) async fn tokenize(layer: State<Arc<Layer>>, body: Body) -> Result<Response, ApiError> {
    let mut fields = Fields::parse(&read_body(layer.server.limits(), body).await?)?;
    let text = fields.text("text")?.ok_or(ApiError::Missing { param: "text".into() })?;
    fields.finish(&["session_id"])?;
    Ok(json_response(&token_ids(&layer, text).await?))
}

/// `POST /api/v1/split/forward`: as on the socket, but every request opens a new session.
pub(super) async fn forward(layer: State<Arc<Layer>>, body: Body) -> Result<Response, ApiError> {
    let asked = frame::parse_body(&read_body(layer.server.limits(), body).await?)?;
    if asked.incremental {
        return Err(ApiError::field(
            "incremental",
            "false: a request has no session, /api/v1/split/stream has",
            &Value::Bool(true),
        ));
    }
    let answer = read(&layer, &mut None, asked).await?;
    Ok(json_response(&in_text(answer)))
}

/// `POST /api/v1/split/verify`: a `forward`, and the hidden state that the client expects from it.
pub(super) async fn verify(layer: State<Arc<Layer>>, body: Body) -> Result<Response, ApiError> {
    let mut fields = Fields::parse(&read_body(layer.server.limits(), body).await?)?;
    let claimed = fields.text("pre_activations_b64")?;
    let claimed = claimed.ok_or(ApiError::Missing { param: "pre_activations_b64".into() })?;
    let claimed = frame::rows_of(&claimed, "pre_activations_b64")?;
    let answer = read(&layer, &mut None, frame::parse_fields(fields)?).await?;
    let difference = relative_difference(&claimed, &answer.hidden);
    Ok(json_response(&json!({
        "match": difference.is_some_and(|difference| difference < TOLERANCE),
        "relative_difference": difference,
        "tolerance": TOLERANCE,
        "confide": answer.head["confide"],
    })))
}

/// The greatest relative error of adapted logits compared with plain LoRA that counts as a match.
pub(super) const TOLERANCE: f64 = 1e-3;

/// The length of the difference over the length of `wanted`; `None` if the widths differ.
pub(super) fn relative_difference(got: &[f32], wanted: &[f32]) -> Option<f64> {
    if got.len() != wanted.len() {
        return None;
    }
    let squares = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>().sqrt();
    let wide = |value: &f32| f64::from(*value);
    let far = squares(&mut got.iter().zip(wanted).map(|(got, wanted)| wide(got) - wide(wanted)));
    Some(far / squares(&mut wanted.iter().map(wide)).max(f64::MIN_POSITIVE))
}

pub(super) fn config_object(layer: &Layer) -> Result<Value, ApiError> {
    let (split, base) = (split_of(layer)?, layer.server.base()?);
    let adapters = layer.server.adapters().all();
    let active = layer.server.adapters().active();
    Ok(json!({
        "type": "config",
        "model": base.name,
        "hidden_dim": split.width(),
        "context_tokens": split.context_tokens(),
        "adapters": adapters.iter().map(|adapter| &adapter.name).collect::<Vec<_>>(),
        "active_adapter": active.map(|adapter| adapter.name.clone()),
        "split_guarantee": SPLIT_GUARANTEE,
        "message_bytes_max": layer.limits.message_bytes,
        // The report's server adds its own top 256; here the LM head is the client's.
        "top_logits": 0,
        "tokenizer": layer.head.is_some(),
    }))
}

pub(super) async fn token_ids(layer: &Arc<Layer>, text: String) -> Result<Value, ApiError> {
    let head = head_of(layer).await?;
    let encoding = tokio::task::spawn_blocking(move || head.encode(&Prompt::Text(text)));
    let ids = encoding.await.map_err(|_| EngineError::Stopped)??;
    Ok(json!({ "type": "token_ids", "token_ids": ids, "split_guarantee": SPLIT_GUARANTEE }))
}

/// Reads tokens in the session that is open, or in a new one.
pub(super) async fn read(
    layer: &Arc<Layer>,
    open: &mut Option<Reading>,
    asked: Forward,
) -> Result<Answer, ApiError> {
    let split = split_of(layer)?;
    let adapter = adapter_of(layer, &asked)?;
    let _slot = layer.server.enter().await?;
    let (limit, counters) = (layer.server.limits().generation, Arc::clone(layer.server.counters()));
    let held = open.take();
    let started = Instant::now();
    let work = tokio::task::spawn_blocking(move || {
        read_now(&*split, held, adapter, counters, &asked).map(|done| (done, asked.session_id))
    });
    let done = tokio::time::timeout(limit, work).await;
    let done = done.map_err(|_| ApiError::Deadline { limit })?.map_err(|_| EngineError::Stopped)?;
    let ((reading, hidden), session_id) = done?;
    layer.split_forwards.fetch_add(1, Ordering::Relaxed);
    let session = reading.session.as_ref();
    let report = session.and_then(|session| session.adapter());
    let head = json!({
        "type": "result",
        "seq_len": 1,
        "hidden_dim": hidden.len(),
        "total_ms": since_ms(started),
        "cached_seq_len": session.map(|session| session.read_tokens()),
        "expert_name": reading.adapter,
        "session_id": session_id,
        "top_logits": 0,
        "encrypted": report.as_ref().is_some_and(|report| report.report.he_operations > 0),
        "he_operations": report.as_ref().map_or(0, |report| report.report.he_operations),
        "split_guarantee": SPLIT_GUARANTEE,
        "confide": optional_label(reading.adapter.as_deref(), report.as_ref()),
    });
    *open = Some(reading);
    Ok(Answer { hidden, head })
}

/// Writes the answer as one JSON object.
pub(super) fn in_text(answer: Answer) -> Value {
    let Answer { hidden, mut head } = answer;
    head["pre_activations_b64"] = frame::to_base64(&hidden).into();
    head
}

pub(super) fn split_of(layer: &Layer) -> Result<Arc<dyn Split>, ApiError> {
    layer.server.engine().split().ok_or_else(no_hidden_states)
}

/// The LM head, which is loaded now if it was not before.
pub(super) async fn head_of(layer: &Arc<Layer>) -> Result<Arc<dyn Head>, ApiError> {
    let late = layer.head.clone().ok_or_else(no_hidden_states)?;
    let loading = tokio::task::spawn_blocking(move || late.load());
    Ok(loading.await.map_err(|_| EngineError::Stopped)??)
}

fn optional_label(name: Option<&str>, report: Option<&AdapterReport>) -> Option<Value> {
    Some(label(name?, report?))
}

/// The adapter that is asked for: by name, the active one, or `None` if none is loaded.
fn adapter_of(layer: &Layer, asked: &Forward) -> Result<Option<String>, ApiError> {
    let name = match (&asked.adapter, asked.adapted) {
        (_, false) => return Ok(None),
        (Some(name), true) => layer.server.model(name)?,
        (None, true) => {
            return Ok(layer.server.adapters().active().map(|adapter| adapter.name.clone()));
        }
    };
    Ok(name.parent.is_some().then_some(name.name))
}

fn read_now(
    split: &dyn Split,
    held: Option<Reading>,
    adapter: Option<String>,
    counters: Arc<Counters>,
    asked: &Forward,
) -> Result<(Reading, Vec<f32>), EngineError> {
    let mut reading = match held {
        Some(held) if held.adapter == adapter => held,
        _ => Reading { session: Some(split.open(adapter.as_deref())?), adapter, counters },
    };
    let session = reading.session.as_mut().ok_or(EngineError::Stopped)?;
    if !asked.incremental {
        session.restart();
    }
    let hidden = match &asked.input {
        Input::Ids(ids) => session.forward(ids)?,
        Input::Rows(rows) => session.forward_rows(rows)?,
    };
    Ok((reading, hidden))
}
