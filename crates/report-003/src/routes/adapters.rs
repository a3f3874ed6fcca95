//! The adapters of the server, and its counters.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use axum::{
    extract::{Path, State},
    response::Response,
};
use confide_serve::{ApiError, LoadedAdapter, json_response};
use serde_json::{Value, json};

use super::route_state::RouteState;

/// `GET /api/v1/adapters`: the loaded adapters.
pub(super) async fn list_adapters(state: State<Arc<RouteState>>) -> Response {
    let active = state.server.adapters().active().map(|adapter| adapter.name.clone());
    let all = state.server.adapters().list();
    let object = |adapter: &Arc<LoadedAdapter>| {
        let layers = adapter.sites().keys().map(|site| site.layer).collect::<Vec<_>>();
        let projections: std::collections::BTreeSet<&str> =
            adapter.sites().keys().map(|site| site.projection.name()).collect();
        json!({
            "name": adapter.name,
            "parent": adapter.parent,
            "root": adapter.root,
            "guarantee": adapter.guarantee().to_string(),
            "active": active.as_ref() == Some(&adapter.name),
            "projections": projections,
            "adapted_matrices": layers.len(),
        })
    };
    let list: Vec<Value> = all.iter().map(object).collect();
    json_response(&json!({ "adapters": list, "active": active }))
}

/// `POST /api/v1/adapters/{name}/swap`: sets the adapter that answers requests without an adapter
/// name.
pub(super) async fn swap_adapter(
    state: State<Arc<RouteState>>,
    Path(name): Path<String>,
) -> Result<Response, ApiError> {
    let previous = state.server.adapters().activate(&name)?;
    Ok(json_response(&json!({ "active": name, "previous": previous })))
}

/// `GET /api/v1/metrics`: the counters since the server started.
pub(super) async fn metrics(state: State<Arc<RouteState>>) -> Response {
    let of = |counter: &AtomicU64| Value::from(counter.load(Ordering::Relaxed));
    let mut counted = state.server.counters().to_json();
    counted["sockets"] = of(&state.sockets_opened);
    counted["split_forwards"] = of(&state.split_forwards);
    json_response(&counted)
}
