//! What links the compatibility layer for report 003 (`crates/report-003`): the feature `report-003`.
//! Without it, what needs the layer says so.

use std::sync::Arc;

use confide_lora::{Adapt, Adapter};

/// The adapter under report 003's scheme, with the key next to it.
#[cfg(feature = "report-003")]
pub(crate) fn ckks_slots_adapter(adapter: &Adapter) -> Result<Arc<dyn Adapt>, String> {
    use confide_report_003::{
        ckks::Parameters,
        ckks_slots::{CkksSlots, Options},
    };
    let parameters = Parameters::named("ckks-16384-tensafe").map_err(|error| error.to_string())?;
    let encoded = CkksSlots::new(adapter, Options::of(parameters));
    Ok(Arc::new(encoded.map_err(|error| error.to_string())?))
}

/// Refuses: this binary has no CKKS.
#[cfg(not(feature = "report-003"))]
pub(crate) fn ckks_slots_adapter(_adapter: &Adapter) -> Result<Arc<dyn Adapt>, String> {
    Err("--adapter-scheme ckks-slots: this binary was built without the feature `report-003`"
        .into())
}
