//! The routes over a real socket, with the simulated engine and with ones that misbehave.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use confide_engine::{
    Engine, EngineError, Generation, GenerationEvent, Model, Prompt, Request, Token,
    sim::{self, Sim},
};
use confide_serve::{DrainOutcome, ServeLimits, ServeOptions, serve};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::oneshot,
    task::JoinHandle,
};

struct Running {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<DrainOutcome>,
}

impl Running {
    async fn start(engine: Arc<dyn Engine>, limits: ServeLimits) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (stop, stopped) = oneshot::channel::<()>();
        let options = ServeOptions { limits, ..ServeOptions::new(engine, || 1_700_000_000) };
        let task = tokio::spawn(serve(listener, options, async {
            let _ = stopped.await;
        }));
        Self { address, stop, task }
    }

    async fn sim(options: sim::SimOptions) -> Self {
        let engine = Arc::new(Sim::new(options).expect("a timer thread"));
        Self::start(engine, ServeLimits::default()).await
    }

    /// Sends a request on a connection of its own and returns all that came back.
    async fn send(&self, method: &str, path: &str, body: &str) -> Answer {
        let mut stream = self.open(method, path, body).await;
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).await.expect("an answer");
        Answer::parse(&String::from_utf8(bytes).expect("text"))
    }

    async fn open(&self, method: &str, path: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.expect("a connection");
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).await.expect("the head is taken");
        // A server that refuses by the length alone may have gone already.
        let _ = stream.write_all(body.as_bytes()).await;
        stream
    }

    async fn chat(&self, extra: Value) -> Answer {
        self.send("POST", "/v1/chat/completions", &chat_body(extra).to_string()).await
    }
}

fn chat_body(extra: Value) -> Value {
    let mut body =
        json!({ "model": "sim", "messages": [{ "role": "user", "content": "How are you?" }] });
    if let (Value::Object(body), Value::Object(extra)) = (&mut body, extra) {
        body.extend(extra);
    }
    body
}

#[derive(Debug)]
struct Answer {
    status: u16,
    body: String,
    /// Whether a chunked body came to its end.
    whole: bool,
}

impl Answer {
    fn parse(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a status");
        if !head.contains("transfer-encoding: chunked") {
            return Self { status, body: body.into(), whole: true };
        }
        let (mut rest, mut joined) = (body, String::new());
        while let Some((size, after)) = rest.split_once("\r\n") {
            let size = usize::from_str_radix(size, 16).expect("a chunk size");
            if size == 0 {
                return Self { status, body: joined, whole: true };
            }
            joined.push_str(&after[..size]);
            rest = &after[size + 2..];
        }
        Self { status, body: joined, whole: false }
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).expect("a JSON body")
    }

    fn events(&self) -> Vec<Value> {
        let lines = self.body.split_terminator("\n\n");
        let data = lines.map(|line| line.strip_prefix("data: ").expect("a data line"));
        data.filter(|data| *data != "[DONE]")
            .map(|data| serde_json::from_str(data).expect("a JSON event"))
            .collect()
    }

    fn streamed_text(&self) -> String {
        let events = self.events();
        events.iter().filter_map(|event| event["choices"][0]["delta"]["content"].as_str()).collect()
    }
}

#[tokio::test]
async fn http_2_is_refused() {
    let running = Running::sim(sim::SimOptions::default()).await;
    let mut stream = TcpStream::connect(running.address).await.expect("a connection");
    // The client's preface and an empty SETTINGS frame (RFC 9113 section 3.4).
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    stream.write_all(preface).await.expect("written");
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    assert!(answer.starts_with(b"HTTP/1.1 400") || answer.is_empty(), "{answer:?}");
}

#[tokio::test]
async fn a_streamed_chat_says_the_same_as_a_whole_one() {
    let server = Running::sim(sim::SimOptions::default()).await;
    let whole = server.chat(json!({ "max_tokens": 50 })).await;
    assert_eq!(whole.status, 200);
    let reply = whole.json();
    let text = reply["choices"][0]["message"]["content"].as_str().expect("content");
    assert_eq!(reply["usage"]["completion_tokens"], 50);
    assert_eq!(reply["choices"][0]["finish_reason"], "length");

    let extra = json!({ "max_tokens": 50, "stream": true,
        "stream_options": { "include_usage": true } });
    let streamed = server.chat(extra).await;
    assert!(streamed.whole && streamed.body.ends_with("data: [DONE]\n\n"));
    assert_eq!(streamed.streamed_text(), text);
    let events = streamed.events();
    // The role, fifty tokens, the finish reason, the usage.
    assert_eq!(events.len(), 53);
    assert_eq!(events[52]["usage"], reply["usage"]);
    assert!(events.iter().all(|event| event["id"] == events[0]["id"]));
}

