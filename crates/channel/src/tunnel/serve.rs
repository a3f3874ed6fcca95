//! The proxy, which relays one connection to one target in both directions.

use std::{
    io,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use bytes::Bytes;
use futures_util::{Sink, SinkExt, Stream, StreamExt};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Error as WsError, Message, handshake::derive_accept_key, protocol::Role},
};

use super::{
    allow::AllowList,
    origin::AllowedOrigins,
    request::{HEAD_BYTES_MAX, TunnelRequest},
    websocket::{END_OF_STREAM, MESSAGE_BYTES_MAX, websocket_config, websocket_error},
};
use crate::{
    deadline::Deadline,
    error::{ChannelError, ChannelPhase, TunnelError},
};

/// The deadlines of a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunnelDeadlines {
    /// The deadline of the request, the dial to the target and the answer, together.
    pub open: Duration,
    /// The idle time: a tunnel that carries nothing in either direction ends after one to two times
    /// this duration.
    pub idle: Duration,
}

/// The target of a tunnel, and the number of bytes carried each way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunnelTraffic {
    /// The target, as `HOST:PORT`.
    pub target: String,
    /// Bytes from the client to the target.
    pub bytes_up: u64,
    /// Bytes from the target to the client.
    pub bytes_down: u64,
}

/// Serves one connection: reads the request, dials the target if it is allowed, then relays until
/// both directions have ended. Refusals are answered in HTTP before the upgrade: 403 for a target
/// that is not on the list and for a web page whose origin is not in `origins`, 502 and 504 for one
/// that cannot be reached.
///
/// # Errors
/// [`TunnelError::TargetRefused`], [`TunnelError::TargetUnreachable`], [`TunnelError::Request`] or
/// [`TunnelError::HeadLength`] if the tunnel is not opened, [`ChannelError::UnexpectedEnd`] if the
/// stream ends within the request, [`TunnelError::Truncated`] if it ends without the end-of-stream
/// mark, [`ChannelError::Timeout`] or [`ChannelError::Io`] if a direction fails or stalls.
pub async fn serve<S>(
    mut stream: S,
    allow: &AllowList,
    origins: &AllowedOrigins,
    deadlines: TunnelDeadlines,
) -> Result<TunnelTraffic, ChannelError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let deadline = Deadline::after(deadlines.open);
    let opened = match read_request(&mut stream, origins, deadline).await {
        Ok((request, rest)) => dial_target(request, rest, allow, deadline).await,
        Err(error) => Err(error),
    };
    let (request, rest, target) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            answer_refusal(&mut stream, &error).await;
            return Err(error);
        }
    };
    let answer = format!(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Accept: {}\r\n\r\n",
        derive_accept_key(request.key.as_bytes())
    );
    let upgrading = async {
        stream.write_all(answer.as_bytes()).await?;
        stream.flush().await
    };
    deadline.limit_io(ChannelPhase::Upgrade, upgrading).await?;
    let config = Some(websocket_config());
    let websocket = WebSocketStream::from_partially_read(stream, rest, Role::Server, config).await;
    let (bytes_up, bytes_down) = relay(websocket, target, deadlines.idle).await?;
    Ok(TunnelTraffic { target: request.target, bytes_up, bytes_down })
}

async fn read_request<S: AsyncRead + Unpin>(
    stream: &mut S,
    origins: &AllowedOrigins,
    deadline: Deadline,
) -> Result<(TunnelRequest, Vec<u8>), ChannelError> {
    let mut head = Vec::with_capacity(1024);
    loop {
        let reading = stream.read_buf(&mut head);
        if deadline.limit_io(ChannelPhase::Request, reading).await? == 0 {
            return Err(ChannelError::UnexpectedEnd { phase: ChannelPhase::Request });
        }
        if let Some((request, len)) = TunnelRequest::parse(&head, origins)? {
            return Ok((request, head.split_off(len)));
        }
        if head.len() > HEAD_BYTES_MAX {
            return Err(TunnelError::HeadLength { wanted: HEAD_BYTES_MAX }.into());
        }
    }
}

async fn dial_target(
    request: TunnelRequest,
    rest: Vec<u8>,
    allow: &AllowList,
    deadline: Deadline,
) -> Result<(TunnelRequest, Vec<u8>, TcpStream), ChannelError> {
    let target = request.target.clone();
    if !allow.contains(&target) {
        return Err(TunnelError::TargetRefused { target }.into());
    }
    let dialled = deadline.limit(ChannelPhase::Dial, TcpStream::connect(&target)).await?;
    let socket = dialled.map_err(|source| TunnelError::TargetUnreachable { target, source })?;
    socket
        .set_nodelay(true)
        .map_err(|source| ChannelError::Io { phase: ChannelPhase::Dial, source })?;
    Ok((request, rest, socket))
}

