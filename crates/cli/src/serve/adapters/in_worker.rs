//! Adapters that the worker itself holds: `--adapter-at worker`.

use std::path::Path;

use confide_engine::EngineError;
use confide_serve::{BaseModelMatch, OpenedAdapter};
use confide_worker::Worker;
use serde_json::{Map, Value, json};

use super::arguments::{
    AdapterArgs, AdapterModeName, AdapterProcess, AdapterSchemeName, LossPolicyName,
    WorkerAdapterKind,
};
use crate::{
    adapter::{dial, parameters::ProtectedMatricesName},
    error::CliError,
    files::read_credential,
};

/// Refuses combinations that do not work, before an engine is started.
pub(crate) fn check_worker_options(args: &AdapterArgs, has_worker: bool) -> Result<(), CliError> {
    if args.adapter_at == AdapterProcess::Serve {
        return match args.adapter_kind {
            Some(_) => Err(CliError::new("--adapter-kind is for --adapter-at worker only")),
            None => Ok(()),
        };
    }
    if !has_worker {
        return Err(CliError::new("--adapter-at worker is for --engine worker only"));
    }
    let refused = [
        ("--adapter-policy", args.adapter_policy.is_some()),
        ("--adapter-binding", args.adapter_binding.is_some()),
        ("--adapter-certificate", args.adapter_certificate.is_some()),
        ("--adapter-mode final-hidden", args.adapter_mode == AdapterModeName::FinalHidden),
        ("--adapter-on-loss base", args.adapter_on_loss == LossPolicyName::Base),
        (
            "--adapter-scheme other than masked",
            args.adapter_scheme.is_some_and(|scheme| scheme != AdapterSchemeName::Masked),
        ),
    ];
    match refused.into_iter().find(|(_, is_given)| *is_given) {
        None => Ok(()),
        Some((flag, _)) => Err(CliError::new(format!("{flag} is not supported by the worker"))
            .with_hint(
                "remove --adapter-at worker: this program then reaches the adapters itself",
            )),
    }
}

/// Has the worker load the adapter of a folder.
pub(super) fn load_folder(
    args: &AdapterArgs,
    worker: &Worker,
    name: &str,
    dir: &Path,
    base: BaseModelMatch,
) -> Result<OpenedAdapter, String> {
    // The worker may run in another folder than this program.
    let dir = dir.canonicalize().map_err(|error| error.to_string())?;
    let path = dir.to_str().ok_or("its path is not UTF-8")?;
    let mut spec = Map::from_iter([("path".into(), json!(path))]);
    let kind = match args.adapter_kind.unwrap_or(WorkerAdapterKind::Plain) {
        WorkerAdapterKind::Plain => "plain",
        WorkerAdapterKind::OneGraph => "one-graph",
        WorkerAdapterKind::Ipc => "ipc",
    };
    if kind != "plain" {
        add_scheme_options(args, &mut spec);
    }
    load_in_worker(worker, name, kind, spec, path, base)
}

/// Has the worker open a session with an adapter host.
pub(super) fn open_host_session(
    args: &AdapterArgs,
    worker: &Worker,
    name: &str,
    address: &str,
    there: &str,
) -> Result<OpenedAdapter, String> {
    if args.adapter_kind.is_some() {
        return Err("--adapter-kind is for an adapter in a folder: this one is at a host".into());
    }
    if !dial::is_loopback(address) && !args.dangerous_adapter_plain {
        return Err(
            "the host is not on loopback, and the worker demands no evidence: nothing would \
                    authenticate the host"
                .into(),
        );
    }
    let mut spec =
        Map::from_iter([("address".into(), json!(address)), ("name".into(), json!(there))]);
    add_scheme_options(args, &mut spec);
    if let Some(path) = &args.adapter_credential {
        let credential = read_credential(path).map_err(|error| error.message().to_owned())?;
        spec.insert("credential_hex".into(), json!(hex::encode(credential)));
    }
    let root = format!("{address}/{there}");
    load_in_worker(worker, name, "blind", spec, &root, BaseModelMatch::NotEvaluated)
}

fn add_scheme_options(args: &AdapterArgs, spec: &mut Map<String, Value>) {
    if let Some(parameters) = &args.adapter_parameters {
        spec.insert("parameters".into(), json!(parameters));
    }
    if let Some(protect) = args.adapter_protect {
        let word = match protect {
            ProtectedMatricesName::A => "a",
            ProtectedMatricesName::Ba => "ba",
        };
        spec.insert("protect".into(), json!(word));
    }
}

fn load_in_worker(
    worker: &Worker,
    name: &str,
    kind: &str,
    spec: Map<String, Value>,
    root: &str,
    base: BaseModelMatch,
) -> Result<OpenedAdapter, String> {
    let adapter = worker.load_in_worker(name, kind, Value::Object(spec));
    let adapter = adapter.map_err(|error| match error {
        // No generation has failed: the reason is the worker's own text.
        EngineError::Failed { reason } => reason,
        other => other.to_string(),
    })?;
    Ok(OpenedAdapter { adapter, root: root.into(), reference: None, base })
}
