//! Adapters that the worker itself holds: `--adapter-at worker`.

use std::path::Path;

use confide_engine::EngineError;
use confide_serve::{BaseCheck, OpenedAdapter};
use confide_worker::Worker;
use serde_json::{Map, Value, json};

use super::arguments::{AdapterArgs, AdapterPlace, KindName, ModeName, OnLossName, SchemeName};
use crate::{
    adapter::{dial, parameters::ProtectName},
    error::CliError,
    files::read_credential,
};

/// Refuses combinations that do not work, before an engine is started.
pub(crate) fn check(args: &AdapterArgs, has_worker: bool) -> Result<(), CliError> {
    if args.adapter_at == AdapterPlace::Serve {
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
        ("--adapter-mode final-hidden", args.adapter_mode == ModeName::FinalHidden),
        ("--adapter-on-loss base", args.adapter_on_loss == OnLossName::Base),
        (
            "--adapter-scheme other than masked",
            args.adapter_scheme.is_some_and(|scheme| scheme != SchemeName::Masked),
        ),
    ];
    match refused.into_iter().find(|(_, is_given)| *is_given) {
        None => Ok(()),
        Some((flag, _)) => Err(CliError::new(format!("{flag} is not supported by the worker"))
            .hint("remove --adapter-at worker: this program then reaches the adapters itself")),
    }
}

/// Has the worker load the adapter of a folder.
pub(super) fn load_folder(
    args: &AdapterArgs,
    worker: &Worker,
    name: &str,
    dir: &Path,
    base: BaseCheck,
) -> Result<OpenedAdapter, String> {
    // The worker may run in another folder than this program.
    let dir = dir.canonicalize().map_err(|error| error.to_string())?;
    let path = dir.to_str().ok_or("its path is not UTF-8")?;
    let mut spec = Map::from_iter([("path".into(), json!(path))]);
    let kind = match args.adapter_kind.unwrap_or(KindName::Plain) {
        KindName::Plain => "plain",
        KindName::OneGraph => "one-graph",
        KindName::Ipc => "ipc",
    };
    if kind != "plain" {
        add_terms(args, &mut spec);
    }
    open(worker, name, kind, spec, path, base)
}

/// Has the worker open a session with an adapter host.
pub(super) fn open_host(
    args: &AdapterArgs,
    worker: &Worker,
    name: &str,
    address: &str,
    there: &str,
) -> Result<OpenedAdapter, String> {
    if args.adapter_kind.is_some() {
        return Err("it is at a host: wanted a folder for --adapter-kind".into());
    }
    if !dial::is_loopback(address) && !args.dangerous_adapter_plain {
        return Err("it is not loopback, and the worker demands no evidence: nothing would \
                    authenticate it"
            .into());
    }
    let mut spec =
        Map::from_iter([("address".into(), json!(address)), ("name".into(), json!(there))]);
    add_terms(args, &mut spec);
    if let Some(path) = &args.adapter_credential {
        let credential = read_credential(path).map_err(|error| error.message().to_owned())?;
        spec.insert("credential_hex".into(), json!(hex::encode(credential)));
    }
    let root = format!("{address}/{there}");
    open(worker, name, "blind", spec, &root, BaseCheck::NotEvaluated)
}

fn add_terms(args: &AdapterArgs, spec: &mut Map<String, Value>) {
    if let Some(parameters) = &args.adapter_parameters {
        spec.insert("parameters".into(), json!(parameters));
    }
    if let Some(protect) = args.adapter_protect {
        let word = match protect {
            ProtectName::A => "a",
            ProtectName::Ba => "ba",
        };
        spec.insert("protect".into(), json!(word));
    }
}

fn open(
    worker: &Worker,
    name: &str,
    kind: &str,
    spec: Map<String, Value>,
    root: &str,
    base: BaseCheck,
) -> Result<OpenedAdapter, String> {
    let adapter = worker.load_in_worker(name, kind, Value::Object(spec));
    let adapter = adapter.map_err(|error| match error {
        // No generation has failed: the reason is the worker's own text.
        EngineError::Failed { reason } => reason,
        other => other.to_string(),
    })?;
    Ok(OpenedAdapter { adapter, root: root.into(), reference: None, base })
}
