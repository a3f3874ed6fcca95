//! The adapters of the server, and its counters.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use axum::{
    extract::{Path, State},
    response::Response,
};
use confide_serve::{ApiError, Loaded, json_response};
use serde_json::{Value, json};

use super::layer::Layer;

/// `GET /api/v1/adapters`: the loaded adapters.
pub(super) async fn adapters(layer: State<Arc<Layer>>) -> Response {
    let active = layer.server.adapters().active().map(|adapter| adapter.name.clone());
    let all = layer.server.adapters().all();
    let object = |adapter: &Arc<Loaded>| {
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

/// `POST /api/v1/adapters/{name}/swap`: sets the adapter that answers where none is named.
pub(super) async fn swap(
    layer: State<Arc<Layer>>,
    Path(name): Path<String>,
) -> Result<Response, ApiError> {
    let previous = layer.server.adapters().activate(&name)?;
    Ok(json_response(&json!({ "active": name, "previous": previous })))
}

/// `GET /api/v1/metrics`: counters since the start.
pub(super) async fn metrics(layer: State<Arc<Layer>>) -> Response {
    let of = |counter: &AtomicU64| Value::from(counter.load(Ordering::Relaxed));
    let mut counted = layer.server.counters().to_json();
    counted["sockets"] = of(&layer.sockets_opened);
    counted["split_forwards"] = of(&layer.split_forwards);
    json_response(&counted)
}
