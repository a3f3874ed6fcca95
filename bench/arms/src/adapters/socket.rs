//! `confide-arm adapter-socket`: report 003's query over its WebSocket routes.

use std::{collections::BTreeMap, path::PathBuf, time::Instant};

use clap::ValueEnum;
use confide_arm_line::{Hello, Outcome, Report, Run, Sample, Stopwatch, serve_runs};
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::{net::TcpStream, runtime::Runtime};
use tokio_tungstenite::{WebSocketStream, client_async, tungstenite::Message};

use super::{
    chat::{QUERY, rate_sample, with_best_rate},
    head::{LmHead, MultiplyKernel},
};
use crate::version::VERSION;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Address of `confide serve`.
    #[arg(long)]
    server: String,
    /// The route: `chat` gives tokens, `split` hidden states.
    #[arg(long = "door", value_enum)]
    route: Endpoint,
    /// The adapter; by default the base model.
    #[arg(long)]
    adapter: Option<String>,
    /// For hidden states: the folder of the model, whose output matrix is used here.
    #[arg(long, required_if_eq("route", "split"))]
    weights: Option<PathBuf>,
    /// For hidden states: how the output matrix is multiplied.
    #[arg(long, value_enum, default_value = "fast")]
    head: MultiplyKernel,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Endpoint {
    Chat,
    Split,
}

type Socket = WebSocketStream<TcpStream>;

struct SocketArm {
    args: Args,
    head: Option<LmHead>,
    guarantee: Option<String>,
}

/// Milliseconds of an answer by part.
type DurationsMs = BTreeMap<String, f64>;

pub(crate) fn run(args: Args) -> Outcome {
    let head = args.weights.as_deref().map(LmHead::load).transpose()?;
    let mut arm = SocketArm { args, head, guarantee: None };
    let runtime = Runtime::new()?;
    // The first answer says who is protected from whom; it is not measured.
    runtime.block_on(async {
        let mut socket = arm.connect().await?;
        arm.request_answer(&mut socket, 1).await
    })?;
    let hello = Hello {
        guarantee: arm.guarantee.clone(),
        ..Hello::new(format!("WebSocket, {:?}", arm.args.route).to_lowercase(), VERSION)
    };
    serve_runs(&hello, |order| runtime.block_on(arm.measure(order)))
}

impl SocketArm {
    async fn measure(&mut self, order: &Run) -> Outcome<Report> {
        order.refuse_unknown_params(&["tokens"])?;
        let tokens = order.integer_param("tokens", 16)?;
        let mut socket = self.connect().await?;
        let mut samples = Vec::new();
        let watch = Stopwatch::start();
        for _ in 0..order.requests {
            let began = Instant::now();
            let (count, parts) = self.request_answer(&mut socket, tokens).await?;
            let total_ms = began.elapsed().as_secs_f64() * 1e3;
            samples.push(per_token_sample(count, total_ms, &parts));
        }
        Ok(with_best_rate(Report { samples, ..watch.report() }))
    }

    async fn connect(&self) -> Outcome<Socket> {
        let server = &self.args.server;
        let tcp = TcpStream::connect(server).await?;
        tcp.set_nodelay(true)?;
        let route = format!("{:?}", self.args.route).to_lowercase();
        let address = format!("ws://{server}/api/v1/{route}/stream");
        let (socket, _) = client_async(address, tcp).await?;
        Ok(socket)
    }

    async fn request_answer(
        &mut self,
        socket: &mut Socket,
        tokens: u64,
    ) -> Outcome<(u64, DurationsMs)> {
        match self.args.route {
            Endpoint::Chat => self.request_chat_tokens(socket, tokens).await,
            Endpoint::Split => self.generate_with_local_head(socket, tokens).await,
        }
    }

    /// Tokens from the server, each with what it took there.
    async fn request_chat_tokens(
        &mut self,
        socket: &mut Socket,
        tokens: u64,
    ) -> Outcome<(u64, DurationsMs)> {
        let mut request = json!({
            "query": QUERY, "max_tokens": tokens, "temperature": 0.0,
            "use_he": self.args.adapter.is_some(),
        });
        if let Some(adapter) = &self.args.adapter {
            request["expert_name"] = json!(adapter);
        }
        socket.send(Message::text(request.to_string())).await?;
        let (mut count, mut parts) = (0, DurationsMs::new());
        loop {
            let event = receive_json(socket).await?;
            match event["type"].as_str() {
                Some("token") => {
                    count += 1;
                    add_server_durations(&mut parts, &event["metrics"]);
                }
                Some("done") => {
                    self.guarantee = event["guarantee"].as_str().map(str::to_owned);
                    return Ok((count, parts));
                }
                Some("input_info") => {}
                _ => return Err(format!("the server sent {event}").into()),
            }
        }
    }

