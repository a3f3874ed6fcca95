//! A source of endorsements as every command starts it.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use confide_collateral::{
    BaseUrl, Check, Platform, Services, Source, SourceOptions, Store, StoreLimits,
};
use confide_evidence::ParseError;
use confide_verifier::{AwsLc, Endorsements, Roots, UnixTime, snp};

use crate::{error::CliError, process};

/// Arguments.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct ServiceArgs {
    /// Fetch endorsements from this PCCS, which also speaks for AMD and NVIDIA; `vendors` asks the
    /// vendors themselves
    #[arg(long, value_name = "URL")]
    pub(crate) collateral_service: Option<String>,
    /// Keep fetched endorsements in this folder
    #[arg(long, value_name = "DIR", requires = "collateral_service")]
    pub(crate) collateral_store: Option<PathBuf>,
}

impl ServiceArgs {
    /// The source that the arguments name, if they name one.
    pub(crate) fn start(&self, roots: &Roots) -> Result<Option<Arc<Source>>, CliError> {
        let Some(url) = &self.collateral_service else { return Ok(None) };
        let services = services(url, false)?;
        let options = options(services, self.collateral_store.as_deref(), Some(roots))?;
        Source::start(options).map(Arc::new).map(Some).map_err(CliError::new)
    }
}

/// `vendors`, or one address for all of them.
pub(crate) fn services(url: &str, dangerous_plain_http: bool) -> Result<Services, CliError> {
    if url == "vendors" {
        return Services::vendors().map_err(CliError::new);
    }
    let base = BaseUrl::parse(url, dangerous_plain_http).map_err(|error| {
        CliError::new(error)
            .hint("for instance https://pccs.example:8081, or http://127.0.0.1:8081")
    })?;
    Ok(Services::from_base(&base))
}

/// With `roots`, only sets are kept whose signatures hold under one of them.
pub(crate) fn options(
    services: Services,
    store: Option<&Path>,
    roots: Option<&Roots>,
) -> Result<SourceOptions, CliError> {
    let mut options = SourceOptions::new(services, Arc::new(process::unix_now));
    options.store = store.map(open).transpose()?;
    options.check = roots.cloned().map(check);
    Ok(options)
}

pub(crate) fn open(folder: &Path) -> Result<Store, CliError> {
    Store::open(folder, StoreLimits::default()).map_err(CliError::new)
}

/// Verifies what `confide verify` would verify without evidence.
fn check(roots: Roots) -> Check {
    Arc::new(move |platform, json, now| {
        let now = UnixTime::since_unix_epoch(Duration::from_secs(now));
        let unreadable = |error: ParseError| error.to_string();
        let verified = match platform {
            Platform::Dcap { .. } => {
                let endorsements = Endorsements::parse(json).map_err(unreadable)?;
                endorsements.prepare(&roots, now, &AwsLc).map(drop)
            }
            Platform::Snp(_) => {
                let endorsements = snp::Endorsements::parse(json).map_err(unreadable)?;
                endorsements.prepare(&roots, now, &AwsLc).map(drop)
            }
        };
        verified.map_err(|rejection| rejection.reason().to_string())
    })
}
