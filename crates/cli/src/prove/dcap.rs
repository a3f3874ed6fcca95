//! `confide prove dcap`: a quote and its endorsements, as `confide verify quote` takes them.

use std::path::PathBuf;

use super::{Order, input};
use crate::error::CliError;

/// The input: JSON, or the files that `confide verify quote` takes.
#[derive(clap::Args)]
pub(super) struct Args {
    /// The guest's input, JSON.
    #[arg(long, value_name = "FILE", required_unless_present = "quote")]
    input: Option<PathBuf>,
    /// The quote, binary.
    #[arg(long, value_name = "FILE", conflicts_with = "input", requires_all = ["collateral", "at"])]
    quote: Option<PathBuf>,
    /// Its endorsements: QuoteCollateralV3, JSON.
    #[arg(long, value_name = "FILE", requires = "quote")]
    collateral: Option<PathBuf>,
    /// A time at which they hold, in Unix seconds; the statement names the whole period.
    #[arg(long, value_name = "UNIX", requires = "quote")]
    at: Option<u64>,
    #[command(flatten)]
    pub(super) order: Order,
}

impl Args {
    pub(super) fn input(&self) -> Result<Vec<u8>, CliError> {
        match (&self.input, &self.quote, &self.collateral, self.at) {
            (Some(path), ..) => input::read("dcap", path),
            _ => Err(CliError::new("wanted --input, or --quote, --collateral and --at")),
        }
    }
}
