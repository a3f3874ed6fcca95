//! One streamed chat completion over an open connection, and when its tokens came.

use std::time::{Duration, Instant};

use bytes::Bytes;
use confide_arm_line::Outcome;
use confide_client::{
    Connection, ConnectionAnswer, RequestBody, empty_body, error_chain, whole_body,
};
use confide_encrypted_body::{BodyKem, BodyPublicKey};
use http::{Request, Response, header};
use http_body_util::{BodyExt, Either};
use hyper::{body::Incoming, client::conn::http1::SendRequest};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::body_encryption::{AnswerDecryption, find_body_key, seal_body};

/// An open connection of any kind, and the time and round trips that opening it took.
pub(crate) struct HttpConnection {
    /// `None` while an answer is read.
    wire: Option<ClientConnection>,
    /// The key to which the bodies of chats are encrypted, if they are.
    body_key: Option<BodyPublicKey>,
    /// The `host` field of requests: `confide connect` refuses any but its own address.
    host: String,
    pub(crate) guarantee: String,
    pub(crate) simulated: bool,
    pub(crate) round_trips: u32,
    pub(crate) handshake_ms: f64,
    pub(crate) quote_ms: f64,
    pub(crate) collateral_ms: f64,
    pub(crate) appraisal_ms: f64,
}

enum ClientConnection {
    Channel(Box<Connection>),
    Plain(SendRequest<RequestBody>),
}

type AnswerBody = Either<Incoming, ConnectionAnswer>;

impl From<Connection> for HttpConnection {
    fn from(connection: Connection) -> Self {
        let channel = connection.timings().channel;
        let appraised = connection.appraisal();
        // Plain TLS has neither evidence nor endorsements: nothing is spent on them.
        let collateral =
            appraised.map_or(Duration::ZERO, |accepted| accepted.collateral_duration());
        Self {
            guarantee: appraised.map_or("none".into(), |appraised| appraised.guarantee().into()),
            simulated: appraised.is_some_and(|appraised| appraised.is_simulated()),
            round_trips: channel.round_trips,
            handshake_ms: channel.handshake.as_secs_f64() * 1e3,
            quote_ms: channel.quote.as_secs_f64() * 1e3,
            collateral_ms: collateral.as_secs_f64() * 1e3,
            appraisal_ms: channel.appraisal.saturating_sub(collateral).as_secs_f64() * 1e3,
            host: "model".into(),
            body_key: None,
            wire: Some(ClientConnection::Channel(Box::new(connection))),
        }
    }
}

impl HttpConnection {
    /// HTTP without TLS, to a process on this machine.
    pub(crate) async fn open_plain(address: &str) -> Outcome<Self> {
        let tcp =
            tokio::net::TcpStream::connect(address).await.map_err(|error| error_chain(&error))?;
        tcp.set_nodelay(true).map_err(|error| error_chain(&error))?;
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(tcp))
            .await
            .map_err(|error| error_chain(&error))?;
        tokio::spawn(connection);
        Ok(Self {
            host: address.into(),
            body_key: None,
            wire: Some(ClientConnection::Plain(sender)),
            guarantee: "that of the proxy that the client connects to".into(),
            simulated: false,
            round_trips: 1,
            handshake_ms: 0.0,
            quote_ms: 0.0,
            collateral_ms: 0.0,
            appraisal_ms: 0.0,
        })
    }

    /// Fetches the gateway's report, and encrypts the bodies of chats from here on.
    pub(crate) async fn encrypt_bodies(&mut self, kem: BodyKem) -> Outcome {
        let request = Request::get("/v1/aci/attestation").header(header::HOST, &self.host);
        let answer = self.send(request.body(empty_body())?).await?;
        let report = self.read_whole(answer.into_body()).await?;
        let report = serde_json::from_slice(&report)?;
        self.body_key = Some(find_body_key(&report, kem)?);
        Ok(())
    }

    /// Sends a chat, encrypted if there is a key. Returns what decrypts its answer then.
    async fn post_chat(
        &mut self,
        path: &str,
        body: &Value,
    ) -> Outcome<(Response<AnswerBody>, Option<AnswerDecryption>)> {
        let Some(key) = &self.body_key else {
            return Ok((self.post(path, body).await?, None));
        };
        let request = Request::post(path)
            .header(header::HOST, &self.host)
            .header(header::CONTENT_TYPE, "application/json");
        let (request, body, secret) = seal_body(key, &body.to_string(), request)?;
        let answer = self.send(request.body(whole_body(body))?).await?;
        let decryption = AnswerDecryption::begin(&secret, &answer)?;
        Ok((answer, Some(decryption)))
    }

    async fn post(&mut self, path: &str, body: &Value) -> Outcome<Response<AnswerBody>> {
        let request = Request::post(path)
            .header(header::HOST, &self.host)
            .header(header::CONTENT_TYPE, "application/json")
            .body(whole_body(body.to_string()))?;
        self.send(request).await
    }

    async fn send(&mut self, request: Request<RequestBody>) -> Outcome<Response<AnswerBody>> {
        match self.wire.take().ok_or("the answer before was not read to its end")? {
            ClientConnection::Channel(connection) => {
                let answer = connection.send(request).await.map_err(|error| error_chain(&error))?;
                Ok(answer.map(Either::Right))
            }
            ClientConnection::Plain(mut sender) => {
                sender.ready().await.map_err(|error| error_chain(&error))?;
                let answer = sender.send_request(request).await;
                let answer = answer.map_err(|error| error_chain(&error))?;
                self.wire = Some(ClientConnection::Plain(sender));
                Ok(answer.map(Either::Left))
            }
        }
    }

    /// Reads an answer to its end.
    async fn read_whole(&mut self, mut body: AnswerBody) -> Outcome<Bytes> {
        let whole = (&mut body).collect().await.map_err(|error| error_chain(&*error))?;
        self.keep(body);
        Ok(whole.to_bytes())
    }

    /// Keeps the connection of an answer that was read to its end.
    fn keep(&mut self, body: AnswerBody) {
        if let Either::Right(answer) = body
            && let Some(connection) = answer.into_idle()
        {
            self.wire = Some(ClientConnection::Channel(Box::new(connection)));
        }
    }
}

