//! Where `confide serve` finds adapters: at adapter hosts, or in folders.

mod base;
mod in_worker;
mod remote;
mod source;

use std::{path::PathBuf, sync::Arc};

use clap::ValueEnum;
use confide_engine::{Engine, OnLoss};
use confide_serve::{Adapters, AskedBy, BaseCheck};
use confide_worker::Worker;
use serde_json::{Value, json};

use crate::{attest::chosen::AttesterArgs, error::CliError, gateway::BindingName};

use source::Source;

/// Which adapters are served, and how they are reached.
#[derive(clap::Args)]
#[command(next_help_heading = "Adapters")]
pub(crate) struct AdapterArgs {
    /// A private adapter as a model of its own, at an adapter host (`NAME=HOST:PORT`, or
    /// `NAME=HOST:PORT/ITS-NAME-THERE`) or in a folder of this machine (`NAME=DIR`, which protects
    /// nobody); may be given several times
    #[arg(long = "adapter", value_name = "NAME=HOST:PORT|DIR")]
    adapters: Vec<String>,
    /// Who reaches and applies the adapters: `serve` itself, for any engine, or the `worker`, which
    /// then needs no word of this program for a token
    #[arg(long, value_enum, default_value_t = AtName::Serve)]
    adapter_at: AtName,
    /// How the worker holds the adapter of a folder; a host is reached by the blind protocol
    #[arg(long, value_enum, value_name = "KIND")]
    adapter_kind: Option<KindName>,
    /// How deltas are computed; `masked` for hosts and `local-parity` for folders where none is
    /// given
    #[arg(long, value_enum, value_name = "SCHEME")]
    adapter_scheme: Option<SchemeName>,
    /// `full` is the adapter as trained; `final-hidden` applies its first pair once, to the last
    /// hidden state, as report 003 does: no LoRA, here to be compared with
    #[arg(long, value_enum, default_value_t = ModeName::Full)]
    adapter_mode: ModeName,
    /// Refuse a host that protects otherwise: `a` hands B over, `ba` hands nothing over
    #[arg(long, value_enum)]
    adapter_protect: Option<ProtectName>,
    /// Demand the hosts' evidence, as this policy has it; without it only hosts on loopback are
    /// asked, over plain TCP
    #[arg(long, value_name = "FILE")]
    adapter_policy: Option<PathBuf>,
    /// How evidence is tied to the connection to a host
    #[arg(long, value_enum)]
    adapter_binding: Option<BindingName>,
    /// The certificate of a host without evidence that demands this end's
    #[arg(long, value_name = "FILE")]
    adapter_certificate: Option<PathBuf>,
    /// What this end is known by at hosts that keep a list of clients
    #[arg(long, value_name = "FILE")]
    adapter_credential: Option<PathBuf>,
    /// The parameter set that the hosts use
    #[arg(long, value_name = "NAME")]
    adapter_parameters: Option<String>,
    /// Talk plain TCP to hosts beyond loopback: who answers there is then not known
    #[arg(long)]
    dangerous_adapter_plain: bool,
    /// Take adapters whose configuration names another base model than the served one: their answers
    /// mean nothing unless it is the same model under another name
    #[arg(long)]
    dangerous_other_base: bool,
    /// What becomes of an answer whose adapter is lost: `fail` ends it with an error, `base` goes
    /// on with the base model and labels it
    #[arg(long, value_enum, default_value_t = OnLossName::Fail)]
    adapter_on_loss: OnLossName,
    /// Let requests load and unload adapters (`/v1/load_lora_adapter`), below --adapter-dir and from
    /// --adapter-host only
    #[arg(long)]
    enable_runtime_adapters: bool,
    /// A folder below which requests may name adapters; may be given several times
    #[arg(long, value_name = "DIR", requires = "enable_runtime_adapters")]
    adapter_dir: Vec<PathBuf>,
    /// A host whose adapters requests may name; may be given several times
    #[arg(long, value_name = "HOST:PORT", requires = "enable_runtime_adapters")]
    adapter_host: Vec<String>,
    /// This end's own evidence, for hosts that demand it.
    #[command(flatten)]
    attester: AttesterArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SchemeName {
    /// Masks prepared beforehand, one integer product for each token
    Masked,
    /// Each vector encrypted when it comes
    Direct,
    /// Report 003's layout under CKKS, all in this process: protects nobody
    CkksSlots,
    /// Plain LoRA in this process: protects nobody
    LocalParity,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AtName {
    Serve,
    Worker,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum KindName {
    /// In the clear: protects nobody
    Plain,
    /// Masked, both roles in the worker's own graph: protects nobody
    OneGraph,
    /// Masked, the adapter host a process of its own on the same device
    Ipc,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ModeName {
    Full,
    FinalHidden,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProtectName {
    A,
    Ba,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OnLossName {
    Fail,
    Base,
}

impl AdapterArgs {
    /// Refuses what cannot be, before an engine is started.
    pub(crate) fn check(&self, has_worker: bool) -> Result<(), CliError> {
        in_worker::check(self, has_worker)
    }
}

/// Loads the adapters of the command line into `engine`. Blocks; must not run inside an event loop.
pub(crate) fn load(
    args: AdapterArgs,
    model: Option<PathBuf>,
    engine: &Arc<dyn Engine>,
    worker: Option<Arc<Worker>>,
) -> Result<Arc<Adapters>, CliError> {
    let on_loss = match args.adapter_on_loss {
        OnLossName::Fail => OnLoss::Fail,
        OnLossName::Base => OnLoss::Base,
    };
    let (runtime, wanted) = (args.enable_runtime_adapters, args.adapters.clone());
    let served = engine.models().into_iter().next().map(|model| model.name).unwrap_or_default();
    let source = Arc::new(Source::new(args, model, &served, worker)?);
    let adapters = Adapters::new(Arc::clone(engine), source, on_loss, runtime);
    for adapter in &wanted {
        let (name, path) = adapter.split_once('=').ok_or_else(|| {
            CliError::new(format!("--adapter {adapter}: wanted NAME=HOST:PORT or NAME=DIR"))
        })?;
        let loaded = adapters.load(name, path, AskedBy::Operator).map_err(|error| {
            let error = CliError::new(format!("--adapter {adapter}: {error}"));
            match error.message().contains(base::SUBJECT) {
                true => error.hint(base::HINT),
                false => error.hint(
                    "`confide adapter host DIR --listen ADDR:PORT` hosts one, \
                     `confide adapter inspect DIR` says what a folder holds",
                ),
            }
        })?;
        if loaded.base != BaseCheck::Confirmed {
            tracing::warn!(adapter = name, "base model: {}", loaded.base.name());
        }
    }
    Ok(Arc::new(adapters))
}

/// What the ready line says of each.
pub(crate) fn shown(adapters: &Adapters) -> Value {
    let shown = adapters.all().into_iter().map(|adapter| {
        json!({
            "name": adapter.name,
            "root": adapter.root,
            "guarantee": adapter.guarantee().to_string(),
            "base_model": adapter.base.name(),
        })
    });
    shown.collect()
}
