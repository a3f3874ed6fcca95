use std::sync::Arc;

use axum::{body::Body, extract::State, response::Response};
use http::Request;
use serde_json::json;

use super::{
    frame::{self, Asked},
    socket::{Gone, Received, Socket, upgrade},
    split::{self, Reading},
};
use crate::{error::ApiError, site::Site};

/// `WS /api/v1/split/stream`: hidden states for a client that keeps the LM head. One session, which
/// ends with the socket.
pub(crate) async fn open(
    site: State<Arc<Site>>,
    request: Request<Body>,
) -> Result<Response, ApiError> {
    split::split_of(&site)?;
    upgrade(&site, request, run)
}

async fn run(site: Arc<Site>, mut socket: Socket) {
    let mut reading = None;
    while let Some(received) = socket.receive().await {
        let answered = match answer(&site, &mut socket, &mut reading, received).await {
            Ok(answered) => answered,
            Err(error) => {
                // What the session had read is in doubt: the next message begins anew.
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
    site: &Arc<Site>,
    socket: &mut Socket,
    reading: &mut Option<Reading>,
    received: Received,
) -> Result<Result<(), Gone>, ApiError> {
    let (asked, binary) = match &received {
        Received::Text(text) => (frame::parse_text(text)?, false),
        Received::Binary(bytes) => (frame::parse_binary(bytes)?, true),
    };
    Ok(match asked {
        Asked::Ping => socket.say(&json!({ "type": "pong" })).await,
        Asked::Config => socket.say(&split::config_object(site)?).await,
        Asked::Tokenize { text } => socket.say(&split::token_ids(site, text).await?).await,
        Asked::Forward(forward) => {
            // A session that was lost must not be continued as if it were whole.
            if forward.incremental && reading.is_none() {
                let reason = "incremental: nothing was read in this session".into();
                return Err(ApiError::Message { reason });
            }
            let answer = split::read(site, reading, forward).await?;
            match binary {
                true => socket.say_bytes(frame::write_binary(&answer.head, &answer.hidden)).await,
                false => socket.say(&split::in_text(answer)).await,
            }
        }
    })
}
