//! `confide collateral serve`.

use std::{net::SocketAddr, path::PathBuf, process::ExitCode, sync::Arc};

use confide_collateral::{BaseUrl, Client};
use confide_evidence::collateral::COLLATERAL_LENGTH_MAX;
use confide_pccs::{
    Database, DatabaseError, DocumentSource, DocumentStore, PccsLimits, PccsOptions, Service,
    Upstream, Vendors, WriteOutcome, open,
};
use serde_json::{Map, Value};

use super::service;
#[cfg(feature = "simulate")]
use super::simulation::{FaultArgs, simulated_source};
use crate::{
    address::listen_address,
    error::{CliError, read_file},
    process,
};

/// A PCCS: it gives out what the vendors signed and judges nothing. It speaks plain HTTP.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Address to listen at; port 0 takes any free one
    #[arg(long, value_name = "ADDR:PORT", value_parser = listen_address,
          default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Where documents are kept: a file (SQLite), or postgres://user:password@host/database
    #[arg(
        long,
        value_name = "FILE|URL",
        required_unless_present = "simulate",
        conflicts_with = "simulate"
    )]
    database: Option<String>,
    /// Feed it from files: QuoteCollateralV3 or SNP endorsements, as `confide collateral export`
    /// writes them; older editions than those that are kept are refused
    #[arg(long, value_name = "FILE", num_args = 1.., requires = "database")]
    import: Vec<PathBuf>,
    /// Fetch what is missing or has aged from this PCCS, which also speaks for AMD and NVIDIA;
    /// `vendors` asks the vendors themselves
    #[arg(long, value_name = "URL|vendors", requires = "database")]
    upstream: Option<String>,
    /// AMD's documents from another service than the rest
    #[arg(long, value_name = "URL", requires = "upstream")]
    upstream_kds: Option<String>,
    /// NVIDIA's documents from another service than the rest
    #[arg(long, value_name = "URL", requires = "upstream")]
    upstream_rim: Option<String>,
    /// Ask them in the clear beyond this machine: whoever is between can hold revocations back
    #[arg(long)]
    dangerous_plain_http: bool,
    /// Serve the endorsements of the simulated attester in DIR instead; they endorse nothing
    #[arg(long, value_name = "DIR", hide = cfg!(not(feature = "simulate")))]
    simulate: Option<PathBuf>,
    #[cfg(feature = "simulate")]
    #[command(flatten)]
    faults: FaultArgs,
}

pub(crate) fn run(args: Args) -> Result<ExitCode, CliError> {
    process::run_to_end(serve(args))??;
    Ok(ExitCode::SUCCESS)
}

async fn serve(args: Args) -> Result<(), CliError> {
    let stop = process::asked_to_stop();
    let limits = PccsLimits::default();
    let mut more = Map::new();
    let source = match (&args.simulate, &args.database) {
        #[cfg(feature = "simulate")]
        (Some(dir), _) => {
            more.insert("simulated".into(), true.into());
            simulated_source(dir, &args.faults)?
        }
        #[cfg(not(feature = "simulate"))]
        (Some(_), _) => return Err(crate::features::no_simulator()),
        (None, Some(url)) => {
            let database = open(url).await.map_err(|error| cannot_open(&error))?;
            let imported = import(&*database, &args.import).await?;
            more.insert("simulated".into(), false.into());
            more.insert("database".into(), database.name().into());
            more.insert("imported".into(), imported);
            let vendors = vendors(&args)?;
            more.insert("upstream".into(), vendors.is_some().into());
            DocumentSource::Store(Arc::new(DocumentStore::new(database, vendors, &limits)))
        }
        (None, None) => return Err(CliError::new("--database is missing")),
    };
    let (listener, address) = process::listen(args.listen).await?;
    process::print_ready(address, "none", more);
    let service = Service::new(PccsOptions { source, limits, clock: process::unix_now });
    if let Err(error) = confide_pccs::serve(listener, Arc::new(service), stop).await {
        // As the other long-running commands: it was asked to stop, and it stopped.
        tracing::warn!(%error, "cut after the drain deadline");
    }
    Ok(())
}

fn vendors(args: &Args) -> Result<Option<Arc<dyn Upstream>>, CliError> {
    let Some(url) = &args.upstream else { return Ok(None) };
    let mut services = service::services(url, args.dangerous_plain_http)?;
    for (base, url) in
        [(&mut services.kds, &args.upstream_kds), (&mut services.rim, &args.upstream_rim)]
    {
        if let Some(url) = url {
            *base = Some(BaseUrl::parse(url, args.dangerous_plain_http).map_err(CliError::new)?);
        }
    }
    let client = Client::new(services).map_err(CliError::new)?;
    Ok(Some(Arc::new(Vendors::new(client))))
}

/// How many documents were kept, and how many were older than those that are.
async fn import(database: &dyn Database, files: &[PathBuf]) -> Result<Value, CliError> {
    let (mut kept, mut older) = (0, 0);
    for path in files {
        let shown = path.display();
        let file = read_file(path, COLLATERAL_LENGTH_MAX as u64)?;
        let documents = confide_pccs::import(&file, process::unix_now()).map_err(|error| {
            CliError::new(format!("cannot import {shown}: {error}"))
                .hint("wanted a file that `confide collateral export` or `confide attest` wrote")
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
    Ok(serde_json::json!({ "kept": kept, "older_refused": older }))
}

/// The URL is not shown: it may hold a password.
fn cannot_open(error: &DatabaseError) -> CliError {
    let failure = CliError::new(format!("cannot open the database: {error}"));
    match error {
        DatabaseError::Schema { .. } => failure.hint(
            "this database was written by a newer version of confide: upgrade, or give another one",
        ),
        DatabaseError::Sqlite(_) => failure.hint("--database names a file in a folder that exists"),
        DatabaseError::NoDriver => failure.hint(
            "give a file (SQLite), or build with the feature `databases` too; `confide --version` \
             lists what is in this build",
        ),
        _ => failure.hint(
            "wanted postgres://user:password@host/database; the connection is not encrypted, so \
             keep it on this machine or in a network of its own",
        ),
    }
}
