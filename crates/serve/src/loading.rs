//! Loads and unloads adapters on request, as vLLM does (its `docs/features/lora.md`).

use std::sync::Arc;

use axum::{
    body::Body,
    extract::State,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, header};

use crate::{
    adapters::Requester, body::read_body, error::ApiError, fields::JsonFields,
    server_state::ServerState,
};

/// `POST /v1/load_lora_adapter`: `{lora_name, lora_path}`.
pub(crate) async fn load_adapter(
    server: State<Arc<ServerState>>,
    body: Body,
) -> Result<Response, ApiError> {
    let mut fields = JsonFields::parse(&read_body(&server.options.limits, body).await?)?;
    let name = fields.require_text("lora_name")?;
    let path = fields.require_text("lora_path")?;
    // A field of vLLM. Adapters are never replaced here, so only its default is supported.
    fields.allow_only_neutral("load_inplace", &[false.into()])?;
    fields.finish(&[])?;
    let wanted = name.clone();
    run_adapter_change(&server, move |server| {
        server.options.adapters.load(&wanted, &path, Requester::Request).map(drop)
    })
    .await?;
    Ok(text_response(format!("Success: LoRA adapter '{name}' added successfully.")))
}

/// `POST /v1/unload_lora_adapter`: `{lora_name}`.
pub(crate) async fn unload_adapter(
    server: State<Arc<ServerState>>,
    body: Body,
) -> Result<Response, ApiError> {
    let mut fields = JsonFields::parse(&read_body(&server.options.limits, body).await?)?;
    let name = fields.require_text("lora_name")?;
    fields.finish(&["lora_int_id"])?;
    let wanted = name.clone();
    run_adapter_change(&server, move |server| {
        server.options.adapters.unload(&wanted, Requester::Request)
    })
    .await?;
    Ok(text_response(format!("Success: LoRA adapter '{name}' removed successfully.")))
}

/// Runs blocking `work` off the event loop, and waits for it at most
/// [`ServeLimits::load_wait`](crate::limits::ServeLimits::load_wait).
async fn run_adapter_change(
    server: &Arc<ServerState>,
    work: impl FnOnce(&ServerState) -> Result<(), crate::adapters::LoadError> + Send + 'static,
) -> Result<(), ApiError> {
    let limit = server.options.limits.load_wait;
    let place = Arc::clone(&server.loads).try_acquire_owned().map_err(|_| ApiError::LoadsQueued)?;
    let server = Arc::clone(server);
    let running = tokio::task::spawn_blocking(move || {
        // Held until the work ends, even after the request has timed out.
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
