//! `confide collateral serve`: endorsements for a fleet over the vendors' routes.

use std::{path::PathBuf, process::ExitCode, sync::Arc};

use confide_collateral::{BaseUrl, Client};
use confide_evidence::collateral::COLLATERAL_LENGTH_MAX;
use confide_pccs::{
    Database, DatabaseError, DocumentSource, DocumentStore, PccsLimits, PccsOptions, Service,
    Upstream, VendorUpstream, WriteOutcome, open_database,
};
use serde_json::{Value, json};

use super::service;
#[cfg(feature = "simulate")]
use super::simulation::{FaultArgs, simulated_source};
use crate::{error::CliError, files::read_file, process, server_flags::PlainServerArgs};

/// A PCCS: it serves the vendors' signed documents over plain HTTP, without verifying them.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    plain: PlainServerArgs,
    /// Where documents are stored: a file (SQLite), or postgres://user:password@host/database
    #[arg(
        long,
        value_name = "FILE|URL",
        required_unless_present = "simulate",
        conflicts_with = "simulate"
    )]
    database: Option<String>,
    /// Import these files: QuoteCollateralV3 or SNP endorsements, as `confide collateral export` writes
    /// them; editions older than the stored ones are refused
    #[arg(long, value_name = "FILE", num_args = 1.., requires = "database")]
    import: Vec<PathBuf>,
    /// Fetch missing or aged documents of all vendors from this PCCS; `vendors` fetches them from the
    /// vendors themselves
    #[arg(long, value_name = "URL|vendors", requires = "database")]
    upstream: Option<String>,
    /// Fetch AMD's documents from this service instead
    #[arg(long, value_name = "URL", requires = "upstream")]
    upstream_kds: Option<String>,
    /// Fetch NVIDIA's documents from this service instead
    #[arg(long, value_name = "URL", requires = "upstream")]
    upstream_rim: Option<String>,
    /// Allow plain HTTP to another machine: anyone on the path can withhold revocations
    #[arg(long)]
    dangerous_plain_http: bool,
    /// Serve the endorsements of the simulated attester in DIR instead; they endorse no real machine
    #[arg(long, value_name = "DIR", hide = cfg!(not(feature = "simulate")))]
    simulate: Option<PathBuf>,
    #[cfg(feature = "simulate")]
    #[command(flatten)]
    faults: FaultArgs,
}

pub(crate) fn run(args: Args) -> Result<ExitCode, CliError> {
    process::block_on(serve(args))?
}

async fn serve(args: Args) -> Result<ExitCode, CliError> {
    let stop = process::stop_signal();
    let limits = PccsLimits::default();
    let (source, fields) = match (&args.simulate, &args.database) {
        #[cfg(feature = "simulate")]
        (Some(dir), _) => (simulated_source(dir, &args.faults)?, json!({ "simulated": true })),
        #[cfg(not(feature = "simulate"))]
        (Some(_), _) => return Err(crate::features::missing_simulator_error()),
        (None, Some(url)) => {
            let database = open_database(url).await.map_err(|error| explain_error(&error))?;
            let imported = import_files(&*database, &args.import).await?;
            let vendors = build_vendor_upstream(&args)?;
            let fields = json!({
                "simulated": false,
                "database": database.name(),
                "imported": imported,
                "upstream": vendors.is_some(),
            });
            (
                DocumentSource::Store(Arc::new(DocumentStore::new(database, vendors, &limits))),
                fields,
            )
        }
        (None, None) => return Err(CliError::new("--database is missing")),
    };
    let (listener, address) = args.plain.listen(None).await?;
    process::print_ready(address, "none", fields);
    let service = Service::new(PccsOptions { source, limits, clock: process::unix_now });
    if let Err(error) = confide_pccs::serve(listener, Arc::new(service), stop).await {
        // It was asked to stop and it stopped, so this is not a failure.
        tracing::warn!(%error, "open connections were cut at the drain deadline");
    }
    Ok(ExitCode::SUCCESS)
}

fn build_vendor_upstream(args: &Args) -> Result<Option<Arc<dyn Upstream>>, CliError> {
    let Some(url) = &args.upstream else { return Ok(None) };
    let mut services = service::parse_services(url, args.dangerous_plain_http)?;
    for (base, url) in
        [(&mut services.kds, &args.upstream_kds), (&mut services.rim, &args.upstream_rim)]
    {
        if let Some(url) = url {
            *base = Some(BaseUrl::parse(url, args.dangerous_plain_http).map_err(CliError::new)?);
        }
    }
    let client = Client::new(services).map_err(CliError::new)?;
    Ok(Some(Arc::new(VendorUpstream::new(client))))
}

/// Imports files; gives the numbers of documents that were stored, and that were older than the stored ones.
async fn import_files(database: &dyn Database, files: &[PathBuf]) -> Result<Value, CliError> {
    let (mut kept, mut older) = (0, 0);
    for path in files {
        let shown = path.display();
        let file = read_file(path, COLLATERAL_LENGTH_MAX as u64)?;
        let documents =
            confide_pccs::split_endorsements(&file, process::unix_now()).map_err(|error| {
                CliError::new(format!("cannot import {shown}: {error}")).with_hint(
                    "wanted a file that `confide collateral export` or `confide attest` wrote",
                )
            })?;
        for document in documents {
            let (kind, key, got) = (document.kind.name(), document.key.clone(), document.dates);
            match database.write(document).await.map_err(CliError::new)? {
                WriteOutcome::Stored => kept += 1,
                WriteOutcome::Older { kept } => {
                    older += 1;
                    tracing::warn!(%shown, kind, key, ?kept, ?got, "rollback refused");
                }
            }
        }
    }
    Ok(json!({ "kept": kept, "older_refused": older }))
}

/// Explains why a database cannot be opened. Its URL is not shown: it may hold a password.
fn explain_error(error: &DatabaseError) -> CliError {
    let failure = CliError::new(format!("cannot open the database: {error}"));
    match error {
        DatabaseError::NewerSchema { .. } => failure.with_hint(
            "this database was written by a newer version of confide: upgrade, or give another one",
        ),
        DatabaseError::Sqlite(_) => {
            failure.with_hint("--database names a file in a folder that exists")
        }
        DatabaseError::NoDriver => failure.with_hint(
            "give a file (SQLite), or build with the feature `databases`; `confide --version` \
             lists the features of this build",
        ),
        _ => failure.with_hint(
            "give postgres://user:password@host/database; the connection is not encrypted, so keep \
             it on this machine or in a network of its own",
        ),
    }
}
