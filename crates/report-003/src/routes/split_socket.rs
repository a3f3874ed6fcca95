//! Split mode over a WebSocket.

use std::sync::Arc;

use axum::{body::Body, extract::State, response::Response};
use confide_serve::ApiError;
use http::Request;
use serde_json::json;

use super::{
    layer::Layer,
    socket::{Disconnected, Received, Socket, upgrade},
    split::{self, Reading},
};
use crate::{
    error::unreadable_message,
    split_mode::frame::{self, SplitRequest},
};

/// `WS /api/v1/split/stream`: hidden states for a client that keeps the LM head. One session, which
/// ends with the socket.
pub(super) async fn open(
    layer: State<Arc<Layer>>,
    request: Request<Body>,
) -> Result<Response, ApiError> {
    split::split_of(&layer)?;
    upgrade(&layer, request, run)
}

async fn run(layer: Arc<Layer>, mut socket: Socket) {
    let mut reading = None;
    while let Some(received) = socket.receive().await {
        let answered = match answer(&layer, &mut socket, &mut reading, received).await {
            Ok(answered) => answered,
            Err(error) => {
                // The state of the session is in doubt, so the next message opens a new one.
                reading = None;
                socket.fail(&error, None).await
            }
        };
        if answered.is_err() {
            return;
        }
    }
}

async fn answer(
    layer: &Arc<Layer>,
    socket: &mut Socket,
    reading: &mut Option<Reading>,
    received: Received,
) -> Result<Result<(), Disconnected>, ApiError> {
    let (asked, binary) = match &received {
        Received::Text(text) => (frame::parse_text(text)?, false),
        Received::Binary(bytes) => (frame::parse_binary(bytes)?, true),
    };
    Ok(match asked {
        SplitRequest::Ping => socket.say(&json!({ "type": "pong" })).await,
        SplitRequest::Config => socket.say(&split::config_object(layer)?).await,
        SplitRequest::Tokenize { text } => socket.say(&split::token_ids(layer, text).await?).await,
        SplitRequest::Forward(forward) => {
            // A session that was lost must not be continued as if it were whole.
            if forward.incremental && reading.is_none() {
                let reason = "incremental: nothing was read in this session";
                return Err(unreadable_message(reason));
            }
            let answer = split::read(layer, reading, forward).await?;
            match binary {
                true => socket.say_bytes(frame::write_binary(&answer.head, &answer.hidden)).await,
                false => socket.say(&split::in_text(answer)).await,
            }
        }
    })
}
