use confide_lora::{AdaptError, Guarantee, Report};

/// What becomes of a generation whose adapter gives no further delta.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnLoss {
    /// It ends with [`EngineError::Adapter`](crate::EngineError::Adapter).
    #[default]
    Fail,
    /// The base model goes on alone, after [`Event::AdapterLost`](crate::Event::AdapterLost) and
    /// before its first token. Keys and values that were computed with the adapter stay, so what
    /// follows is neither the adapter's text nor quite the base model's.
    Base,
}

/// What an adapter took in one generation, and what protected whom.
#[derive(Clone, Debug, PartialEq)]
pub struct AdapterReport {
    /// Operations, bytes and times.
    pub report: Report,
    /// Who was protected from whom.
    pub guarantee: Guarantee,
    /// Why the last tokens are the base model's, where they are.
    pub lost: Option<AdaptError>,
}
