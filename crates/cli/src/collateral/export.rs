//! `confide collateral export`: one file for `confide verify`.

use std::{path::PathBuf, process::ExitCode};

use confide_collateral::EndorsementSet;
use confide_evidence::{UnixSeconds, snp_endorsements::SnpEndorsements};

use super::{platform::PlatformArgs, service::open_store};
use crate::{
    error::CliError,
    files::{make_folder, write_file},
    process::{print_text, unix_now},
};

/// The arguments of `confide collateral export`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where to write the endorsements, as `confide verify --collateral` reads them
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// The store
    #[arg(long, value_name = "DIR")]
    store: PathBuf,
    /// AMD: write endorsement-key.der, chain.pem and crl.der into this folder as well
    #[arg(long, value_name = "DIR")]
    parts: Option<PathBuf>,
    #[command(flatten)]
    platform: PlatformArgs,
}

pub(crate) fn run(args: Args) -> Result<ExitCode, CliError> {
    let (platform, evaluation) = (args.platform.platform()?, args.platform.tcb_evaluation()?);
    let store = open_store(&args.store)?;
    let set = EndorsementSet::from_store(&store, &platform, evaluation).map_err(|error| {
        CliError::new(error).with_hint("`confide collateral fetch --store DIR` fetches them")
    })?;
    write_file(&args.out, set.json())?;
    if let Some(folder) = &args.parts {
        let parts = SnpEndorsements::parse(set.json()).map_err(|error| {
            CliError::new(format!("--parts is for AMD's endorsements: {error}"))
        })?;
        make_folder(folder)?;
        write_file(&folder.join("endorsement-key.der"), &parts.endorsement_key)?;
        write_file(&folder.join("chain.pem"), &parts.chain)?;
        if let Some(crl) = &parts.crl {
            write_file(&folder.join("crl.der"), crl)?;
        }
    }
    let (from, until) = set.validity();
    let now = unix_now();
    if !set.is_valid_at(now) {
        let [from, until, now] = [from, until, now].map(UnixSeconds);
        eprintln!("note: these endorsements are valid from {from} to {until}, but it is {now} now");
    }
    print_text(&format!("{platform}: valid until {}\n", UnixSeconds(until)))?;
    Ok(ExitCode::SUCCESS)
}