    /// Hidden states from the server; head and choice here.
    async fn generate_with_local_head(
        &mut self,
        socket: &mut Socket,
        tokens: u64,
    ) -> Outcome<(u64, DurationsMs)> {
        let head = self.head.as_ref().ok_or("no output matrix")?;
        let request = json!({ "type": "tokenize", "text": QUERY });
        socket.send(Message::text(request.to_string())).await?;
        let reply = receive_json(socket).await?;
        let mut ids = reply["token_ids"].clone();
        let mut parts = DurationsMs::new();
        for count in 0..tokens {
            let mut request = json!({
                "type": "forward", "token_ids": ids, "incremental": count > 0,
                "use_he": self.args.adapter.is_some(),
            });
            if let Some(adapter) = &self.args.adapter {
                request["expert_name"] = json!(adapter);
            }
            let began = Instant::now();
            socket.send(encode_frame(&request)).await?;
            let (reply, hidden) = receive_frame(socket).await?;
            let there = began.elapsed().as_secs_f64() * 1e3;
            self.guarantee = reply["split_guarantee"].as_str().map(str::to_owned);
            let forward = reply["total_ms"].as_f64().ok_or("the server sent no total_ms")?;
            *parts.entry("forward_ms".into()).or_default() += forward;
            *parts.entry("transport_ms".into()).or_default() += there - forward;
            let began = Instant::now();
            let chosen = head.argmax_logit(&hidden, self.args.head);
            *parts.entry("head_ms".into()).or_default() += began.elapsed().as_secs_f64() * 1e3;
            ids = json!([chosen]);
        }
        Ok((tokens, parts))
    }
}

/// Per token; what no part claims is the remainder, for `chat` the WebSocket's share among it.
fn per_token_sample(tokens: u64, total_ms: f64, parts: &DurationsMs) -> Sample {
    let mut sample = rate_sample(tokens, total_ms);
    let of_token = |ms: f64| ms / tokens.max(1) as f64;
    let mut known = 0.0;
    for (name, ms) in parts {
        sample.set(name, of_token(*ms));
        known += ms;
    }
    sample.set("remainder_ms", of_token(total_ms - known));
    sample.answer = json!({ "tokens": tokens });
    sample
}

/// The server's own spans of a token: its transformer without the adapter's steps, the steps, head
/// and choice.
fn add_server_durations(parts: &mut DurationsMs, metrics: &Value) {
    let mut add = |name: &str, ms: f64| *parts.entry(name.to_owned()).or_default() += ms;
    let mut adapter = 0.0;
    for (name, ms) in metrics["steps_ms"].as_object().into_iter().flatten() {
        // A part that was not measured is null; its time shows in the remainder.
        let Some(ms) = ms.as_f64() else { continue };
        add(name, ms);
        adapter += ms;
    }
    if let Some(forward) = metrics["forward_ms"].as_f64() {
        add("forward_ms", forward - adapter);
    }
    for (theirs, ours) in [("lm_head_ms", "head_ms"), ("sample_ms", "sample_ms")] {
        if let Some(ms) = metrics[theirs].as_f64() {
            add(ours, ms);
        }
    }
}

async fn receive_json(socket: &mut Socket) -> Outcome<Value> {
    loop {
        match socket.next().await {
            Some(Ok(Message::Text(text))) => {
                return Ok(serde_json::from_str(&text)?);
            }
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
            other => return Err(format!("wanted a text message, got {other:?}").into()),
        }
    }
}

async fn receive_frame(socket: &mut Socket) -> Outcome<(Value, Vec<f32>)> {
    let bytes = match socket.next().await {
        Some(Ok(Message::Binary(bytes))) => bytes,
        Some(Ok(Message::Text(text))) => return Err(format!("the server sent {text}").into()),
        other => return Err(format!("wanted a binary message, got {other:?}").into()),
    };
    let (length, rest) = bytes.split_first_chunk().ok_or("a message without its length")?;
    let length = u32::from_le_bytes(*length) as usize;
    let (reply, hidden) = rest.split_at_checked(length).ok_or("a message that is cut")?;
    let reply = serde_json::from_slice(reply)?;
    let hidden = hidden.as_chunks().0.iter().map(|four| f32::from_le_bytes(*four)).collect();
    Ok((reply, hidden))
}

/// Report 003's binary message: the length of its JSON and the JSON, without numbers behind it.
fn encode_frame(request: &Value) -> Message {
    let text = request.to_string();
    let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
    Message::binary([&length.to_le_bytes()[..], text.as_bytes()].concat())
}
