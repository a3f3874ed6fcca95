//! `chat/stream`: an answer token by token, with the times of each token's parts.

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use axum::{body::Body, extract::State, response::Response};
use confide_engine::{AdapterReport, EngineError, Generation, GenerationEvent};
use confide_serve::{
    AnswerEnding, AnswerMeter, ApiError, Slot, adapter_loss_json, adapter_report_json,
};
use futures_util::StreamExt;
use http::Request;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{
    chat::tokens_per_second,
    query::ChatQuery,
    route_state::RouteState,
    socket::{ClientMessage, ClientSocket, Disconnected, upgrade},
    split::{load_head, require_split_model},
};
use crate::split_mode::{
    ForwardResult, SplitCompletion, TimedToken, generate_split, milliseconds_since,
};

/// `WS /api/v1/chat/stream`: each text message is a query, answered by `input_info`, a `token` for
/// each token, and `done` or `error`.
pub(super) async fn open_chat_socket(
    state: State<Arc<RouteState>>,
    request: Request<Body>,
) -> Result<Response, ApiError> {
    upgrade(&state, request, serve_socket)
}

async fn serve_socket(state: Arc<RouteState>, mut socket: ClientSocket) {
    while let Some(received) = socket.receive().await {
        let (ClientMessage::Text(bytes) | ClientMessage::Binary(bytes)) = received;
        let answered = match ChatQuery::parse(&bytes) {
            Ok(query) => answer_query(&state, &mut socket, &query, bytes.len()).await,
            Err(error) => socket.send_error(&error, None).await,
        };
        if answered.is_err() {
            return;
        }
    }
}

async fn answer_query(
    state: &Arc<RouteState>,
    socket: &mut ClientSocket,
    query: &ChatQuery,
    bytes: usize,
) -> Result<(), Disconnected> {
    let session = query.session_id.as_deref();
    let limit = state.server.limits().generation;
    let sending = async {
        match start_answer(state, query, bytes).await {
            Ok((info, running)) => {
                socket.send_json(&info).await?;
                send_events(socket, running).await
            }
            Err(error) => Ok(Err(error)),
        }
    };
    match tokio::time::timeout(limit, sending).await {
        Err(_) => socket.send_error(&ApiError::Deadline { limit }, session).await,
        Ok(Err(Disconnected)) => Err(Disconnected),
        Ok(Ok(Ok(()))) => Ok(()),
        Ok(Ok(Err(error))) => socket.send_error(&error, session).await,
    }
}

/// An event of a running answer.
enum AnswerEvent {
    /// A token and its times, and whether the times of its parts are known.
    Token(TimedToken, bool),
    End(AnswerEnding, String),
    Failed(ApiError),
}

struct RunningAnswer {
    events: mpsc::Receiver<AnswerEvent>,
    model: String,
    session_id: Option<String>,
    meter: AnswerMeter,
    _slot: Slot,
}

/// The greatest number of events that wait for a slow client.
const QUEUED_MAX: usize = 64;

async fn start_answer(
    state: &Arc<RouteState>,
    query: &ChatQuery,
    bytes: usize,
) -> Result<(Value, RunningAnswer), ApiError> {
    let model =
        if query.adapted { query.adapter_name(state)? } else { state.server.base_model()?.name };
    let slot = state.server.acquire_slot().await?;
    let (sender, events) = mpsc::channel(QUEUED_MAX);
    let request = query.to_request(&model, state);
    let prompt_tokens = state.server.engine().count_prompt_tokens(&model, &request.prompt)?;
    let adapter = state.server.adapters().find(&model);
    if state.server.engine().split_model().is_some() && state.head.is_some() {
        run_split_halves(state, request, adapter.is_some(), sender).await?;
    } else {
        tokio::spawn(forward_engine_events(
            state.server.start_generation(request, bytes).await?,
            sender,
        ));
    }
    let guarantee = adapter.as_ref().map(|adapter| adapter.guarantee().to_string());
    let info = json!({
        "type": "input_info",
        "query": query.text,
        "prompt_tokens": prompt_tokens,
        "max_tokens": query.max_tokens,
        "active_expert": adapter.as_ref().map(|adapter| &adapter.name),
        "guarantee": guarantee.unwrap_or_else(|| "none".into()),
        "session_id": query.session_id,
        "ignored": query.ignored,
    });
    let (session_id, meter) =
        (query.session_id.clone(), state.server.counters().start_answer_meter());
    Ok((info, RunningAnswer { events, model, session_id, meter, _slot: slot }))
}

