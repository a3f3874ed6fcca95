//! `chat/stream`: an answer token by token, with the times of its parts.

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use axum::{body::Body, extract::State, response::Response};
use confide_engine::{AdapterReport, EngineError, Event, Generation};
use confide_serve::{ApiError, Ending, Meter, Slot, label, lost_label};
use futures_util::StreamExt;
use http::Request;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{
    chat::rate,
    layer::Layer,
    query::Query,
    socket::{Disconnected, Received, Socket, upgrade},
    split::{head_of, split_of},
};
use crate::split_mode::{Completion, Read, Step, converse, since_ms};

/// `WS /api/v1/chat/stream`: each text message is a query, answered by `input_info`, a `token` for
/// each token, and `done` or `error`.
pub(super) async fn open(
    layer: State<Arc<Layer>>,
    request: Request<Body>,
) -> Result<Response, ApiError> {
    upgrade(&layer, request, run)
}

async fn run(layer: Arc<Layer>, mut socket: Socket) {
    while let Some(received) = socket.receive().await {
        let (Received::Text(bytes) | Received::Binary(bytes)) = received;
        let answered = match Query::parse(&bytes) {
            Ok(query) => answer(&layer, &mut socket, &query, bytes.len()).await,
            Err(error) => socket.fail(&error, None).await,
        };
        if answered.is_err() {
            return;
        }
    }
}

async fn answer(
    layer: &Arc<Layer>,
    socket: &mut Socket,
    query: &Query,
    bytes: usize,
) -> Result<(), Disconnected> {
    let session = query.session_id.as_deref();
    let limit = layer.server.limits().generation;
    let telling = async {
        match begin(layer, query, bytes).await {
            Ok((info, running)) => {
                socket.say(&info).await?;
                tell(socket, running).await
            }
            Err(error) => Ok(Err(error)),
        }
    };
    match tokio::time::timeout(limit, telling).await {
        Err(_) => socket.fail(&ApiError::Deadline { limit }, session).await,
        Ok(Err(Disconnected)) => Err(Disconnected),
        Ok(Ok(Ok(()))) => Ok(()),
        Ok(Ok(Err(error))) => socket.fail(&error, session).await,
    }
}

/// An event of a running answer.
enum AnswerEvent {
    /// A token and its cost, and whether the times of its parts are known.
    Token(Step, bool),
    End(Ending, String),
    Failed(ApiError),
}

struct Running {
    said: mpsc::Receiver<AnswerEvent>,
    model: String,
    session_id: Option<String>,
    meter: Meter,
    _slot: Slot,
}

/// The greatest number of tokens that wait for a slow client.
const QUEUED_MAX: usize = 64;

