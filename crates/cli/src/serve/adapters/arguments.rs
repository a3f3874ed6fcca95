//! The arguments of `confide serve` about adapters.

use std::path::PathBuf;

use clap::ValueEnum;

use crate::{
    adapter::parameters::ProtectedMatricesName, attest::arguments::AttesterArgs,
    binding::BindingName,
};

/// The adapters that are served, and how they are reached.
#[derive(clap::Args)]
#[command(next_help_heading = "Adapters")]
pub(crate) struct AdapterArgs {
    /// Serve a private adapter as a model of its own. It is at an adapter host (`NAME=HOST:PORT`, or
    /// `NAME=HOST:PORT/NAME-ON-THE-HOST`) or in a folder of this machine (`NAME=DIR`, which protects
    /// nobody). May be given several times
    #[arg(long = "adapter", value_name = "NAME=HOST:PORT|DIR")]
    pub(super) adapters: Vec<String>,
    /// Which process reaches and applies the adapters: `serve` itself, for any engine, or the `worker`,
    /// which then needs no exchange with this program for each token
    #[arg(long, value_enum, default_value_t = AdapterProcess::Serve)]
    pub(super) adapter_at: AdapterProcess,
    /// How the worker holds the adapter of a folder; hosts are reached by the blind protocol
    #[arg(long, value_enum, value_name = "KIND")]
    pub(super) adapter_kind: Option<WorkerAdapterKind>,
    /// How deltas are computed; by default `masked` for hosts and `local-parity` for folders
    #[arg(long, value_enum, value_name = "SCHEME")]
    pub(super) adapter_scheme: Option<AdapterSchemeName>,
    /// `full` is the adapter as trained; `final-hidden` applies only its first pair, once, to the last
    /// hidden state, as report 003 does. That is not LoRA; it serves for comparison
    #[arg(long, value_enum, default_value_t = AdapterModeName::Full)]
    pub(super) adapter_mode: AdapterModeName,
    /// Refuse hosts that protect differently: `a` hands B over, `ba` hands nothing over
    #[arg(long, value_enum)]
    pub(super) adapter_protect: Option<ProtectedMatricesName>,
    /// Demand the hosts' evidence under this policy; by default only hosts on loopback are used, over
    /// plain TCP
    #[arg(long, value_name = "FILE")]
    pub(super) adapter_policy: Option<PathBuf>,
    /// How evidence is bound to the connection to a host
    #[arg(long, value_enum)]
    pub(super) adapter_binding: Option<BindingName>,
    /// The certificate (DER) of a host that shows no evidence and demands that of this end
    #[arg(long, value_name = "FILE")]
    pub(super) adapter_certificate: Option<PathBuf>,
    /// File with this end's credential, for hosts that list their clients
    #[arg(long, value_name = "FILE")]
    pub(super) adapter_credential: Option<PathBuf>,
    /// Parameter set of the hosts
    #[arg(long, value_name = "NAME")]
    pub(super) adapter_parameters: Option<String>,
    /// Allow plain TCP to hosts beyond loopback: nothing then authenticates them
    #[arg(long)]
    pub(super) dangerous_adapter_plain: bool,
    /// Load adapters whose configuration names a base model other than the served one: their answers are
    /// meaningless unless it is the same model under another name
    #[arg(long)]
    pub(super) dangerous_other_base: bool,
    /// What happens to an answer whose adapter is lost: `fail` ends it with an error, `base` continues with
    /// the base model and labels it
    #[arg(long, value_enum, default_value_t = LossPolicyName::Fail)]
    pub(super) adapter_on_loss: LossPolicyName,
    /// Let requests load and unload adapters (`/v1/load_lora_adapter`), from --adapter-dir and
    /// --adapter-host only
    #[arg(long)]
    pub(super) enable_runtime_adapters: bool,
    /// A folder below which requests may name adapters; may be given several times
    #[arg(long, value_name = "DIR", requires = "enable_runtime_adapters")]
    pub(super) adapter_dir: Vec<PathBuf>,
    /// A host whose adapters requests may name; may be given several times
    #[arg(long, value_name = "HOST:PORT", requires = "enable_runtime_adapters")]
    pub(super) adapter_host: Vec<String>,
    /// This end's own evidence, for hosts that demand it.
    #[command(flatten)]
    pub(super) attester: AttesterArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum AdapterSchemeName {
    /// Masks are prepared in advance, with one integer product for each token
    Masked,
    /// Each vector is encrypted when it arrives
    Direct,
    /// Report 003's layout under CKKS, all in this process: protects nobody
    CkksSlots,
    /// Plain LoRA in this process: protects nobody
    LocalParity,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum AdapterProcess {
    Serve,
    Worker,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum WorkerAdapterKind {
    /// In the clear: protects nobody
    Plain,
    /// Masked, both roles in the worker's own graph: protects nobody
    OneGraph,
    /// Masked, with the adapter host in a process of its own on the same device
    Ipc,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum AdapterModeName {
    Full,
    FinalHidden,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum LossPolicyName {
    Fail,
    Base,
}
