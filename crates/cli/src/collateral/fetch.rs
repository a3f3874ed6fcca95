//! `confide collateral fetch`: endorsements are fetched from a service, verified and stored.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use confide_collateral::{CollateralError, Source};
use confide_verifier::Roots;
use serde_json::json;

use super::{
    platform::PlatformArgs,
    service::{parse_services, source_options},
    show::{document_rows, render_document_table},
};
use crate::{
    answer::CommandReport,
    error::CliError,
    files::{ROOT_BYTES_MAX, read_file, write_file},
    process::unix_now,
};

/// The arguments of `confide collateral fetch`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    platform: PlatformArgs,
    /// The service: the URL of a PCCS, or `vendors`
    #[arg(long, value_name = "URL", default_value = "vendors")]
    service: String,
    /// Store the endorsements in this folder
    #[arg(long, value_name = "DIR")]
    store: Option<PathBuf>,
    /// Write the endorsements to this file, as `confide verify --collateral` reads them
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// The root (DER) under which signatures must verify, instead of the vendors'; simulated endorsements
    /// have their own root
    #[arg(long, value_name = "DER-FILE")]
    root: Option<PathBuf>,
    /// Trust this certificate (DER) for TLS in addition to the system's
    #[arg(long, value_name = "DER-FILE")]
    tls_root: Option<PathBuf>,
    /// Deadline of the whole command, in seconds
    #[arg(long, value_name = "N", default_value_t = 60,
          value_parser = clap::value_parser!(u64).range(1..=600))]
    deadline_s: u64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Allow plain HTTP to another machine: anyone on the path can read the requests and withhold answers
    #[arg(long)]
    dangerous_plain_http: bool,
    /// Store documents without verifying signatures: a service can then corrupt this store's protection
    /// against rollback
    #[arg(long)]
    dangerous_skip_signatures: bool,
}

pub(crate) fn run(args: Args) -> Result<ExitCode, CliError> {
    let platform = args.platform.platform()?;
    let roots = match &args.root {
        None => Roots::production(),
        Some(path) => Roots::from_der(&read_file(path, ROOT_BYTES_MAX)?),
    };
    let mut services = parse_services(&args.service, args.dangerous_plain_http)?;
    if let Some(path) = &args.tls_root {
        services.tls_roots.push(read_file(path, ROOT_BYTES_MAX)?);
    }
    let deadline = Duration::from_secs(args.deadline_s);
    services.deadline = Some(deadline);
    let roots = Some(&roots).filter(|_| !args.dangerous_skip_signatures);
    let mut options = source_options(services, args.store.as_deref(), roots)?;
    options.evaluation = args.platform.tcb_evaluation()?;
    let source = Source::start(options).map_err(CliError::new)?;
    eprintln!("fetching the endorsements of {platform} from {}", args.service);
    let set = source
        .find_or_fetch_blocking(&platform, deadline)
        .map_err(|error| explain_error(&args, error))?;
    if let Some(path) = &args.out {
        write_file(path, set.json())?;
    }
    let documents: Vec<_> = set.documents().cloned().collect();
    let (from, until) = set.validity();
    let counts = source.counts();
    let requests: u64 = counts.hosts.values().map(|host| host.requests).sum();
    let json = json!({
        "platform": platform.to_string(),
        "service": args.service,
        "signatures_verified": roots.is_some(),
        "holds_from": from,
        "holds_until": until,
        "requests": requests,
        "documents": document_rows(&documents, unix_now()),
    });
    let status =
        CommandReport::new(render_document_table(&documents, unix_now()), json).print(args.json)?;
    // The end of the source waits for what is still being written.
    drop(source);
    if counts.store_failures > 0 {
        return Err(CliError::new("the endorsements were fetched but could not be stored")
            .with_hint("see the log; the disk may be full"));
    }
    Ok(status)
}

fn explain_error(args: &Args, error: CollateralError) -> CliError {
    let hint = match &error {
        CollateralError::Refused { .. } if args.root.is_none() => {
            "simulated endorsements need --root with the root.der of their attester"
        }
        CollateralError::RolledBack { .. } => {
            "the service sent an older document than the store has: use another service"
        }
        CollateralError::NotValidNow { .. } => "check this machine's clock",
        CollateralError::Transport { .. } => "check the address, and that the service is running",
        error if error.is_not_found() => "the service does not know this platform",
        _ => return CliError::new(error),
    };
    CliError::new(error).with_hint(hint)
}
