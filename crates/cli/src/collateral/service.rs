//! A source of endorsements, and the arguments that name it.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use confide_client::PolicyAppraiser;
use confide_collateral::{
    BaseUrl, Platform, Services, SetCheck, Source, SourceOptions, Store, StoreLimits,
};
use confide_evidence::{ParseError, collateral::COLLATERAL_LENGTH_MAX};
use confide_verifier::{AwsLc, Endorsements, Policy, Roots, UnixTime, snp};

use crate::{error::CliError, files::read_optional_file, process};

/// The arguments that name a source of endorsements.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct EndorsementSourceArgs {
    /// Fetch the endorsements of all vendors from this PCCS; `vendors` fetches them from the vendors
    /// themselves
    #[arg(long, value_name = "URL")]
    pub(crate) collateral_service: Option<String>,
    /// Store fetched endorsements in this folder
    #[arg(long, value_name = "DIR", requires = "collateral_service")]
    pub(crate) collateral_store: Option<PathBuf>,
}

impl EndorsementSourceArgs {
    /// Starts the source that the arguments name; `None` if they name none.
    pub(crate) fn start_source(&self, roots: &Roots) -> Result<Option<Arc<Source>>, CliError> {
        let Some(url) = &self.collateral_service else { return Ok(None) };
        let services = parse_services(url, false)?;
        let options = source_options(services, self.collateral_store.as_deref(), Some(roots))?;
        Source::start(options).map(Arc::new).map(Some).map_err(CliError::new)
    }

    /// The appraiser of a policy, with endorsements from the named service, from a file, or stapled by the peer.
    pub(crate) fn build_appraiser(
        &self,
        policy: Policy,
        collateral: Option<&Path>,
    ) -> Result<PolicyAppraiser, CliError> {
        if let Some(source) = self.start_source(&policy.roots)? {
            return Ok(PolicyAppraiser::with_source(policy, source, process::unix_now));
        }
        let json = read_optional_file(collateral, COLLATERAL_LENGTH_MAX as u64)?;
        PolicyAppraiser::new(policy, json.as_deref(), process::unix_now).map_err(|error| {
            match collateral {
                Some(path) => CliError::in_file(path)(error)
                    .with_hint("give collateral as JSON, such as the attester's collateral.json"),
                None => CliError::new(error),
            }
        })
    }
}

/// Reads `vendors`, or one URL for all vendors.
pub(crate) fn parse_services(url: &str, dangerous_plain_http: bool) -> Result<Services, CliError> {
    if url == "vendors" {
        return Services::vendor_services().map_err(CliError::new);
    }
    let base = BaseUrl::parse(url, dangerous_plain_http).map_err(|error| {
        CliError::new(error)
            .with_hint("for instance https://pccs.example:8081, or http://127.0.0.1:8081")
    })?;
    Ok(Services::from_base(&base))
}

/// The options of a source. With `roots`, only sets are stored whose signatures verify under one of them.
pub(crate) fn source_options(
    services: Services,
    store: Option<&Path>,
    roots: Option<&Roots>,
) -> Result<SourceOptions, CliError> {
    let mut options = SourceOptions::new(services, Arc::new(process::unix_now));
    options.store = store.map(open_store).transpose()?;
    options.check = roots.cloned().map(endorsement_check);
    Ok(options)
}

/// Opens the store in a folder, which is made if it does not exist.
pub(crate) fn open_store(folder: &Path) -> Result<Store, CliError> {
    Store::open(folder, StoreLimits::default()).map_err(CliError::new)
}

/// Verifies endorsements as `confide verify` would, without evidence.
fn endorsement_check(roots: Roots) -> SetCheck {
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
