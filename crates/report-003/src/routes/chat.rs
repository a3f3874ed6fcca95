//! `chat/compare`: the base model's answer, then the adapter's.

use std::{sync::Arc, time::Instant};

use axum::{body::Body, extract::State, response::Response};
use confide_serve::{ApiError, Ending, json_response, label, read_answer, read_body};
use serde_json::{Value, json};

use super::{layer::Layer, query::Query};
use crate::split_mode::since_ms;

/// `POST /api/v1/chat/compare`: the base model's answer, then the adapter's, one after the other.
pub(super) async fn compare(layer: State<Arc<Layer>>, body: Body) -> Result<Response, ApiError> {
    let body = read_body(layer.server.limits(), body).await?;
    let query = Query::parse(&body)?;
    let (base, adapter) = (layer.server.base()?.name, query.adapter_name(&layer)?);
    let mut answer = json!({
        "query": query.text,
        "adapter": adapter,
        "ignored": query.ignored,
        "base": complete_once(&layer, &query, &base, body.len()).await?,
    });
    answer["adapted"] = match query.adapted {
        true => complete_once(&layer, &query, &adapter, body.len()).await?,
        false => Value::Null,
    };
    Ok(json_response(&answer))
}

async fn complete_once(
    layer: &Layer,
    query: &Query,
    model: &str,
    body_bytes: usize,
) -> Result<Value, ApiError> {
    let _slot = layer.server.enter().await?;
    let (limit, started) = (layer.server.limits().generation, Instant::now());
    let generation = layer.server.start(query.request(model, layer), body_bytes).await?;
    let answer =
        tokio::time::timeout(limit, read_answer(generation, layer.server.counters().meter())).await;
    let (text, ending) = answer.map_err(|_| ApiError::Deadline { limit })??;
    Ok(side(model, &text, &ending, since_ms(started)))
}

/// One side of the comparison. `encrypted` is true only where homomorphic operations ran.
fn side(model: &str, text: &str, ending: &Ending, time_ms: f64) -> Value {
    let tokens = ending.usage.completion_tokens;
    let mut side = json!({
        "model": model,
        "response": text,
        "tokens": tokens,
        "time_ms": time_ms,
        "tok_s": rate(tokens, time_ms),
        "encrypted": false,
        "he_operations": 0,
        "rotations": 0,
        "guarantee": "none",
    });
    if let Some(adapter) = &ending.adapter {
        side["encrypted"] = (adapter.report.he_operations > 0).into();
        side["he_operations"] = adapter.report.he_operations.into();
        side["rotations"] = adapter.report.he_rotations.into();
        side["guarantee"] = adapter.guarantee.to_string().into();
        side["confide"] = label(model, adapter);
    }
    side
}

/// Tokens per second; `None` if no time passed.
pub(super) fn rate(tokens: u32, time_ms: f64) -> Option<f64> {
    (time_ms > 0.0).then(|| f64::from(tokens) * 1000.0 / time_ms)
}