/// Answers a refusal in HTTP. Gives up after a short time if the client does not read the answer.
async fn answer_refusal<S: AsyncWrite + Unpin>(stream: &mut S, error: &ChannelError) {
    const PATIENCE: Duration = Duration::from_secs(1);
    let (status, kind) = match error {
        ChannelError::Tunnel(TunnelError::TargetRefused { .. }) => {
            ("403 Forbidden", "target_refused")
        }
        ChannelError::Tunnel(TunnelError::TargetUnreachable { .. }) => {
            ("502 Bad Gateway", "target_unreachable")
        }
        ChannelError::Timeout { phase: ChannelPhase::Dial, .. } => {
            ("504 Gateway Timeout", "target_unreachable")
        }
        ChannelError::Timeout { .. } => ("408 Request Timeout", "bad_request"),
        ChannelError::Tunnel(
            TunnelError::HeadLength { .. } | TunnelError::Request { status: 431, .. },
        ) => ("431 Request Header Fields Too Large", "bad_request"),
        ChannelError::Tunnel(TunnelError::Request { status: 403, .. }) => {
            ("403 Forbidden", "origin_refused")
        }
        ChannelError::Tunnel(TunnelError::Request { status: 404, .. }) => {
            ("404 Not Found", "not_found")
        }
        ChannelError::Tunnel(TunnelError::Request { status: 405, .. }) => {
            ("405 Method Not Allowed", "bad_request")
        }
        ChannelError::Tunnel(TunnelError::Request { status: 426, .. }) => {
            ("426 Upgrade Required", "bad_request")
        }
        ChannelError::Tunnel(_) => ("400 Bad Request", "bad_request"),
        _ => return,
    };
    // The text holds no quotes or controls: a target in it has passed `allow::normalise_target`.
    let message: String = error.to_string().chars().filter(|c| !"\"\\".contains(*c)).collect();
    let message: String = message.chars().filter(|c| !c.is_control()).collect();
    let body = format!("{{\"error\":{{\"type\":\"{kind}\",\"message\":\"{message}\"}}}}");
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{body}",
        body.len()
    );
    let answering = async {
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await
    };
    let _: Result<io::Result<()>, _> = tokio::time::timeout(PATIENCE, answering).await;
}

/// Relays both directions until both have ended, or nothing moves for too long.
async fn relay<S>(
    websocket: WebSocketStream<S>,
    target: TcpStream,
    idle: Duration,
) -> Result<(u64, u64), ChannelError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let (mut sink, mut messages) = websocket.split();
    let (mut from_target, mut to_target) = target.into_split();
    let moved = AtomicU64::new(0);
    let both = async {
        let up = copy_to_target(&mut messages, &mut to_target, &moved);
        let down = copy_to_client(&mut from_target, &mut sink, &moved);
        tokio::try_join!(up, down)
    };
    let result = tokio::select! {
        result = both => result,
        () = wait_until_idle(&moved, idle) => {
            Err(ChannelError::Timeout { phase: ChannelPhase::Relay, deadline: idle })
        }
    };
    // An orderly close follows only both ends of stream; otherwise the client must see a break.
    if result.is_ok() {
        let _ = tokio::time::timeout(idle, sink.close()).await;
    }
    result
}

async fn copy_to_target<R>(
    messages: &mut R,
    target: &mut (impl AsyncWrite + Unpin),
    moved: &AtomicU64,
) -> Result<u64, ChannelError>
where
    R: Stream<Item = Result<Message, WsError>> + Unpin,
{
    let phase = ChannelPhase::Relay;
    let mut bytes = 0;
    while let Some(message) = messages.next().await {
        match message.map_err(|source| websocket_error(phase, source))? {
            Message::Binary(part) => {
                let sent = target.write_all(&part).await;
                sent.map_err(|source| ChannelError::Io { phase, source })?;
                bytes += part.len() as u64;
                moved.fetch_add(1, Ordering::Relaxed);
            }
            Message::Text(text) if text.as_str() == END_OF_STREAM => {
                let ended = target.shutdown().await;
                ended.map_err(|source| ChannelError::Io { phase, source })?;
                return Ok(bytes);
            }
            Message::Ping(_) | Message::Pong(_) => {}
            _ => break,
        }
    }
    Err(TunnelError::Truncated.into())
}

async fn copy_to_client<W>(
    target: &mut (impl AsyncRead + Unpin),
    sink: &mut W,
    moved: &AtomicU64,
) -> Result<u64, ChannelError>
where
    W: Sink<Message, Error = WsError> + Unpin,
{
    let phase = ChannelPhase::Relay;
    let mut bytes = 0;
    let mut part = vec![0; MESSAGE_BYTES_MAX];
    loop {
        let read = target.read(&mut part).await;
        let read = read.map_err(|source| ChannelError::Io { phase, source })?;
        let message = match part.get(..read).unwrap_or_default() {
            [] => Message::text(END_OF_STREAM),
            part => Message::Binary(Bytes::copy_from_slice(part)),
        };
        sink.send(message).await.map_err(|source| websocket_error(phase, source))?;
        if read == 0 {
            return Ok(bytes);
        }
        bytes += read as u64;
        moved.fetch_add(1, Ordering::Relaxed);
    }
}

/// Returns when a whole `idle` has passed without a transfer. The tunnel has one timer, because a
/// timer for each read would cost throughput.
async fn wait_until_idle(moved: &AtomicU64, idle: Duration) {
    let mut before = moved.load(Ordering::Relaxed);
    loop {
        tokio::time::sleep(idle).await;
        let now = moved.load(Ordering::Relaxed);
        if now == before {
            return;
        }
        before = now;
    }
}