async fn begin(
    layer: &Arc<Layer>,
    query: &Query,
    bytes: usize,
) -> Result<(Value, Running), ApiError> {
    let model = if query.adapted { query.adapter_name(layer)? } else { layer.server.base()?.name };
    let slot = layer.server.enter().await?;
    let (say, said) = mpsc::channel(QUEUED_MAX);
    let request = query.request(&model, layer);
    let prompt_tokens = layer.server.engine().count(&model, &request.prompt)?;
    let adapter = layer.server.adapters().find(&model);
    if layer.server.engine().split().is_some() && layer.head.is_some() {
        by_halves(layer, request, adapter.is_some(), say).await?;
    } else {
        tokio::spawn(by_events(layer.server.start(request, bytes).await?, say));
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
    let (session_id, meter) = (query.session_id.clone(), layer.server.counters().meter());
    Ok((info, Running { said, model, session_id, meter, _slot: slot }))
}

/// Runs both halves of split mode in this process, so that the parts of each token can be timed.
async fn by_halves(
    layer: &Arc<Layer>,
    request: confide_engine::Request,
    adapted: bool,
    say: mpsc::Sender<AnswerEvent>,
) -> Result<(), ApiError> {
    let (split, head) = (split_of(layer)?, head_of(layer).await?);
    tokio::task::spawn_blocking(move || {
        let answer = || {
            let mut session = split.open(adapted.then_some(request.model.as_str()))?;
            let mut forward = |ids: &[u32]| {
                let hidden = session.forward(ids)?;
                Ok(Read { hidden, adapter: session.adapter() })
            };
            let mut each = |step| say.blocking_send(AnswerEvent::Token(step, true)).is_ok();
            converse(&*head, &request, split.context_tokens(), &mut forward, &mut each)
        };
        let end = match answer() {
            // The client has disconnected.
            Ok(None) => return,
            Ok(Some(ended)) => {
                let Completion { reason, tail, usage, adapter } = ended;
                AnswerEvent::End(Ending { reason, usage, adapter }, tail)
            }
            Err(error) => AnswerEvent::Failed(error.into()),
        };
        let _ = say.blocking_send(end);
    });
    Ok(())
}

/// Passes on the events of an engine that gives no hidden states: only whole tokens can be timed.
async fn by_events(mut generation: Generation, say: mpsc::Sender<AnswerEvent>) {
    let mut lost = None;
    let mut since = Instant::now();
    while let Some(event) = generation.next().await {
        let said = match event {
            Event::Token(token) => {
                let forward_ms = since_ms(since);
                since = Instant::now();
                let (head_ms, choose_ms) = (0.0, 0.0);
                let adapter = lost.clone();
                AnswerEvent::Token(Step { token, forward_ms, head_ms, choose_ms, adapter }, false)
            }
            Event::AdapterLost { reason } => {
                let guarantee = confide_lora::Guarantee::NONE;
                let report = confide_lora::Report::default();
                lost = Some(AdapterReport { report, guarantee, lost: Some(reason) });
                continue;
            }
            Event::Finished { reason, tail, usage, adapter } => {
                AnswerEvent::End(Ending { reason, usage, adapter }, tail)
            }
            Event::Failed(error) => AnswerEvent::Failed(error.into()),
        };
        if say.send(said).await.is_err() {
            return;
        }
    }
}

/// Sends the events of a running answer to the client. The inner error is the answer's.
async fn tell(
    socket: &mut Socket,
    mut running: Running,
) -> Result<Result<(), ApiError>, Disconnected> {
    let started = Instant::now();
    let (mut tokens, mut text, mut lost) = (0u32, String::new(), false);
    let mut before = AdapterCost::default();
    while let Some(said) = running.said.recv().await {
        match said {
            AnswerEvent::Failed(error) => return Ok(Err(error)),
            AnswerEvent::End(ending, tail) => {
                running.meter.finish(ending.adapter.as_ref());
                text.push_str(&tail);
                let total_ms = since_ms(started);
                socket.say(&done_message(&running, &ending, &tail, &text, total_ms)).await?;
                return Ok(Ok(()));
            }
            AnswerEvent::Token(step, timed) => {
                running.meter.token();
                tokens += 1;
                text.push_str(&step.token.text);
                let reason = step.adapter.as_ref().and_then(|adapter| adapter.lost.as_ref());
                if let (Some(reason), false) = (reason, lost) {
                    lost = true;
                    let mut event = lost_label(&running.model, reason);
                    event["type"] = "adapter_lost".into();
                    socket.say(&event).await?;
                }
                let now = AdapterCost::from_report(step.adapter.as_ref());
                let metrics = metrics(&step, timed, &before, &now, &running.model, lost);
                let elapsed_ms = since_ms(started);
                let event = json!({
                    "type": "token",
                    "token": step.token.text,
                    "token_id": step.token.id,
                    "index": tokens - 1,
                    "metrics": metrics,
                    "aggregate": {
                        "tokens": tokens,
                        "elapsed_ms": elapsed_ms,
                        "tok_s": rate(tokens, elapsed_ms),
                        "he_operations": timed.then_some(now.operations),
                        "he_rotations": timed.then_some(now.rotations),
                    },
                });
                before = now;
                socket.say(&event).await?;
            }
        }
    }
    Ok(Err(EngineError::Stopped.into()))
}

/// The cost of the adapter from the start to some token.
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

/// The cost of one token. Parts that were not measured are null, never 0.
fn metrics(
    step: &Step,
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
    running: &Running,
    ending: &Ending,
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
        "tok_s": rate(tokens, total_ms),
        "finish_reason": ending.finish_reason(),
        "encrypted": report.is_some_and(|report| report.report.he_operations > 0),
        "he_operations": report.map_or(0, |report| report.report.he_operations),
        "rotations": report.map_or(0, |report| report.report.he_rotations),
        "guarantee": report
            .map_or_else(|| "none".into(), |report| report.guarantee.to_string()),
        "confide": report.map(|report| label(&running.model, report)),
        "session_id": running.session_id,
    })
}
