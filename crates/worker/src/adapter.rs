//! Adapters of a worker's model, which this process or the worker applies.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use confide_engine::EngineError;
use confide_lora::{
    AdaptError, DeltaProvider, DeltaSession, Guarantee, ProjectionSite, ProjectionWidth,
};
use serde_json::{Value, json};

use crate::{message, relay::LocalAdapter, sites};

/// The largest number of adapters. Each may hold a connection and batches of masks, and names are
/// looked up for every request.
pub(crate) const ADAPTERS_MAX: usize = 64;

/// An adapter that is loaded in the worker.
pub(crate) struct LoadedAdapter {
    pub(crate) name: String,
    pub(crate) placement: AdapterPlacement,
    /// Whether it serves requests. An adapter in the worker is loaded before its sites are known.
    pub(crate) is_served: bool,
    /// The reason why it could not be loaded again after the worker's restart.
    broken: Mutex<Option<String>>,
}

/// The process that applies an adapter.
#[derive(Clone)]
pub(crate) enum AdapterPlacement {
    /// This process applies the adapter, and the worker requests each delta.
    DeltaThreadHandle(LocalAdapter),
    /// The worker applies the adapter itself.
    Worker { kind: String, spec: Value, guarantee: Guarantee },
}

impl LoadedAdapter {
    pub(crate) fn new(name: &str, placement: AdapterPlacement, is_served: bool) -> Self {
        Self { name: name.into(), placement, is_served, broken: Mutex::default() }
    }

    /// Encodes the frame that loads the adapter.
    pub(crate) fn encode_load_frame(&self) -> Vec<u8> {
        match &self.placement {
            AdapterPlacement::DeltaThreadHandle(relayed) => {
                let spec = json!({
                    "sites": sites::sites_to_json(relayed.adapter.sites()),
                    "guarantee": relayed.adapter.guarantee().to_string(),
                });
                message::encode_load_adapter(&self.name, "relay", &spec)
            }
            AdapterPlacement::Worker { kind, spec, .. } => {
                message::encode_load_adapter(&self.name, kind, spec)
            }
        }
    }

    pub(crate) fn set_broken(&self, reason: Option<String>) {
        *self.broken.lock().unwrap_or_else(PoisonError::into_inner) = reason;
    }

    pub(crate) fn refuse_broken(&self) -> Result<(), EngineError> {
        let broken = self.broken.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(reason) = &*broken else { return Ok(()) };
        let error = AdaptError::HostLost { reason: reason.clone() };
        Err(EngineError::Adapter { name: self.name.clone(), error })
    }
}

/// An adapter in the worker: the projections that it changes, and its guarantee. Only the worker
/// can apply it.
pub(crate) struct WorkerAdapter {
    pub(crate) sites: BTreeMap<ProjectionSite, ProjectionWidth>,
    pub(crate) guarantee: Guarantee,
}

impl DeltaProvider for WorkerAdapter {
    fn sites(&self) -> &BTreeMap<ProjectionSite, ProjectionWidth> {
        &self.sites
    }

    fn guarantee(&self) -> Guarantee {
        self.guarantee.clone()
    }

    fn open_session(&self) -> Result<Box<dyn DeltaSession>, AdaptError> {
        Err(AdaptError::Refused { reason: "the adapter is in the worker".into() })
    }
}

/// Reads the worker's answer to a load. `Err` is the worker's error, or states what the answer
/// lacks.
pub(crate) fn parse_load_answer(
    answer: message::AdapterAnswer,
) -> Result<Arc<WorkerAdapter>, String> {
    if let Some(error) = answer.error {
        return Err(error);
    }
    let sites = answer.sites.ok_or("the answer lacks the projections that it changes")?;
    let text = answer.guarantee.ok_or("the answer lacks its guarantee")?;
    let guarantee = crate::report::parse_guarantee(&text)
        .ok_or_else(|| format!("its guarantee is unknown: {:?}", message::to_printable(&text)))?;
    Ok(Arc::new(WorkerAdapter { sites, guarantee }))
}