#[tokio::test]
async fn a_completion_streams_and_stops() {
    let server = Running::sim(sim::SimOptions::default()).await;
    let mut body = json!({ "model": "sim", "prompt": "Once", "max_tokens": 30 });
    let whole = server.send("POST", "/v1/completions", &body.to_string()).await.json();
    let text = whole["choices"][0]["text"].as_str().expect("text");
    assert_eq!(whole["object"], "text_completion");
    let stop = text.split(' ').nth(9).expect("ten words");
    body["stop"] = json!([stop]);
    body["stream"] = json!(true);
    let cut = server.send("POST", "/v1/completions", &body.to_string()).await;
    let events = cut.events();
    let joined: String =
        events.iter().filter_map(|event| event["choices"][0]["text"].as_str()).collect();
    assert_eq!(joined, text[..text.find(stop).expect("it is there")]);
    assert_eq!(events.last().expect("an event")["choices"][0]["finish_reason"], "stop");
}

#[tokio::test]
async fn models_and_health_are_told() {
    let server = Running::sim(sim::SimOptions::default()).await;
    let models = server.send("GET", "/v1/models", "").await.json();
    assert_eq!(models["data"][0]["id"], "sim");
    assert!(models["data"][0].get("confide_manifest_sha256").is_none());
    assert_eq!(server.send("GET", "/v1/models/sim", "").await.json()["object"], "model");
    assert_eq!(server.send("GET", "/v1/models/none", "").await.status, 404);
    assert_eq!(server.send("GET", "/health", "").await.json()["status"], "ok");
}

#[tokio::test]
async fn errors_have_openai_s_shape_and_a_fitting_status() {
    let server = Running::sim(sim::SimOptions::default()).await;
    let path = "/v1/chat/completions";
    for (method, path, body, status, param) in [
        ("POST", path, "{".to_string(), 400, Value::Null),
        ("POST", path, chat_body(json!({ "n": 2 })).to_string(), 400, json!("n")),
        ("POST", path, chat_body(json!({ "model": "gpt" })).to_string(), 404, json!("model")),
        ("POST", "/v1/nothing", String::new(), 404, Value::Null),
        ("GET", path, String::new(), 405, Value::Null),
    ] {
        let answer = server.send(method, path, &body).await;
        assert_eq!(answer.status, status, "{body}");
        let error = &answer.json()["error"];
        assert!(error["message"].is_string() && error["type"].is_string());
        assert_eq!(error["param"], param);
    }
}

#[tokio::test]
async fn bodies_and_prompts_have_limits() {
    let engine = Arc::new(Sim::new(sim::SimOptions::default()).expect("a timer thread"));
    let limits = ServeLimits { body_bytes: 1000, prompt_tokens: 20, ..ServeLimits::default() };
    let server = Running::start(engine, limits).await;
    let messages = |words: usize| json!({ "messages": [{ "role": "user", "content": "word ".repeat(words) }] });
    assert_eq!(server.chat(messages(300)).await.status, 413);
    let long = server.chat(messages(30)).await;
    assert_eq!(
        (long.status, &long.json()["error"]["code"]),
        (400, &json!("context_length_exceeded"))
    );
    assert_eq!(server.chat(messages(10)).await.status, 200);
}

#[tokio::test]
async fn a_body_that_is_too_long_is_read_on_so_that_its_sender_sees_the_answer() {
    let engine = Arc::new(Sim::new(sim::SimOptions::default()).expect("a simulator"));
    let server = Running::start(engine, ServeLimits::default()).await;
    let body = vec![b' '; 16 << 20];
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: h\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let mut client = TcpStream::connect(server.address).await.expect("a connection");
    client.write_all(head.as_bytes()).await.expect("the head is taken");
    client.write_all(&body).await.expect("the body is taken");
    let mut status = [0; 13];
    client.read_exact(&mut status).await.expect("an answer");
    assert_eq!(&status, b"HTTP/1.1 413 ");
}

/// Gives three tokens and then what the test wants.
struct Odd {
    then: Option<GenerationEvent>,
    begun: Arc<AtomicBool>,
    cancelled: Arc<AtomicBool>,
}

impl Engine for Odd {
    fn models(&self) -> Vec<Model> {
        vec![Model {
            name: "sim".into(),
            context_tokens: 100,
            manifest_sha256: Some("ab".into()),
            weights: Some("random from seed 7".into()),
            parent: None,
        }]
    }

    fn count_prompt_tokens(&self, _model: &str, _prompt: &Prompt) -> Result<u32, EngineError> {
        Ok(1)
    }

