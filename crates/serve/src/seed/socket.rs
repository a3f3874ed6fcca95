use std::{future::Future, sync::Arc};

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use confide_http::Busy;
use futures_util::{SinkExt, StreamExt};
use http::{HeaderMap, HeaderValue, Request, StatusCode, header};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Error as WsError, Message,
        handshake::derive_accept_key,
        protocol::{Role, WebSocketConfig},
    },
};

use crate::{Limits, error::ApiError, site::Site};

/// What a connection gives its requests, so that a WebSocket counts as the connection that it was.
#[derive(Clone)]
pub(crate) struct Held {
    pub(crate) _busy: Arc<Busy>,
    pub(crate) stopped: watch::Receiver<bool>,
}

/// A WebSocket whose client is there.
pub(crate) struct Socket {
    stream: WebSocketStream<TokioIo<Upgraded>>,
    limits: Limits,
    held: Option<Held>,
    _permit: OwnedSemaphorePermit,
}

/// One message of a client.
pub(crate) enum Received {
    Text(Bytes),
    Binary(Bytes),
}

/// The client has gone: there is nobody to tell.
#[derive(Debug)]
pub(crate) struct Gone;

/// Answers a handshake, and then runs `work` on the socket until it returns.
pub(crate) fn upgrade<F, W>(
    site: &Arc<Site>,
    mut request: Request<Body>,
    work: F,
) -> Result<Response, ApiError>
where
    F: FnOnce(Arc<Site>, Socket) -> W + Send + 'static,
    W: Future<Output = ()> + Send,
{
    let key = handshake_key(request.headers())?;
    let refused = || ApiError::NoUpgrade { got: "a connection that cannot be upgraded".into() };
    let upgrading = request.extensions_mut().remove::<OnUpgrade>().ok_or_else(refused)?;
    let held = request.extensions_mut().remove::<Held>();
    let limits = site.options.limits.clone();
    let permit = Arc::clone(&site.sockets).try_acquire_owned();
    let permit = permit.map_err(|_| ApiError::SocketsFull { limit: limits.sockets })?;
    let site = Arc::clone(site);
    tokio::spawn(async move {
        let Ok(upgraded) = upgrading.await else { return };
        let config = Some(config(&limits));
        let io = TokioIo::new(upgraded);
        let stream = WebSocketStream::from_raw_socket(io, Role::Server, config).await;
        site.counters.sockets.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        work(site, Socket { stream, limits, held, _permit: permit }).await;
    });
    let accept = HeaderValue::from_str(&derive_accept_key(key.as_bytes()));
    let accept = accept.map_err(|_| ApiError::NoUpgrade { got: "an odd key".into() })?;
    let headers = [
        (header::CONNECTION, HeaderValue::from_static("upgrade")),
        (header::UPGRADE, HeaderValue::from_static("websocket")),
        (header::SEC_WEBSOCKET_ACCEPT, accept),
    ];
    Ok((StatusCode::SWITCHING_PROTOCOLS, headers).into_response())
}

impl Socket {
    /// The next message; `None` once the client has gone, was silent for too long, said something
    /// that is none, or the server stops.
    pub(crate) async fn receive(&mut self) -> Option<Received> {
        let idle = self.limits.socket_idle;
        loop {
            let stop = stopping(self.held.as_ref());
            let received = tokio::select! {
                received = tokio::time::timeout(idle, self.stream.next()) => received,
                () = stop => break,
            };
            match received {
                Ok(Some(Ok(Message::Text(text)))) => return Some(Received::Text(text.into())),
                Ok(Some(Ok(Message::Binary(bytes)))) => return Some(Received::Binary(bytes)),
                // The library answers pings itself.
                Ok(Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_)))) => {}
                Ok(Some(Err(WsError::Capacity(error)))) => {
                    let reason = error.to_string();
                    let _ = self.fail(&ApiError::Message { reason }, None).await;
                    break;
                }
                Ok(Some(Ok(Message::Close(_)) | Err(_)) | None) => return None,
                Err(_silent) => break,
            }
        }
        self.close().await;
        None
    }

    pub(crate) async fn say(&mut self, value: &Value) -> Result<(), Gone> {
        self.stream.send(Message::text(value.to_string())).await.map_err(|_| Gone)
    }

    pub(crate) async fn say_bytes(&mut self, bytes: Vec<u8>) -> Result<(), Gone> {
        self.stream.send(Message::binary(bytes)).await.map_err(|_| Gone)
    }

    /// Says an error: its text as the seed's clients read it, and the object that ours do.
    pub(crate) async fn fail(
        &mut self,
        error: &ApiError,
        session_id: Option<&str>,
    ) -> Result<(), Gone> {
        let mut event = error.body();
        event["type"] = "error".into();
        event["message"] = error.to_string().into();
        if let Some(id) = session_id {
            event["session_id"] = id.into();
        }
        self.say(&event).await
    }

    async fn close(&mut self) {
        const PATIENCE: std::time::Duration = std::time::Duration::from_secs(1);
        let _ = tokio::time::timeout(PATIENCE, self.stream.close(None)).await;
    }
}

/// Resolves when the server was asked to stop.
async fn stopping(held: Option<&Held>) {
    match held {
        None => std::future::pending().await,
        Some(held) => {
            let mut stopped = held.stopped.clone();
            let _ = stopped.wait_for(|stopped| *stopped).await;
        }
    }
}

/// RFC 6455 section 4.2.1.
fn handshake_key(headers: &HeaderMap) -> Result<String, ApiError> {
    let field = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let has = |name, word: &str| {
        field(name).is_some_and(|value: &str| {
            value.split(',').any(|token| token.trim().eq_ignore_ascii_case(word))
        })
    };
    let refused = |got: &str| ApiError::NoUpgrade { got: got.into() };
    if !has(header::CONNECTION, "upgrade") || !has(header::UPGRADE, "websocket") {
        return Err(refused("a plain request"));
    }
    if field(header::SEC_WEBSOCKET_VERSION) != Some("13") {
        return Err(refused("another version"));
    }
    let key = field(header::SEC_WEBSOCKET_KEY).ok_or_else(|| refused("no key"))?;
    Ok(key.into())
}

/// Tokens are small and must not wait for each other.
fn config(limits: &Limits) -> WebSocketConfig {
    WebSocketConfig::default()
        .write_buffer_size(0)
        .max_write_buffer_size(limits.message_bytes)
        .max_message_size(Some(limits.message_bytes))
        .max_frame_size(Some(limits.message_bytes))
}
