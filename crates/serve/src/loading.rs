//! Adapters loaded and unloaded by requests, as vLLM does (its `docs/features/lora.md`).

use std::sync::Arc;

use axum::{
    body::Body,
    extract::State,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, header};

use crate::{
    adapters::AskedBy, body::read_body, error::ApiError, fields::Fields, server_state::ServerState,
};

/// `POST /v1/load_lora_adapter`: `{lora_name, lora_path}`.
pub(crate) async fn load(
    server: State<Arc<ServerState>>,
    body: Body,
) -> Result<Response, ApiError> {
    let mut fields = Fields::parse(&read_body(&server.options.limits, body).await?)?;
    let name = fields.require_text("lora_name")?;
    let path = fields.require_text("lora_path")?;
    // A field of vLLM's: adapters are never replaced here, so only its default is supported.
    fields.neutral("load_inplace", &[false.into()])?;
    fields.finish(&[])?;
    let wanted = name.clone();
    change(&server, move |server| {
        server.options.adapters.load(&wanted, &path, AskedBy::Request).map(drop)
    })
    .await?;
    Ok(text_response(format!("Success: LoRA adapter '{name}' added successfully.")))
}

/// `POST /v1/unload_lora_adapter`: `{lora_name}`.
pub(crate) async fn unload(
    server: State<Arc<ServerState>>,
    body: Body,
) -> Result<Response, ApiError> {
    let mut fields = Fields::parse(&read_body(&server.options.limits, body).await?)?;
    let name = fields.require_text("lora_name")?;
    fields.finish(&["lora_int_id"])?;
    let wanted = name.clone();
    change(&server, move |server| server.options.adapters.unload(&wanted, AskedBy::Request))
        .await?;
    Ok(text_response(format!("Success: LoRA adapter '{name}' removed successfully.")))
}

/// Runs `work`, which waits for disks and hosts, off the event loop and for at most
/// [`Limits::load_wait`](crate::limits::Limits::load_wait).
async fn change(
    server: &Arc<ServerState>,
    work: impl FnOnce(&ServerState) -> Result<(), crate::adapters::LoadError> + Send + 'static,
) -> Result<(), ApiError> {
    let limit = server.options.limits.load_wait;
    let place = Arc::clone(&server.loads).try_acquire_owned().map_err(|_| ApiError::LoadsQueued)?;
    let server = Arc::clone(server);
    let running = tokio::task::spawn_blocking(move || {
        // Held until the work ends, also if nobody waits for it any more.
        let _place = place;
        work(&server)
    });
    let done = tokio::time::timeout(limit, running).await;
    let done = done.map_err(|_| ApiError::Deadline { limit })?;
    Ok(done.map_err(|_| confide_engine::EngineError::Stopped)??)
}

fn text_response(text: String) -> Response {
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}
