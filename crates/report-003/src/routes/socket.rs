//! WebSockets: the handshake, messages, and the closing.

use std::{
    future::Future,
    sync::{Arc, atomic::Ordering},
};

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use confide_serve::{ApiError, ConnectionHandle};
use futures_util::{SinkExt, StreamExt};
use http::{HeaderMap, HeaderValue, Request, StatusCode, header};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::sync::OwnedSemaphorePermit;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Error as WsError, Message,
        handshake::derive_accept_key,
        protocol::{Role, WebSocketConfig},
    },
};

use super::route_state::{RouteState, SocketLimits};
use crate::error::{sockets_full_error, unreadable_message_error, upgrade_required_error};

/// A WebSocket whose client is connected.
pub(super) struct ClientSocket {
    stream: WebSocketStream<TokioIo<Upgraded>>,
    limits: SocketLimits,
    held: Option<ConnectionHandle>,
    _permit: OwnedSemaphorePermit,
}

/// One message from a client.
pub(super) enum ClientMessage {
    Text(Bytes),
    Binary(Bytes),
}

/// The client has disconnected, so no error can be sent.
#[derive(Debug)]
pub(super) struct Disconnected;

/// Answers a handshake, and then runs `work` on the socket until it returns.
pub(super) fn upgrade<F, W>(
    state: &Arc<RouteState>,
    mut request: Request<Body>,
    work: F,
) -> Result<Response, ApiError>
where
    F: FnOnce(Arc<RouteState>, ClientSocket) -> W + Send + 'static,
    W: Future<Output = ()> + Send,
{
    let key = handshake_key(request.headers())?;
    let refused = || upgrade_required_error("a connection that cannot be upgraded");
    let upgrading = request.extensions_mut().remove::<OnUpgrade>().ok_or_else(refused)?;
    let held = request.extensions_mut().remove::<ConnectionHandle>();
    let limits = state.limits.clone();
    let permit = Arc::clone(&state.sockets).try_acquire_owned();
    let permit = permit.map_err(|_| sockets_full_error(limits.open))?;
    let state = Arc::clone(state);
    tokio::spawn(async move {
        let Ok(upgraded) = upgrading.await else { return };
        let config = Some(socket_config(&limits));
        let io = TokioIo::new(upgraded);
        let stream = WebSocketStream::from_raw_socket(io, Role::Server, config).await;
        state.sockets_opened.fetch_add(1, Ordering::Relaxed);
        work(state, ClientSocket { stream, limits, held, _permit: permit }).await;
    });
    let accept = HeaderValue::from_str(&derive_accept_key(key.as_bytes()));
    let accept = accept.map_err(|_| upgrade_required_error("an invalid key"))?;
    let headers = [
        (header::CONNECTION, HeaderValue::from_static("upgrade")),
        (header::UPGRADE, HeaderValue::from_static("websocket")),
        (header::SEC_WEBSOCKET_ACCEPT, accept),
    ];
    Ok((StatusCode::SWITCHING_PROTOCOLS, headers).into_response())
}

impl ClientSocket {
    /// Receives the next message; `None` if the client has disconnected, was silent for too long or
    /// violated the protocol, or if the server stops.
    pub(super) async fn receive(&mut self) -> Option<ClientMessage> {
        let idle = self.limits.idle;
        loop {
            let stop = wait_for_stop(self.held.as_ref());
            let received = tokio::select! {
                received = tokio::time::timeout(idle, self.stream.next()) => received,
                () = stop => break,
            };
            match received {
                Ok(Some(Ok(Message::Text(text)))) => return Some(ClientMessage::Text(text.into())),
                Ok(Some(Ok(Message::Binary(bytes)))) => return Some(ClientMessage::Binary(bytes)),
                // The WebSocket library answers pings.
                Ok(Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_)))) => {}
                Ok(Some(Err(WsError::Capacity(error)))) => {
                    let error = unreadable_message_error(&error.to_string());
                    let _ = self.send_error(&error, None).await;
                    break;
                }
                Ok(Some(Ok(Message::Close(_)) | Err(_)) | None) => return None,
                Err(_silent) => break,
            }
        }
        self.close().await;
        None
    }

    pub(super) async fn send_json(&mut self, value: &Value) -> Result<(), Disconnected> {
        self.stream.send(Message::text(value.to_string())).await.map_err(|_| Disconnected)
    }

    pub(super) async fn send_binary(&mut self, bytes: Vec<u8>) -> Result<(), Disconnected> {
        self.stream.send(Message::binary(bytes)).await.map_err(|_| Disconnected)
    }

    /// Sends an error: its text for the report's clients, and the error object for this project's
    /// clients.
    pub(super) async fn send_error(
        &mut self,
        error: &ApiError,
        session_id: Option<&str>,
    ) -> Result<(), Disconnected> {
        let mut event = error.body();
        event["type"] = "error".into();
        event["message"] = error.to_string().into();
        if let Some(id) = session_id {
            event["session_id"] = id.into();
        }
        self.send_json(&event).await
    }

    async fn close(&mut self) {
        const PATIENCE: std::time::Duration = std::time::Duration::from_secs(1);
        let _ = tokio::time::timeout(PATIENCE, self.stream.close(None)).await;
    }
}

/// Returns when the server is asked to stop.
async fn wait_for_stop(held: Option<&ConnectionHandle>) {
    match held {
        None => std::future::pending().await,
        Some(held) => held.wait_until_stopped().await,
    }
}

/// The key of a WebSocket handshake (RFC 6455 section 4.2.1).
fn handshake_key(headers: &HeaderMap) -> Result<String, ApiError> {
    let field = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let has = |name, word: &str| {
        field(name).is_some_and(|value: &str| {
            value.split(',').any(|token| token.trim().eq_ignore_ascii_case(word))
        })
    };
    if !has(header::CONNECTION, "upgrade") || !has(header::UPGRADE, "websocket") {
        return Err(upgrade_required_error("a plain request"));
    }
    if field(header::SEC_WEBSOCKET_VERSION) != Some("13") {
        return Err(upgrade_required_error("an unsupported version"));
    }
    let key = field(header::SEC_WEBSOCKET_KEY).ok_or_else(|| upgrade_required_error("no key"))?;
    Ok(key.into())
}

/// Configures a socket without write buffers, so that each token is sent at once.
fn socket_config(limits: &SocketLimits) -> WebSocketConfig {
    WebSocketConfig::default()
        .write_buffer_size(0)
        .max_write_buffer_size(limits.message_bytes)
        .max_message_size(Some(limits.message_bytes))
        .max_frame_size(Some(limits.message_bytes))
}