/// Runs both halves of split mode in this process, so that the parts of each token can be timed.
async fn run_split_halves(
    state: &Arc<RouteState>,
    request: confide_engine::Request,
    adapted: bool,
    sender: mpsc::Sender<AnswerEvent>,
) -> Result<(), ApiError> {
    let (split, head) = (require_split_model(state)?, load_head(state).await?);
    tokio::task::spawn_blocking(move || {
        let answer = || {
            let mut session = split.open_session(adapted.then_some(request.model.as_str()))?;
            let mut forward = |ids: &[u32]| {
                let hidden = session.forward(ids)?;
                Ok(ForwardResult { hidden, adapter: session.adapter_report() })
            };
            let mut each = |step| sender.blocking_send(AnswerEvent::Token(step, true)).is_ok();
            generate_split(&*head, &request, split.context_tokens(), &mut forward, &mut each)
        };
        let end = match answer() {
            // The client has disconnected.
            Ok(None) => return,
            Ok(Some(ended)) => {
                let SplitCompletion { reason, tail, usage, adapter } = ended;
                AnswerEvent::End(AnswerEnding { reason, usage, adapter }, tail)
            }
            Err(error) => AnswerEvent::Failed(error.into()),
        };
        let _ = sender.blocking_send(end);
    });
    Ok(())
}

/// Forwards the events of an engine without split mode, where only whole tokens can be timed.
async fn forward_engine_events(mut generation: Generation, sender: mpsc::Sender<AnswerEvent>) {
    let mut lost = None;
    let mut since = Instant::now();
    while let Some(event) = generation.next().await {
        let event = match event {
            GenerationEvent::Token(token) => {
                let forward_ms = milliseconds_since(since);
                since = Instant::now();
                let (head_ms, choose_ms) = (0.0, 0.0);
                let adapter = lost.clone();
                AnswerEvent::Token(
                    TimedToken { token, forward_ms, head_ms, choose_ms, adapter },
                    false,
                )
            }
            GenerationEvent::AdapterLost { reason } => {
                let guarantee = confide_lora::Guarantee::NONE;
                let report = confide_lora::DeltaReport::default();
                lost = Some(AdapterReport { report, guarantee, lost: Some(reason) });
                continue;
            }
            GenerationEvent::Finished { reason, tail, usage, adapter } => {
                AnswerEvent::End(AnswerEnding { reason, usage, adapter }, tail)
            }
            GenerationEvent::Failed(error) => AnswerEvent::Failed(error.into()),
        };
        if sender.send(event).await.is_err() {
            return;
        }
    }
}

