//! What an engine reports of an adapter, and what it does once the adapter is lost.

use confide_lora::{Adapt, AdaptError, Guarantee, Report, Site, Width};

use crate::error::EngineError;

/// What happens to a generation whose adapter gives no further delta.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnLoss {
    /// The generation ends with [`EngineError::Adapter`](crate::EngineError::Adapter).
    #[default]
    Fail,
    /// The base model goes on alone, after [`Event::AdapterLost`](crate::Event::AdapterLost) and
    /// before its first token. Keys and values that were computed with the adapter stay, so what
    /// follows is neither the adapter's text nor quite the base model's.
    Base,
}

/// The report of an adapter about one generation: its cost, and the guarantee that held.
#[derive(Clone, Debug, PartialEq)]
pub struct AdapterReport {
    /// Numbers of operations and bytes, and times.
    pub report: Report,
    /// The guarantee: who was protected from whom.
    pub guarantee: Guarantee,
    /// Why the last tokens are the base model's; `None` if none are.
    pub lost: Option<AdaptError>,
}

/// Checks that a model has every projection that an adapter changes, with the same widths. `width`
/// gives the widths of the model.
///
/// # Errors
/// [`EngineError::AdapterSite`] for the first projection that differs.
pub fn check_sites(
    name: &str,
    adapter: &dyn Adapt,
    width: impl Fn(Site) -> Option<Width>,
) -> Result<(), EngineError> {
    let words = |width: Width| format!("{} to {}", width.input, width.output);
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