    fn generate(&self, _request: Request) -> Result<Generation, EngineError> {
        let (sender, generation) = confide_engine::generation_channel(1);
        let (then, cancelled) = (self.then.clone(), Arc::clone(&self.cancelled));
        self.begun.store(true, Ordering::SeqCst);
        std::thread::spawn(move || {
            for id in 0..3 {
                let _ = sender.send(GenerationEvent::Token(Token { id, text: "word ".into() }));
            }
            if let Some(then) = then {
                let _ = sender.send(then);
                return;
            }
            while !sender.is_cancelled() {
                std::thread::sleep(Duration::from_millis(1));
            }
            cancelled.store(true, Ordering::SeqCst);
        });
        Ok(generation)
    }

    fn slots(&self) -> usize {
        1
    }
}

/// A server over it, and whether its generation was begun and was cancelled.
async fn odd(
    then: Option<GenerationEvent>,
    limits: ServeLimits,
) -> (Running, [Arc<AtomicBool>; 2]) {
    let [begun, cancelled] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let flags = [Arc::clone(&begun), Arc::clone(&cancelled)];
    (Running::start(Arc::new(Odd { then, begun, cancelled }), limits).await, flags)
}

async fn until(flag: &AtomicBool) {
    while !flag.load(Ordering::SeqCst) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn an_engine_that_fails_in_mid_stream_is_seen_as_a_broken_stream() {
    let failed = GenerationEvent::Failed(EngineError::Failed { reason: "out of cheese".into() });
    let (server, _) = odd(Some(failed), ServeLimits::default()).await;
    let answer = server.chat(json!({ "stream": true })).await;
    assert_eq!(answer.status, 200);
    assert!(!answer.whole, "the last chunk must be missing");
    assert!(!answer.body.contains("[DONE]"));
    let events = answer.events();
    assert_eq!(events.last().expect("an event")["error"]["type"], "server_error");
    assert_eq!(server.chat(json!({})).await.status, 500);
    let models = server.send("GET", "/v1/models", "").await.json();
    assert_eq!(models["data"][0]["confide_manifest_sha256"], "ab");
}

#[tokio::test]
async fn a_client_that_goes_away_cancels_and_frees_its_slot() {
    for stream in [true, false] {
        let (server, [begun, cancelled]) = odd(None, ServeLimits::default()).await;
        let body = chat_body(json!({ "stream": stream })).to_string();
        let mut client = server.open("POST", "/v1/chat/completions", &body).await;
        if stream {
            let mut some = [0u8; 64];
            client.read_exact(&mut some).await.expect("the stream begins");
        }
        // One who goes before that leaves nothing to cancel.
        until(&begun).await;
        drop(client);
        until(&cancelled).await;
    }
}

#[tokio::test]
async fn a_full_queue_and_a_long_wait_are_told() {
    let limits = ServeLimits { queued: 0, ..ServeLimits::default() };
    let (server, _) = odd(None, limits).await;
    let body = chat_body(json!({ "stream": true })).to_string();
    let mut stream = server.open("POST", "/v1/chat/completions", &body).await;
    let mut some = [0u8; 64];
    stream.read_exact(&mut some).await.expect("the stream begins");
    let full = server.chat(json!({})).await;
    assert_eq!((full.status, &full.json()["error"]["code"]), (429, &json!("queue_full")));

    let limits = ServeLimits { queue_wait: Duration::from_millis(10), ..ServeLimits::default() };
    let (server, _) = odd(None, limits).await;
    let mut stream = server.open("POST", "/v1/chat/completions", &body).await;
    stream.read_exact(&mut some).await.expect("the stream begins");
    assert_eq!(server.chat(json!({})).await.status, 503);
}

#[tokio::test]
async fn a_stop_lets_running_answers_end() {
    let options = sim::SimOptions { tokens_per_second: Some(200.0), ..sim::SimOptions::default() };
    let server = Running::sim(options).await;
    let body = chat_body(json!({ "stream": true, "max_tokens": 20 })).to_string();
    let mut client = server.open("POST", "/v1/chat/completions", &body).await;
    let mut begun = vec![0u8; 64];
    client.read_exact(&mut begun).await.expect("the stream begins");
    server.stop.send(()).expect("the server runs");
    client.read_to_end(&mut begun).await.expect("the rest");
    assert!(Answer::parse(&String::from_utf8(begun).expect("text")).whole);
    assert_eq!(server.task.await.expect("no panic"), DrainOutcome::Completely);
    assert!(TcpStream::connect(server.address).await.is_err());
}

#[tokio::test]
async fn a_drain_has_a_deadline() {
    let limits = ServeLimits { drain: Duration::from_millis(20), ..ServeLimits::default() };
    let (server, _) = odd(None, limits).await;
    let body = chat_body(json!({ "stream": true })).to_string();
    let mut client = server.open("POST", "/v1/chat/completions", &body).await;
    let mut some = [0u8; 64];
    client.read_exact(&mut some).await.expect("the stream begins");
    server.stop.send(()).expect("the server runs");
    let outcome = server.task.await.expect("no panic");
    assert_eq!(outcome, DrainOutcome::Cut(1));
}