/// Parameters of every request of a run.
pub(crate) struct ConversationParams {
    pub(crate) tokens: u64,
    pub(crate) seed: u64,
    pub(crate) model: String,
}

/// The answer to one request, and when it came.
pub(crate) struct ConversationResult {
    /// Time from the scheduled instant to the first non-empty content.
    pub(crate) first: Duration,
    /// Time from the scheduled instant to the last non-empty content.
    pub(crate) last: Duration,
    /// Time from the scheduled instant to the end of the stream.
    pub(crate) total: Duration,
    /// Number of bytes of the body, with what it is filled up with.
    pub(crate) bytes: u64,
    /// Number of pieces of content; the engine sends one per token.
    pub(crate) tokens: u64,
    pub(crate) text_sha256: String,
}

/// Sends one request and reads the stream to its end, which has to be `data: [DONE]`.
pub(crate) async fn stream_completion(
    link: &mut HttpConnection,
    order: &ConversationParams,
    number: u64,
    due: Instant,
) -> Outcome<ConversationResult> {
    let body = json!({
        "model": order.model, "stream": true, "max_tokens": order.tokens,
        "seed": order.seed, "temperature": 0,
        "messages": [{ "role": "user",
                       "content": format!("Question {number} of block seed {}.", order.seed) }],
    });
    let (response, mut decryption) = link.post_chat("/v1/chat/completions", &body).await?;
    let status = response.status();
    let mut body = response.into_body();
    let mut stream = EventStream::default();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| format!("the stream broke: {}", error_chain(&*error)))?;
        if let Ok(bytes) = frame.into_data() {
            match &mut decryption {
                None => stream.push(&bytes, due)?,
                Some(decryption) => stream.push(&decryption.open_piece(&bytes)?, due)?,
            }
        }
    }
    link.keep(body);
    if let Some(decryption) = decryption {
        decryption.finish()?;
    }
    let total = due.elapsed();
    if !status.is_success() || !stream.done {
        let rest = String::from_utf8_lossy(&stream.pending).into_owned();
        return Err(
            format!("wanted a stream that ends in [DONE], got status {status}: {rest}").into()
        );
    }
    let (first, last) = stream.first.zip(stream.last).ok_or("the stream had no content")?;
    let text_sha256 = hex::encode(stream.text.finalize());
    let EventStream { tokens, bytes, .. } = stream;
    Ok(ConversationResult { first, last, total, bytes, tokens, text_sha256 })
}

/// Sends one request and reads the JSON of its answer.
pub(crate) async fn post_json(
    link: &mut HttpConnection,
    path: &str,
    body: &Value,
) -> Outcome<Value> {
    let response = link.post(path, body).await?;
    let status = response.status();
    let body = link.read_whole(response.into_body()).await?;
    if !status.is_success() {
        return Err(format!("status {status}: {}", String::from_utf8_lossy(&body)).into());
    }
    Ok(serde_json::from_slice(&body)?)
}

/// Server-sent events as they come in.
#[derive(Default)]
struct EventStream {
    pending: Vec<u8>,
    first: Option<Duration>,
    last: Option<Duration>,
    bytes: u64,
    tokens: u64,
    text: Sha256,
    done: bool,
}

impl EventStream {
    fn push(&mut self, bytes: &[u8], due: Instant) -> Outcome {
        self.bytes += bytes.len() as u64;
        self.pending.extend_from_slice(bytes);
        let Some(end) = self.pending.iter().rposition(|byte| *byte == b'\n') else { return Ok(()) };
        let rest = self.pending.split_off(end + 1);
        let lines = std::mem::replace(&mut self.pending, rest);
        for line in lines.split(|byte| *byte == b'\n') {
            let Some(data) = line.strip_prefix(b"data: ") else { continue };
            if data.trim_ascii() == b"[DONE]" {
                self.done = true;
                continue;
            }
            let event: Value = serde_json::from_slice(data)?;
            if let Some(error) = event.get("error") {
                return Err(format!("the server reports {error}").into());
            }
            let content = event["choices"][0]["delta"]["content"].as_str().unwrap_or_default();
            if !content.is_empty() {
                let now = due.elapsed();
                self.first.get_or_insert(now);
                self.last = Some(now);
                self.tokens += 1;
                self.text.update(content);
            }
        }
        Ok(())
    }
}
