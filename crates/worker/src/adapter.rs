//! Adapters of a worker's model: applied at this end, or in the worker.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use confide_engine::EngineError;
use confide_lora::{Adapt, AdaptError, Deltas, Guarantee, Site, Width};
use serde_json::{Value, json};

use crate::{message, relay::RelayedAdapter, sites};

/// Largest number of adapters: each may hold a connection and batches of masks, and names are
/// looked up for every request.
pub(crate) const ADAPTERS_MAX: usize = 64;

/// An adapter that is loaded in the worker.
pub(crate) struct LoadedAdapter {
    pub(crate) name: String,
    pub(crate) placement: Placement,
    /// Whether it serves requests: one in the worker is loaded before its sites are known.
    pub(crate) is_model: bool,
    /// Why it cannot be used since the worker was started again.
    broken: Mutex<Option<String>>,
}

/// The place where an adapter is applied.
#[derive(Clone)]
pub(crate) enum Placement {
    /// The adapter is applied in this process: the worker asks for each delta.
    Relay(RelayedAdapter),
    /// The worker applies the adapter itself.
    Worker { kind: String, spec: Value, guarantee: Guarantee },
}

impl LoadedAdapter {
    pub(crate) fn new(name: &str, placement: Placement, is_model: bool) -> Self {
        Self { name: name.into(), placement, is_model, broken: Mutex::default() }
    }

    /// The frame that loads the adapter.
    pub(crate) fn frame(&self) -> Vec<u8> {
        match &self.placement {
            Placement::Relay(relayed) => {
                let spec = json!({
                    "sites": sites::to_json(relayed.adapter.sites()),
                    "guarantee": relayed.adapter.guarantee().to_string(),
                });
                message::load_adapter(&self.name, "relay", &spec)
            }
            Placement::Worker { kind, spec, .. } => message::load_adapter(&self.name, kind, spec),
        }
    }

    pub(crate) fn set_broken(&self, reason: Option<String>) {
        *self.broken.lock().unwrap_or_else(PoisonError::into_inner) = reason;
    }

    pub(crate) fn check(&self) -> Result<(), EngineError> {
        let broken = self.broken.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(reason) = &*broken else { return Ok(()) };
        let error = AdaptError::HostLost { reason: reason.clone() };
        Err(EngineError::Adapter { name: self.name.clone(), error })
    }
}

/// An adapter in the worker, seen from outside: the projections that it changes and its guarantee.
/// Only the worker can apply it.
pub(crate) struct WorkerAdapter {
    pub(crate) sites: BTreeMap<Site, Width>,
    pub(crate) guarantee: Guarantee,
}

impl Adapt for WorkerAdapter {
    fn sites(&self) -> &BTreeMap<Site, Width> {
        &self.sites
    }

    fn guarantee(&self) -> Guarantee {
        self.guarantee.clone()
    }

    fn open(&self) -> Result<Box<dyn Deltas>, AdaptError> {
        Err(AdaptError::Refused { reason: "the adapter is in the worker".into() })
    }
}

/// Reads the worker's answer to a load; `Err` is the worker's error, or what is missing in the
/// answer.
pub(crate) fn read_worker_adapter(
    answer: message::AdapterAnswer,
) -> Result<Arc<WorkerAdapter>, String> {
    if let Some(error) = answer.error {
        return Err(error);
    }
    let sites = answer.sites.ok_or("it does not say which projections it changes")?;
    let text = answer.guarantee.ok_or("it does not say who is protected")?;
    let guarantee = crate::report::parse_guarantee(&text)
        .ok_or_else(|| format!("its guarantee is {:?}: no such one", message::printable(&text)))?;
    Ok(Arc::new(WorkerAdapter { sites, guarantee }))
}
