//! The link to the compatibility layer for report 003 (`crates/report-003`), by the feature
//! `report-003`. Without the feature, commands that need the layer say so.

#[cfg(all(feature = "native", feature = "report-003"))]
mod head;
#[cfg(all(feature = "native", feature = "report-003"))]
pub(crate) mod split;

use std::{path::Path, sync::Arc};

use confide_lora::{Adapter, DeltaProvider};
use confide_serve::ExtraRoutes;

/// The report's routes, for a server of the model in this folder.
#[cfg(feature = "report-003")]
pub(crate) fn routes(model: Option<&Path>) -> Option<ExtraRoutes> {
    use confide_report_003::routes::{RouteOptions, routes};
    Some(routes(RouteOptions { head: model.and_then(lazy_lm_head), ..RouteOptions::default() }))
}

/// Gives no routes: this binary was built without them.
#[cfg(not(feature = "report-003"))]
pub(crate) fn routes(_model: Option<&Path>) -> Option<ExtraRoutes> {
    None
}

/// The LM head of the model, for the self-test and for clients without a tokenizer: loaded when it
/// is first needed.
#[cfg(all(feature = "native", feature = "report-003"))]
fn lazy_lm_head(model: &Path) -> Option<Arc<confide_report_003::split_mode::LazyClientHead>> {
    use confide_engine::EngineError;
    let dir = model.to_path_buf();
    Some(Arc::new(confide_report_003::split_mode::LazyClientHead::new(move || {
        let head = head::ModelHead::load(&dir);
        let head = head.map_err(|error| EngineError::Failed { reason: error.to_string() })?;
        Ok(Arc::new(head))
    })))
}

/// Gives no head: this binary has no native engine to compute it.
#[cfg(all(not(feature = "native"), feature = "report-003"))]
fn lazy_lm_head(_model: &Path) -> Option<Arc<confide_report_003::split_mode::LazyClientHead>> {
    None
}

/// The adapter under report 003's scheme, with the key next to it.
#[cfg(feature = "report-003")]
pub(crate) fn ckks_slots_adapter(adapter: &Adapter) -> Result<Arc<dyn DeltaProvider>, String> {
    use confide_report_003::{
        ckks::Parameters,
        ckks_slots::{CkksAdapter, CkksAdapterOptions},
    };
    let parameters =
        Parameters::from_name("ckks-16384-tensafe").map_err(|error| error.to_string())?;
    let encoded = CkksAdapter::new(adapter, CkksAdapterOptions::new(parameters));
    Ok(Arc::new(encoded.map_err(|error| error.to_string())?))
}

/// Refuses the adapter: this binary was built without CKKS.
#[cfg(not(feature = "report-003"))]
pub(crate) fn ckks_slots_adapter(_adapter: &Adapter) -> Result<Arc<dyn DeltaProvider>, String> {
    Err("--adapter-scheme ckks-slots: this binary was built without the feature `report-003`"
        .into())
}
