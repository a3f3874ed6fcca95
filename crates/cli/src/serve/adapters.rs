//! The adapters of `confide serve`: at adapter hosts, or in folders.

pub(crate) mod arguments;
mod base;
mod in_worker;
mod remote;
mod source;

use std::{path::PathBuf, sync::Arc};

use confide_engine::{AdapterLossPolicy, Engine};
use confide_serve::{AdapterRegistry, BaseModelMatch, Requester};
use confide_worker::Worker;
use serde_json::{Value, json};

use crate::error::CliError;
use arguments::{AdapterArgs, LossPolicyName};
pub(crate) use in_worker::check_worker_options;
use source::FolderSource;

/// Loads the adapters of the command line into `engine`. Blocks; must not run inside an event loop.
pub(crate) fn load_adapters(
    args: AdapterArgs,
    model: Option<PathBuf>,
    engine: &Arc<dyn Engine>,
    worker: Option<Arc<Worker>>,
) -> Result<Arc<AdapterRegistry>, CliError> {
    let on_loss = match args.adapter_on_loss {
        LossPolicyName::Fail => AdapterLossPolicy::Fail,
        LossPolicyName::Base => AdapterLossPolicy::Base,
    };
    let (runtime, wanted) = (args.enable_runtime_adapters, args.adapters.clone());
    let served = engine.models().into_iter().next().map(|model| model.name).unwrap_or_default();
    let source = Arc::new(FolderSource::new(args, model, &served, worker)?);
    let adapters = AdapterRegistry::new(Arc::clone(engine), source, on_loss, runtime);
    for adapter in &wanted {
        let (name, path) = adapter.split_once('=').ok_or_else(|| {
            CliError::new(format!("--adapter {adapter}: wanted NAME=HOST:PORT or NAME=DIR"))
        })?;
        let loaded = adapters.load(name, path, Requester::Operator).map_err(|error| {
            let error = CliError::new(format!("--adapter {adapter}: {error}"));
            let is_other_base = error.message().contains(base::SUBJECT);
            error.with_hint(if is_other_base { base::HINT } else { ADAPTER_HINT })
        })?;
        if loaded.base != BaseModelMatch::Confirmed {
            tracing::warn!(adapter = name, "base model: {}", loaded.base.name());
        }
    }
    Ok(Arc::new(adapters))
}

/// The hint where an adapter cannot be loaded.
const ADAPTER_HINT: &str = "`confide adapter host DIR --listen ADDR:PORT` hosts one, \
    `confide adapter inspect DIR` shows what a folder contains";

/// The adapters as the ready line lists them.
pub(crate) fn adapters_json(adapters: &AdapterRegistry) -> Value {
    let objects = adapters.list().into_iter().map(|adapter| {
        json!({
            "name": adapter.name,
            "root": adapter.root,
            "guarantee": adapter.guarantee().to_string(),
            "base_model": adapter.base.name(),
        })
    });
    objects.collect()
}
