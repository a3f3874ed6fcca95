//! `chat/compare`: the base model's answer, then the adapter's.

use std::{sync::Arc, time::Instant};

use axum::{body::Body, extract::State, response::Response};
use confide_serve::{
    AnswerEnding, ApiError, adapter_report_json, json_response, read_answer, read_body,
};
use serde_json::{Value, json};

use super::{query::ChatQuery, route_state::RouteState};
use crate::split_mode::milliseconds_since;

/// `POST /api/v1/chat/compare`: the base model's answer, then the adapter's, one after the other.
pub(super) async fn compare_with_base(
    state: State<Arc<RouteState>>,
    body: Body,
) -> Result<Response, ApiError> {
    let body = read_body(state.server.limits(), body).await?;
    let query = ChatQuery::parse(&body)?;
    let (base, adapter) = (state.server.base_model()?.name, query.adapter_name(&state)?);
    let mut answer = json!({
        "query": query.text,
        "adapter": adapter,
        "ignored": query.ignored,
        "base": complete_once(&state, &query, &base, body.len()).await?,
    });
    answer["adapted"] = match query.adapted {
        true => complete_once(&state, &query, &adapter, body.len()).await?,
        false => Value::Null,
    };
    Ok(json_response(&answer))
}

async fn complete_once(
    state: &RouteState,
    query: &ChatQuery,
    model: &str,
    body_bytes: usize,
) -> Result<Value, ApiError> {
    let _slot = state.server.acquire_slot().await?;
    let (limit, started) = (state.server.limits().generation, Instant::now());
    let generation =
        state.server.start_generation(query.to_request(model, state), body_bytes).await?;
    let answer = tokio::time::timeout(
        limit,
        read_answer(generation, state.server.counters().start_answer_meter()),
    )
    .await;
    let (text, ending) = answer.map_err(|_| ApiError::Deadline { limit })??;
    Ok(comparison_side(model, &text, &ending, milliseconds_since(started)))
}

/// One side of the comparison. `encrypted` is true only if homomorphic operations ran.
fn comparison_side(model: &str, text: &str, ending: &AnswerEnding, time_ms: f64) -> Value {
    let tokens = ending.usage.completion_tokens;
    let mut side = json!({
        "model": model,
        "response": text,
        "tokens": tokens,
        "time_ms": time_ms,
        "tok_s": tokens_per_second(tokens, time_ms),
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
        side["confide"] = adapter_report_json(model, adapter);
    }
    side
}

/// Tokens per second; `None` if no time passed.
pub(super) fn tokens_per_second(tokens: u32, time_ms: f64) -> Option<f64> {
    (time_ms > 0.0).then(|| f64::from(tokens) * 1000.0 / time_ms)
}
