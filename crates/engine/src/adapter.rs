//! An engine's report about an adapter, and its behaviour after the adapter is lost.

use confide_lora::{
    AdaptError, DeltaProvider, DeltaReport, Guarantee, ProjectionSite, ProjectionWidth,
};

use crate::error::EngineError;

/// The behaviour of a generation whose adapter is lost, so that it computes no further delta.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AdapterLossPolicy {
    /// The generation ends with [`EngineError::Adapter`](crate::EngineError::Adapter).
    #[default]
    Fail,
    /// The base model continues alone, after
    /// [`GenerationEvent::AdapterLost`](crate::GenerationEvent::AdapterLost). Keys and values that
    /// were computed with the adapter stay in the cache, so the text differs from that of the base
    /// model.
    Base,
}

/// The report of an adapter about one generation: its cost, and the guarantee that held.
#[derive(Clone, Debug, PartialEq)]
pub struct AdapterReport {
    /// The numbers of operations and bytes, and the times.
    pub report: DeltaReport,
    /// The guarantee that held: which party was protected against which other.
    pub guarantee: Guarantee,
    /// Why the last tokens are the base model's; `None` if the adapter was not lost.
    pub lost: Option<AdaptError>,
}

/// Checks that a model has every projection that an adapter changes, with the same widths. `width`
/// returns the widths of the model.
///
/// # Errors
/// [`EngineError::AdapterSite`] for the first projection that differs.
pub fn check_adapter_sites(
    name: &str,
    adapter: &dyn DeltaProvider,
    width: impl Fn(ProjectionSite) -> Option<ProjectionWidth>,
) -> Result<(), EngineError> {
    let words = |width: ProjectionWidth| format!("{} to {}", width.input, width.output);
    for (site, got) in adapter.sites() {
        let wanted = match width(*site) {
            Some(wanted) if wanted == *got => continue,
            wanted => wanted.map_or_else(|| "no such projection".into(), words),
        };
        let (name, site, got) = (name.into(), *site, words(*got));
        return Err(EngineError::AdapterSite { name, site, wanted, got });
    }
    Ok(())
}
