//! Where `confide serve` finds an adapter: in a folder or at a host, as the command line or a request names it.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use confide_evidence::Attest;
use confide_lora::{
    Adapter, PeftError,
    peft::{BaseFolder, Config},
    plain,
};
use confide_serve::{AdapterSource, OpenedAdapter, Requester, SourceError};
use confide_worker::Worker;

use super::{
    arguments::{AdapterArgs, AdapterModeName, AdapterProcess, AdapterSchemeName},
    base::BaseModelNames,
    in_worker, remote,
};
use crate::{error::CliError, report_003::ckks_slots_adapter};

/// The adapters of the command line and of requests.
pub(super) struct FolderSource {
    args: AdapterArgs,
    /// This end's evidence, where hosts are to see it.
    attester: Option<Arc<dyn Attest>>,
    /// Folder of the base model: DoRA is folded with its weights.
    model: Option<PathBuf>,
    /// Folders below which requests may name adapters, without links and dots.
    allowed: Vec<PathBuf>,
    /// The names of the served model.
    names: BaseModelNames,
    /// The worker that holds the adapters, where this program does not.
    worker: Option<Arc<Worker>>,
}

/// The place that a path names.
#[derive(Debug, PartialEq, Eq)]
enum AdapterLocation<'a> {
    Folder(&'a Path),
    /// A host, and the adapter's name there where it is another.
    Host {
        address: &'a str,
        remote: Option<&'a str>,
    },
}

impl FolderSource {
    pub(super) fn new(
        args: AdapterArgs,
        model: Option<PathBuf>,
        served: &str,
        worker: Option<Arc<Worker>>,
    ) -> Result<Self, CliError> {
        let canonical = |dir: &PathBuf| {
            dir.canonicalize()
                .map_err(|error| CliError::new(format!("--adapter-dir {}: {error}", dir.display())))
        };
        let allowed = args.adapter_dir.iter().map(canonical).collect::<Result<_, _>>()?;
        let attester = args.attester.open_attester(None)?;
        let worker = worker.filter(|_| args.adapter_at == AdapterProcess::Worker);
        let names = BaseModelNames::new(model.as_deref(), served);
        Ok(Self { args, attester, model, allowed, names, worker })
    }

    fn load_folder(&self, name: &str, dir: &Path) -> Result<OpenedAdapter, SourceError> {
        let unusable = |reason: String| {
            let path = dir.display().to_string();
            SourceError::Unusable { path, reason }
        };
        let config = Config::load(dir).map_err(|error| unusable(error.to_string()))?;
        let base = self.names.check_base_model(config.base_model(), self.args.dangerous_other_base);
        let base = base.map_err(unusable)?;
        if let Some(worker) = &self.worker {
            return in_worker::load_folder(&self.args, worker, name, dir, base).map_err(unusable);
        }
        let loaded = match &self.model {
            None => Adapter::load(dir),
            Some(model) => load_adapter_with_base(dir, model),
        };
        let mut adapter = loaded.map_err(|error| unusable(error.to_string()))?;
        if self.args.adapter_mode == AdapterModeName::FinalHidden {
            adapter =
                adapter.into_final_hidden_adapter().map_err(|error| unusable(error.to_string()))?;
        }
        adapter.name = name.into();
        let plain = Arc::new(plain::LocalAdapter::new(Arc::new(adapter)));
        let root = dir.display().to_string();
        match self.args.adapter_scheme.unwrap_or(AdapterSchemeName::LocalParity) {
            AdapterSchemeName::LocalParity => {
                Ok(OpenedAdapter { adapter: plain, root, reference: None, base })
            }
            AdapterSchemeName::CkksSlots => {
                let adapter = ckks_slots_adapter(plain.adapter()).map_err(unusable)?;
                Ok(OpenedAdapter { adapter, root, reference: Some(plain), base })
            }
            AdapterSchemeName::Masked | AdapterSchemeName::Direct => Err(unusable(
                "this scheme needs an adapter host, but the adapter is in a folder: with host and \
                 key holder in one process it would protect nobody"
                    .into(),
            )),
        }
    }

    /// Resolves links and dots in a path of a request, and refuses a folder that is not below one
    /// of the operator's.
    fn resolve_allowed(&self, dir: &Path) -> Result<PathBuf, SourceError> {
        let refused = |reason: &str| {
            let path = dir.display().to_string();
            SourceError::Refused { path, reason: reason.into() }
        };
        if self.allowed.is_empty() {
            return Err(refused("no --adapter-dir is given"));
        }
        // Whether a path outside exists is not told to a request.
        let outside = || refused("it is not below a folder given with --adapter-dir");
        let whole = dir.canonicalize().map_err(|_| outside())?;
        if !self.allowed.iter().any(|folder| whole.starts_with(folder) && whole != *folder) {
            return Err(outside());
        }
        Ok(whole)
    }
}

impl AdapterSource for FolderSource {
    fn open(&self, name: &str, path: &str, asker: Requester) -> Result<OpenedAdapter, SourceError> {
        match (parse_location(path), asker) {
            (AdapterLocation::Folder(dir), Requester::Operator) => self.load_folder(name, dir),
            (AdapterLocation::Folder(dir), Requester::Request) => {
                self.load_folder(name, &self.resolve_allowed(dir)?)
            }
            (AdapterLocation::Host { address, .. }, Requester::Request)
                if !self.args.adapter_host.iter().any(|host| host == address) =>
            {
                let reason = "the host is not one of those given with --adapter-host".into();
                Err(SourceError::Refused { path: path.into(), reason })
            }
            (AdapterLocation::Host { address, remote }, _) => {
                let there = remote.unwrap_or(name);
                let opened = match &self.worker {
                    Some(worker) => {
                        in_worker::open_host_session(&self.args, worker, name, address, there)
                    }
                    None => remote::open_session(&self.args, self.attester.clone(), address, there),
                };
                opened.map_err(|reason| SourceError::Unusable { path: path.into(), reason })
            }
        }
    }
}

/// Reads a place: `HOST:PORT` and `HOST:PORT/NAME` are hosts; an existing folder, or a path without
/// a port, is a folder.
fn parse_location(path: &str) -> AdapterLocation<'_> {
    let (address, remote) = match path.split_once('/') {
        Some((address, remote)) => (address, Some(remote)),
        None => (path, None),
    };
    let has_port = address.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port != 0)
    });
    if !has_port || Path::new(path).is_dir() {
        return AdapterLocation::Folder(Path::new(path));
    }
    AdapterLocation::Host { address, remote: remote.filter(|name| !name.is_empty()) }
}

fn load_adapter_with_base(dir: &Path, model: &Path) -> Result<Adapter, PeftError> {
    match Adapter::load(dir) {
        Err(PeftError::BaseNeeded) => Adapter::load_with_base(dir, &BaseFolder::open(model)?),
        loaded => loaded,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_with_a_port_is_a_host_and_any_other_a_folder() {
        let host = |address, remote| AdapterLocation::Host { address, remote };
        assert_eq!(parse_location("127.0.0.1:7000"), host("127.0.0.1:7000", None));
        assert_eq!(parse_location("[::1]:7000/travel"), host("[::1]:7000", Some("travel")));
        assert_eq!(parse_location("a.example:7/b/c"), host("a.example:7", Some("b/c")));
        for folder in ["adapters/travel", "/a:7/b", "./a:7", "a", "a:b", "a:0", ":7", "a:70000"] {
            assert_eq!(
                parse_location(folder),
                AdapterLocation::Folder(Path::new(folder)),
                "{folder}"
            );
        }
    }
}
