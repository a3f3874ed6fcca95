use std::sync::Arc;

use axum::{
    extract::{Path, State},
    response::Response,
};
use serde_json::{Value, json};

use crate::{body::json_response, error::ApiError, site::Site};

/// `GET /api/v1/adapters`.
pub(crate) async fn adapters(site: State<Arc<Site>>) -> Response {
    let active = site.options.adapters.active().map(|adapter| adapter.name.clone());
    let all = site.options.adapters.all();
    let object = |adapter: &Arc<crate::Loaded>| {
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

/// `POST /api/v1/adapters/{name}/swap`: which adapter answers where none is named.
pub(crate) async fn swap(
    site: State<Arc<Site>>,
    Path(name): Path<String>,
) -> Result<Response, ApiError> {
    let previous = site.options.adapters.activate(&name)?;
    Ok(json_response(&json!({ "active": name, "previous": previous })))
}

/// `GET /api/v1/metrics`: counted since the start.
pub(crate) async fn metrics(site: State<Arc<Site>>) -> Response {
    json_response(&site.counters.object())
}
