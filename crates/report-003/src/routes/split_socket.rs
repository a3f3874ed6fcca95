//! Split mode over a WebSocket.

use std::sync::Arc;

use axum::{body::Body, extract::State, response::Response};
use confide_serve::ApiError;
use http::Request;
use serde_json::json;

use super::{
    route_state::RouteState,
    socket::{ClientMessage, ClientSocket, Disconnected, upgrade},
    split::{self, OpenSplitSession},
};
use crate::{
    error::unreadable_message_error,
    split_mode::frame::{self, SplitRequest},
};

/// `WS /api/v1/split/stream`: hidden states for a client that keeps the LM head. The session ends
/// with the socket.
pub(super) async fn open_split_socket(
    state: State<Arc<RouteState>>,
    request: Request<Body>,
) -> Result<Response, ApiError> {
    split::require_split_model(&state)?;
    upgrade(&state, request, serve_socket)
}

async fn serve_socket(state: Arc<RouteState>, mut socket: ClientSocket) {
    let mut reading = None;
    while let Some(received) = socket.receive().await {
        let answered = match answer_message(&state, &mut socket, &mut reading, received).await {
            Ok(answered) => answered,
            Err(error) => {
                // The state of the session is unknown, so the next message opens a new one.
                reading = None;
                socket.send_error(&error, None).await
            }
        };
        if answered.is_err() {
            return;
        }
    }
}

async fn answer_message(
    state: &Arc<RouteState>,
    socket: &mut ClientSocket,
    reading: &mut Option<OpenSplitSession>,
    received: ClientMessage,
) -> Result<Result<(), Disconnected>, ApiError> {
    let (asked, binary) = match &received {
        ClientMessage::Text(text) => (frame::parse_text_message(text)?, false),
        ClientMessage::Binary(bytes) => (frame::parse_binary_message(bytes)?, true),
    };
    Ok(match asked {
        SplitRequest::Ping => socket.send_json(&json!({ "type": "pong" })).await,
        SplitRequest::Config => socket.send_json(&split::config_json(state)?).await,
        SplitRequest::Tokenize { text } => {
            socket.send_json(&split::token_ids_json(state, text).await?).await
        }
        SplitRequest::Forward(forward) => {
            // A client must not continue a session that was lost.
            if forward.incremental && reading.is_none() {
                let reason = "incremental: this socket has no open session; \
                    send a `forward` without incremental first";
                return Err(unreadable_message_error(reason));
            }
            let answer = split::forward_tokens(state, reading, forward).await?;
            match binary {
                true => {
                    socket
                        .send_binary(frame::encode_binary_message(&answer.head, &answer.hidden))
                        .await
                }
                false => socket.send_json(&split::answer_to_json(answer)).await,
            }
        }
    })
}
