//! The transformer of a server, over its `WS /api/v1/split/stream`.

use std::{net::ToSocketAddrs, time::Duration};

use confide_engine::EngineError;
use confide_report_003::split_mode::frame;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::{net::TcpStream, runtime::Runtime};
use tokio_tungstenite::{
    WebSocketStream, client_async_with_config,
    tungstenite::{Error as WsError, Message, protocol::WebSocketConfig},
};

use crate::{error::CliError, process::local_runtime};

/// The transformer of a server, over its `WS /api/v1/split/stream`.
pub(super) struct RemoteTransformer {
    stream: WebSocketStream<TcpStream>,
    runtime: Runtime,
    adapter: Option<String>,
    width: usize,
    begun: bool,
    pub(super) context_tokens: u32,
    /// The last answer's label about its adapter.
    pub(super) label: Option<Value>,
}

/// Tokens as they are sent: their numbers, or their embeddings.
pub(super) enum TokenInput {
    Ids(Vec<u32>),
    Rows(Vec<f32>),
}

/// Deadline from the dial to the first answer.
const CONNECT_DEADLINE: Duration = Duration::from_secs(20);
/// Deadline of an answer: a long prompt of a large model takes minutes on a CPU, and the server
/// gives up after ten.
const ANSWER_DEADLINE: Duration = Duration::from_secs(660);
/// The longest answer, in bytes: a hidden state and its JSON, wider than that of any served model.
const ANSWER_BYTES_MAX: usize = 1 << 20;

impl RemoteTransformer {
    /// Connects, and asks for the server's configuration.
    pub(super) fn connect(url: &str, adapter: Option<&str>) -> Result<Self, CliError> {
        let authority = parse_authority(url)?;
        let runtime = local_runtime()?;
        let opening =
            async { tokio::time::timeout(CONNECT_DEADLINE, open_websocket(&authority)).await };
        let late = || format!("nothing answered within {} s", CONNECT_DEADLINE.as_secs());
        let opened = runtime.block_on(opening).unwrap_or_else(|_| Err(late()));
        let stream = opened.map_err(|reason| {
            CliError::new(format!("{url}: {reason}")).with_hint(
                "`confide serve --engine native --model DIR` serves hidden states; connect to it \
                 directly, since a gateway does not carry them",
            )
        })?;
        let adapter = adapter.map(Into::into);
        let (width, begun, context_tokens, label) = (0, false, 0, None);
        let mut remote = Self { stream, runtime, adapter, width, begun, context_tokens, label };
        remote.request_configuration().map_err(|error| remote.explain_error(&error))?;
        Ok(remote)
    }

    /// Checks the width of the server's model against the one here.
    pub(super) fn check_width(&self, width: usize) -> Result<(), CliError> {
        if self.width == width {
            return Ok(());
        }
        let wide = self.width;
        let text = format!("hidden states of the server: wanted width {width}, got {wide}");
        Err(CliError::new(text).with_hint("give the folder of the model that is served"))
    }

    /// Sends tokens that follow those already sent; gives the last one's hidden state.
    pub(super) fn forward(&mut self, sent: TokenInput) -> Result<Vec<f32>, EngineError> {
        let mut head = json!({
            "type": "forward",
            "use_he": self.adapter.is_some(),
            "adapter": self.adapter,
            "incremental": self.begun,
        });
        let rows = match sent {
            TokenInput::Ids(ids) => {
                head["token_ids"] = ids.into();
                Vec::new()
            }
            TokenInput::Rows(rows) => {
                head["seq_len"] = (rows.len() / self.width.max(1)).into();
                head["hidden_dim"] = self.width.into();
                rows
            }
        };
        let message = Message::binary(frame::encode_binary_message(&head, &rows));
        let Message::Binary(bytes) = self.exchange_message(message)? else {
            return Err(EngineError::failure("wanted a binary answer"));
        };
        let (mut head, hidden) =
            frame::parse_binary_answer(&bytes).map_err(EngineError::failure)?;
        if hidden.len() != self.width {
            let (wanted, got) = (self.width, hidden.len());
            return Err(EngineError::failure(format!(
                "hidden state: wanted {wanted} numbers, got {got}"
            )));
        }
        self.begun = true;
        self.label = Some(head["confide"].take()).filter(|label| !label.is_null());
        Ok(hidden)
    }

    /// Begins a new text with the next tokens.
    pub(super) fn restart(&mut self) {
        self.begun = false;
    }

    /// Explains an error of the conversation to the person at the terminal.
    pub(super) fn explain_error(&self, error: &EngineError) -> CliError {
        CliError::new(error).with_status(1)
    }

    fn request_configuration(&mut self) -> Result<(), EngineError> {
        let question = Message::text(json!({ "type": "config" }).to_string());
        let Message::Text(text) = self.exchange_message(question)? else {
            return Err(EngineError::failure("wanted text"));
        };
        let config: Value = serde_json::from_str(&text).map_err(EngineError::failure)?;
        let number = |name: &str| config[name].as_u64().and_then(|n| u32::try_from(n).ok());
        let missing =
            || EngineError::failure("the server's config has no hidden_dim or context_tokens");
        self.width = number("hidden_dim").ok_or_else(missing)? as usize;
        self.context_tokens = number("context_tokens").ok_or_else(missing)?;
        Ok(())
    }

    /// Sends a message and gives its answer; an `error` event is an error.
    fn exchange_message(&mut self, message: Message) -> Result<Message, EngineError> {
        let stream = &mut self.stream;
        let asking = async {
            stream.send(message).await?;
            loop {
                match stream.next().await {
                    Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                    Some(received) => return received,
                    None => return Err(WsError::ConnectionClosed),
                }
            }
        };
        let answered =
            self.runtime.block_on(async { tokio::time::timeout(ANSWER_DEADLINE, asking).await });
        let message = answered
            .map_err(|_| {
                EngineError::failure(format!("no answer within {} s", ANSWER_DEADLINE.as_secs()))
            })?
            .map_err(|error| {
                EngineError::failure(format!("the server closed the connection: {error}"))
            })?;
        if let Message::Text(text) = &message
            && let Ok(event) = serde_json::from_str::<Value>(text)
            && event["type"] == "error"
        {
            return Err(EngineError::failure(
                event["message"].as_str().unwrap_or("the server failed"),
            ));
        }
        Ok(message)
    }
}

async fn open_websocket(authority: &str) -> Result<WebSocketStream<TcpStream>, String> {
    let stream = TcpStream::connect(authority).await.map_err(|error| error.to_string())?;
    let _ = stream.set_nodelay(true);
    let config = WebSocketConfig::default()
        .write_buffer_size(0)
        .max_message_size(Some(ANSWER_BYTES_MAX))
        .max_frame_size(Some(ANSWER_BYTES_MAX));
    let url = format!("ws://{authority}/api/v1/split/stream");
    let opened = client_async_with_config(url, stream, Some(config)).await;
    opened.map(|(stream, _)| stream).map_err(|error| error.to_string())
}

/// Reads `HOST:PORT` from an `http://` address without a path.
fn parse_authority(url: &str) -> Result<String, CliError> {
    let bad = || CliError::new(format!("--server {url}: wanted http://HOST:PORT"));
    let rest = url.strip_prefix("http://").ok_or_else(bad)?;
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    if authority.contains('/') || authority.to_socket_addrs().is_err() {
        return Err(bad());
    }
    Ok(authority.into())
}
