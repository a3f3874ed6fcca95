//! The connecting end of a tunnel.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Buf, Bytes};
use futures_util::{Sink, Stream};
use http::Uri;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_tungstenite::{
    WebSocketStream, client_async_with_config,
    tungstenite::{Error as WsError, Message},
};

use super::{
    allow,
    websocket::{END_OF_STREAM, MESSAGE_BYTES_MAX, PATH, websocket_config, websocket_error},
};
use crate::{
    deadline::Deadline,
    error::{ChannelError, ChannelPhase, TunnelError},
};

/// The largest number of bytes of a refusal's body that the error keeps.
const BODY_BYTES_MAX: usize = 1024;

/// Opens a tunnel through the proxy at `via_url` (`ws://HOST:PORT[/PATH]`) to `target`
/// (`HOST:PORT`). One deadline covers the dial and the upgrade.
///
/// # Errors
/// [`TunnelError::Url`] or [`TunnelError::Target`] for an address that cannot be used,
/// [`TunnelError::ProxyRefused`] if the proxy answers with another status,
/// [`TunnelError::WebSocket`], [`ChannelError::Timeout`] or [`ChannelError::Io`] if the
/// connection fails.
pub async fn dial(
    via_url: &str,
    target: &str,
    deadline: Duration,
) -> Result<TunnelStream, ChannelError> {
    let deadline = Deadline::after(deadline);
    let (proxy, url) = split_address(via_url, &allow::normalise_target(target)?)?;
    let socket = deadline.limit_io(ChannelPhase::Dial, TcpStream::connect(&proxy)).await?;
    let phase = ChannelPhase::Dial;
    socket.set_nodelay(true).map_err(|source| ChannelError::Io { phase, source })?;
    let upgrade = client_async_with_config(url, socket, Some(websocket_config()));
    let upgraded = deadline.limit(ChannelPhase::Upgrade, upgrade).await?;
    let (websocket, _response) = upgraded.map_err(upgrade_error)?;
    Ok(TunnelStream {
        ended: ClosedDirections::default(),
        part: Bytes::new(),
        unsent: false,
        writer_waits: false,
        websocket,
    })
}

/// A byte stream to the target. The proxy can read it, so the bytes should be encrypted.
#[derive(Debug)]
pub struct TunnelStream {
    ended: ClosedDirections,
    /// The unread rest of the last message.
    part: Bytes,
    /// Whether a message may still lie in the WebSocket's buffer.
    unsent: bool,
    /// Whether a writing task waits for the socket. A reading task must not flush then: it would
    /// replace the writer's waker.
    writer_waits: bool,
    websocket: WebSocketStream<TcpStream>,
}

impl TunnelStream {
    /// The round trips that opening takes: TCP to the proxy, and the upgrade, within which the
    /// proxy opens TCP to the target. For [`crate::ChannelTimings::with_carrier_round_trips`].
    pub const ROUND_TRIPS: u32 = 3;

    /// Sends a message once all earlier ones are written.
    fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        message: impl FnOnce() -> Message,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_flush_writer(cx))?;
        Pin::new(&mut self.websocket).start_send(message()).map_err(stream_error)?;
        self.unsent = true;
        // The next write, flush or read writes what could not be written now.
        match self.poll_flush_unsent(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            _ => Poll::Ready(Ok(())),
        }
    }

    /// Flushes for a writing task, and notes whether that task waits for the socket.
    fn poll_flush_writer(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let poll = self.poll_flush_unsent(cx);
        self.writer_waits = poll.is_pending();
        poll
    }

    fn poll_flush_unsent(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.unsent {
            ready!(Pin::new(&mut self.websocket).poll_flush(cx)).map_err(stream_error)?;
            self.unsent = false;
        }
        Poll::Ready(Ok(()))
    }
}

#[derive(Debug, Default)]
struct ClosedDirections {
    reading: bool,
    writing: bool,
}

impl AsyncRead for TunnelStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if !this.writer_waits
            && let Poll::Ready(Err(error)) = this.poll_flush_unsent(cx)
        {
            return Poll::Ready(Err(error));
        }
        while this.part.is_empty() {
            if this.ended.reading {
                return Poll::Ready(Ok(()));
            }
            match ready!(Pin::new(&mut this.websocket).poll_next(cx)) {
                Some(Ok(Message::Binary(part))) => this.part = part,
                Some(Ok(Message::Text(text))) if text.as_str() == END_OF_STREAM => {
                    this.ended.reading = true;
                }
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                Some(Err(error)) => return Poll::Ready(Err(stream_error(error))),
                // A close without the end-of-stream mark is a truncation.
                Some(Ok(_)) | None => {
                    let kind = io::ErrorKind::UnexpectedEof;
                    return Poll::Ready(Err(io::Error::new(kind, TunnelError::Truncated)));
                }
            }
        }
        let len = this.part.len().min(out.remaining());
        out.put_slice(this.part.get(..len).unwrap_or_default());
        this.part.advance(len);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for TunnelStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.ended.writing {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let len = bytes.len().min(MESSAGE_BYTES_MAX);
        let part = || Bytes::copy_from_slice(bytes.get(..len).unwrap_or_default());
        ready!(self.poll_send(cx, || Message::Binary(part())))?;
        Poll::Ready(Ok(len))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush_writer(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.ended.writing {
            ready!(self.poll_send(cx, || Message::text(END_OF_STREAM)))?;
            self.ended.writing = true;
        }
        self.poll_flush_writer(cx)
    }
}

/// Splits `via_url` into the proxy's `HOST:PORT` and the URL of the request.
fn split_address(via_url: &str, target: &str) -> Result<(String, String), TunnelError> {
    let unusable = || TunnelError::Url { url: via_url.chars().take(200).collect() };
    let uri: Uri = via_url.parse().map_err(|_| unusable())?;
    let authority = uri.authority().ok_or_else(unusable)?;
    if uri.scheme_str() != Some("ws") || uri.query().is_some() {
        return Err(unusable());
    }
    let proxy = allow::normalise_target(authority.as_str()).map_err(|_| unusable())?;
    let path = if uri.path() == "/" { PATH } else { uri.path() };
    let target = utf8_percent_encode(target, NON_ALPHANUMERIC);
    Ok((proxy, format!("ws://{authority}{path}?target={target}")))
}

fn upgrade_error(error: WsError) -> ChannelError {
    match error {
        WsError::Http(response) => {
            let status = response.status().as_u16();
            let body = response.into_body().unwrap_or_default();
            let body = body.get(..BODY_BYTES_MAX).unwrap_or(&body);
            let body = String::from_utf8_lossy(body).chars().filter(|c| !c.is_control()).collect();
            TunnelError::ProxyRefused { status, body }.into()
        }
        error => websocket_error(ChannelPhase::Upgrade, error),
    }
}

fn stream_error(error: WsError) -> io::Error {
    match error {
        WsError::Io(error) => error,
        WsError::ConnectionClosed | WsError::AlreadyClosed => {
            io::Error::new(io::ErrorKind::UnexpectedEof, TunnelError::Truncated)
        }
        error => io::Error::other(error),
    }
}