/// Sends the events of a running answer to the client. The inner error is that of the answer.
async fn send_events(
    socket: &mut ClientSocket,
    mut running: RunningAnswer,
) -> Result<Result<(), ApiError>, Disconnected> {
    let started = Instant::now();
    let (mut tokens, mut text, mut lost) = (0u32, String::new(), false);
    let mut before = AdapterCost::default();
    while let Some(event) = running.events.recv().await {
        match event {
            AnswerEvent::Failed(error) => return Ok(Err(error)),
            AnswerEvent::End(ending, tail) => {
                running.meter.finish(ending.adapter.as_ref());
                text.push_str(&tail);
                let total_ms = milliseconds_since(started);
                socket.send_json(&done_message(&running, &ending, &tail, &text, total_ms)).await?;
                return Ok(Ok(()));
            }
            AnswerEvent::Token(step, timed) => {
                running.meter.count_token();
                tokens += 1;
                text.push_str(&step.token.text);
                let reason = step.adapter.as_ref().and_then(|adapter| adapter.lost.as_ref());
                if let (Some(reason), false) = (reason, lost) {
                    lost = true;
                    let mut event = adapter_loss_json(&running.model, reason);
                    event["type"] = "adapter_lost".into();
                    socket.send_json(&event).await?;
                }
                let now = AdapterCost::from_report(step.adapter.as_ref());
                let metrics = token_metrics(&step, timed, &before, &now, &running.model, lost);
                let elapsed_ms = milliseconds_since(started);
                let event = json!({
                    "type": "token",
                    "token": step.token.text,
                    "token_id": step.token.id,
                    "index": tokens - 1,
                    "metrics": metrics,
                    "aggregate": {
                        "tokens": tokens,
                        "elapsed_ms": elapsed_ms,
                        "tok_s": tokens_per_second(tokens, elapsed_ms),
                        "he_operations": timed.then_some(now.operations),
                        "he_rotations": timed.then_some(now.rotations),
                    },
                });
                before = now;
                socket.send_json(&event).await?;
            }
        }
    }
    Ok(Err(EngineError::Stopped.into()))
}

/// The cost of the adapter from the start of the answer up to a token.
#[derive(Default)]
struct AdapterCost {
    operations: u64,
    rotations: u64,
    steps_ms: BTreeMap<&'static str, f64>,
}

impl AdapterCost {
    fn from_report(adapter: Option<&AdapterReport>) -> Self {
        let Some(AdapterReport { report, .. }) = adapter else { return Self::default() };
        let (operations, rotations) = (report.he_operations, report.he_rotations);
        Self { operations, rotations, steps_ms: report.steps_ms.clone() }
    }
}

/// The metrics of one token. A part that was not measured is null.
fn token_metrics(
    step: &TimedToken,
    timed: bool,
    before: &AdapterCost,
    now: &AdapterCost,
    model: &str,
    lost: bool,
) -> Value {
    let of_step = |name: &str| {
        let [now, before] = [now, before].map(|taken| taken.steps_ms.get(name).copied());
        Some(now? - before.unwrap_or_default())
    };
    let operations = now.operations.saturating_sub(before.operations);
    let steps: BTreeMap<&str, f64> =
        now.steps_ms.keys().filter_map(|name| Some((*name, of_step(name)?))).collect();
    json!({
        "total_ms": step.forward_ms + step.head_ms + step.choose_ms,
        "forward_ms": timed.then_some(step.forward_ms),
        "lm_head_ms": timed.then_some(step.head_ms),
        "sample_ms": timed.then_some(step.choose_ms),
        "encrypt_ms": of_step("encrypt_ms"),
        "compute_ms": of_step("product_ms"),
        "decrypt_ms": of_step("decrypt_ms"),
        "network_ms": of_step("network_ms"),
        "steps_ms": steps,
        "he_operations": timed.then_some(operations),
        "he_rotations": timed.then_some(now.rotations.saturating_sub(before.rotations)),
        "encrypted": timed.then_some(operations > 0),
        "active_expert": if lost { Value::Null } else { model.into() },
        // The server adds no noise; a client of split mode may add some.
        "dp_noise_sigma": 0.0,
    })
}

fn done_message(
    running: &RunningAnswer,
    ending: &AnswerEnding,
    tail: &str,
    text: &str,
    total_ms: f64,
) -> Value {
    let tokens = ending.usage.completion_tokens;
    let report = ending.adapter.as_ref();
    json!({
        "type": "done",
        "response": text,
        "tail": tail,
        "tokens": tokens,
        "total_ms": total_ms,
        "tok_s": tokens_per_second(tokens, total_ms),
        "finish_reason": ending.finish_reason(),
        "encrypted": report.is_some_and(|report| report.report.he_operations > 0),
        "he_operations": report.map_or(0, |report| report.report.he_operations),
        "rotations": report.map_or(0, |report| report.report.he_rotations),
        "guarantee": report
            .map_or_else(|| "none".into(), |report| report.guarantee.to_string()),
        "confide": report.map(|report| adapter_report_json(&running.model, report)),
        "session_id": running.session_id,
    })
}
