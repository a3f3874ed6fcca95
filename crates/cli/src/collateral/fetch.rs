//! `confide collateral fetch`: asks a service, verifies, keeps.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use confide_collateral::{CollateralError, Source};
use confide_verifier::Roots;
use serde_json::json;

use super::{
    platform::PlatformArgs,
    service::{options, services},
    show::{rows, table},
};
use crate::{
    error::{CliError, read_file},
    process::unix_now,
};

/// A root certificate is about 700 bytes at Intel and 1.7 KB at AMD.
const ROOT_BYTES_MAX: u64 = 16 * 1024;

/// Arguments.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    platform: PlatformArgs,
    /// The service to ask: a PCCS, or `vendors`
    #[arg(long, value_name = "URL", default_value = "vendors")]
    service: String,
    /// Keep the endorsements in this folder
    #[arg(long, value_name = "DIR")]
    store: Option<PathBuf>,
    /// Write the endorsements to this file, as `confide verify --collateral` reads them
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// The root that signatures must lead to (DER), instead of the vendors'; simulated
    /// endorsements have one of their own
    #[arg(long, value_name = "DER-FILE")]
    root: Option<PathBuf>,
    /// Trust this certificate (DER) for TLS beside the system's
    #[arg(long, value_name = "DER-FILE")]
    tls_root: Option<PathBuf>,
    /// Seconds that all of it may take
    #[arg(long, value_name = "N", default_value_t = 60,
          value_parser = clap::value_parser!(u64).range(1..=600))]
    deadline_s: u64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Ask another machine over plain HTTP: who is on the way sees and may hold back what is asked
    #[arg(long)]
    dangerous_plain_http: bool,
    /// Keep what no signature was verified of: a service can then spoil the memory of this store
    #[arg(long)]
    dangerous_skip_signatures: bool,
}

pub(crate) fn run(args: Args) -> Result<ExitCode, CliError> {
    let platform = args.platform.platform()?;
    let roots = match &args.root {
        None => Roots::production(),
        Some(path) => Roots::from_der(&read_file(path, ROOT_BYTES_MAX)?),
    };
    let mut services = services(&args.service, args.dangerous_plain_http)?;
    if let Some(path) = &args.tls_root {
        services.tls_roots.push(read_file(path, ROOT_BYTES_MAX)?);
    }
    let deadline = Duration::from_secs(args.deadline_s);
    services.deadline = Some(deadline);
    let roots = Some(&roots).filter(|_| !args.dangerous_skip_signatures);
    let mut options = options(services, args.store.as_deref(), roots)?;
    options.evaluation = args.platform.evaluation()?;
    let source = Source::start(options).map_err(CliError::new)?;
    eprintln!("asking {} for the endorsements of {platform}", args.service);
    let set = source.ensure_blocking(&platform, deadline).map_err(|error| refusal(&args, error))?;
    if let Some(path) = &args.out {
        std::fs::write(path, set.json())
            .map_err(|error| CliError::new(format!("cannot write {}: {error}", path.display())))?;
    }
    let documents: Vec<_> = set.documents().cloned().collect();
    let (from, until) = set.life();
    let counts = source.counts();
    if args.json {
        let requests: u64 = counts.hosts.values().map(|host| host.requests).sum();
        let line = json!({
            "platform": platform.to_string(),
            "service": args.service,
            "signatures_verified": roots.is_some(),
            "holds_from": from,
            "holds_until": until,
            "requests": requests,
            "documents": rows(&documents, unix_now()),
        });
        println!("{line}");
    } else {
        print!("{}", table(&documents, unix_now()));
    }
    // The end of the source waits for what is still being written.
    drop(source);
    if counts.store_failures > 0 {
        return Err(CliError::new("the endorsements came but could not be kept")
            .hint("the log says why: is the disk full?"));
    }
    Ok(ExitCode::SUCCESS)
}

fn refusal(args: &Args, error: CollateralError) -> CliError {
    let hint = match &error {
        CollateralError::Refused { .. } if args.root.is_none() => {
            "simulated endorsements need --root with the root.der of their attester"
        }
        CollateralError::RolledBack { .. } => {
            "the service gives an older document than it or another gave before: ask another one"
        }
        CollateralError::NotHolding { .. } => "is this machine's clock right?",
        CollateralError::Transport { .. } => "does the service run there?",
        error if error.is_unknown() => "the service does not know this platform",
        _ => return CliError::new(error),
    };
    CliError::new(error).hint(hint)
}
