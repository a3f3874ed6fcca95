//! The self-test: split mode in one process, compared with plain LoRA.

use std::{sync::Arc, time::Instant};

use axum::{extract::State, response::Response};
use confide_engine::{EngineError, Prompt, Request, SplitSession};
use confide_serve::{
    ApiError, LoadedAdapter, adapter_report_json, json_response, refuse_web_pages,
};
use http::HeaderMap;
use serde_json::{Value, json};

use super::{
    chat::tokens_per_second,
    route_state::RouteState,
    split::{SPLIT_GUARANTEE, TOLERANCE, load_head, relative_difference, require_split_model},
};
use crate::split_mode::{ClientHead, ForwardResult, generate_split, milliseconds_since};

/// The number of tokens of the self-test. It and the query are the report's.
const TOKENS: u32 = 64;
const QUERY: &str = "What is a savings account?";

/// `GET /api/v1/split/selftest`: split mode in one process. `he_match` compares the logits of every
/// token with those of plain LoRA, if this process holds the adapter in the clear.
///
/// Requests from web pages are refused, because the self-test computes for seconds.
pub(super) async fn run_selftest(
    state: State<Arc<RouteState>>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    refuse_web_pages(&headers)?;
    let _only = state.selftest.try_lock().map_err(|_| ApiError::LoadsQueued)?;
    let head = load_head(&state).await?;
    let _slot = state.server.acquire_slot().await?;
    let limit = state.server.limits().generation;
    let own = Arc::clone(&state);
    let work = tokio::task::spawn_blocking(move || run_comparison(&own, &*head));
    let done = tokio::time::timeout(limit, work).await;
    let done = done.map_err(|_| ApiError::Deadline { limit })?;
    Ok(json_response(&done.map_err(|_| EngineError::Stopped)??))
}

fn run_comparison(state: &RouteState, head: &dyn ClientHead) -> Result<Value, ApiError> {
    let adapters = &state.server.adapters();
    let Some(adapter) = adapters.active() else {
        return generate_and_compare(state, head, None, None);
    };
    match adapter.reference() {
        None => generate_and_compare(state, head, Some(&adapter), None),
        Some(reference) => adapters
            .run_with_reference(&adapter, reference, |name| {
                generate_and_compare(state, head, Some(&adapter), Some(name))
            })
            .map_err(ApiError::from)?,
    }
}

fn generate_and_compare(
    state: &RouteState,
    head: &dyn ClientHead,
    adapter: Option<&Arc<LoadedAdapter>>,
    reference: Option<&str>,
) -> Result<Value, ApiError> {
    let (split, base) = (require_split_model(state)?, state.server.base_model()?.name);
    let name = adapter.map(|adapter| adapter.name.as_str());
    let mut session = split.open_session(name)?;
    let mut plain = reference.map(|name| split.open_session(Some(name))).transpose()?;
    let request = Request {
        max_tokens: Some(TOKENS),
        ignore_eos: true,
        ..Request::new(base, Prompt::Text(QUERY.into()))
    };
    let (mut worst, mut compare_ms, mut text) = (None, 0.0, String::new());
    let started = Instant::now();
    let ended = generate_split(
        head,
        &request,
        split.context_tokens(),
        &mut |ids| {
            let hidden = session.forward(ids)?;
            if let Some(plain) = &mut plain {
                let comparing = Instant::now();
                let difference = compare_logits(head, &mut **plain, ids, &hidden)?;
                worst = Some(difference.max(worst.unwrap_or_default()));
                compare_ms += milliseconds_since(comparing);
            }
            Ok(ForwardResult { hidden, adapter: session.adapter_report() })
        },
        &mut |step| {
            text.push_str(&step.token.text);
            true
        },
    )?;
    let total_ms = milliseconds_since(started) - compare_ms;
    let ended = ended.ok_or(EngineError::Stopped)?;
    let he_operations = ended.adapter.as_ref().map_or(0, |adapter| adapter.report.he_operations);
    let (he_match, reason) = judge_match(worst, he_operations, name.is_some());
    Ok(json!({
        "query": QUERY,
        "response": text + &ended.tail,
        "tokens": ended.usage.completion_tokens,
        "total_ms": total_ms,
        "tok_s": tokens_per_second(ended.usage.completion_tokens, total_ms),
        "adapter": name,
        "encrypted": he_operations > 0,
        "he_operations": he_operations,
        "he_match": he_match,
        "he_match_reason": reason,
        "logits_relative_error_max": worst,
        "tolerance": TOLERANCE,
        "guarantee": ended.adapter.as_ref()
            .map_or_else(|| "none".into(), |adapter| adapter.guarantee.to_string()),
        "split_guarantee": SPLIT_GUARANTEE,
        "confide": name.zip(ended.adapter.as_ref()).map(|(name, adapter)| adapter_report_json(name, adapter)),
    }))
}

/// The greatest relative difference between the logits of the same tokens.
fn compare_logits(
    head: &dyn ClientHead,
    plain: &mut dyn SplitSession,
    ids: &[u32],
    hidden: &[f32],
) -> Result<f64, EngineError> {
    let wanted = head.logits(&plain.forward(ids)?)?;
    Ok(relative_difference(&head.logits(hidden)?, &wanted).unwrap_or(f64::INFINITY))
}

/// Judges a comparison. A match is claimed only if homomorphic operations ran and their results were
/// compared with plain LoRA.
fn judge_match(
    worst: Option<f64>,
    he_operations: u64,
    adapted: bool,
) -> (Option<bool>, &'static str) {
    match (worst, he_operations) {
        _ if !adapted => (None, "no adapter is loaded"),
        (None, _) => (None, "the adapter is not in this process, so plain LoRA cannot be computed"),
        (Some(_), 0) => (None, "no homomorphic operation ran"),
        (Some(worst), _) => (Some(worst < TOLERANCE), "logits were compared with plain LoRA's"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_match_needs_operations_and_something_to_match() {
        assert_eq!(judge_match(Some(1e-6), 9, true).0, Some(true));
        assert_eq!(judge_match(Some(0.1), 9, true).0, Some(false));
        assert_eq!(judge_match(Some(f64::INFINITY), 9, true).0, Some(false));
        assert_eq!(judge_match(Some(0.0), 0, true).0, None);
        assert_eq!(judge_match(None, 9, true).0, None);
        assert_eq!(judge_match(None, 0, false).0, None);
    }
}
