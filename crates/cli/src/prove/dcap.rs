//! `confide prove dcap`: a quote and its endorsements, as `confide verify quote` takes them.

use std::path::PathBuf;

use confide_evidence::{
    collateral::{COLLATERAL_LENGTH_MAX, Collateral},
    quote::QUOTE_LENGTH_MAX,
};
use confide_prover::DcapParts;
use serde::Deserialize;
use serde_json::Value;

use super::{Order, input};
use crate::{
    error::{CliError, read_file},
    process::unix_now,
    time::time,
};

/// The input: JSON, or the files that `confide verify quote` takes.
#[derive(clap::Args)]
pub(super) struct Args {
    /// The guest's input, JSON.
    #[arg(long, value_name = "FILE", required_unless_present = "quote")]
    input: Option<PathBuf>,
    /// The quote, binary.
    #[arg(long, value_name = "FILE", conflicts_with = "input", requires = "collateral")]
    quote: Option<PathBuf>,
    /// Its endorsements: QuoteCollateralV3, JSON.
    #[arg(long, value_name = "FILE", requires = "quote")]
    collateral: Option<PathBuf>,
    /// A time at which they hold: `now`, an RFC 3339 date or Unix seconds; without it, now. The
    /// statement names the whole period.
    #[arg(long, value_name = "TIME", requires = "quote", value_parser = time)]
    at: Option<u64>,
    /// The statement says nothing of instants before this one.
    #[arg(long, value_name = "TIME", requires = "quote", value_parser = time)]
    not_before: Option<u64>,
    /// The statement says nothing of instants after this one.
    #[arg(long, value_name = "TIME", requires = "quote", value_parser = time)]
    not_after: Option<u64>,
    #[command(flatten)]
    pub(super) order: Order,
}

/// The same in one file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    /// Hexadecimal.
    quote: String,
    /// QuoteCollateralV3: what is signed in it stands in texts.
    collateral: Value,
    at: u64,
    #[serde(default)]
    not_before: Option<u64>,
    #[serde(default)]
    not_after: Option<u64>,
}

impl Args {
    pub(super) fn input(&self) -> Result<Vec<u8>, CliError> {
        match (&self.input, &self.quote, &self.collateral) {
            (Some(path), ..) => {
                let text = read_file(path, input::JSON_BYTES_MAX)?;
                let wrong = |reason: String| {
                    CliError::new(format!(
                        "{}: input of dcap is malformed: {reason}",
                        path.display()
                    ))
                    .hint("docs/prove.md shows the input of each guest")
                };
                let all: Input =
                    serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
                let quote = hex::decode(&all.quote).map_err(|error| wrong(error.to_string()))?;
                let within = (all.not_before, all.not_after);
                encoded(&quote, all.collateral.to_string().as_bytes(), all.at, within)
                    .map_err(wrong)
            }
            (None, Some(quote), Some(collateral)) => {
                let at = self.at.unwrap_or_else(unix_now);
                let shown = collateral.display();
                let quote = read_file(quote, QUOTE_LENGTH_MAX as u64)?;
                let json = read_file(collateral, COLLATERAL_LENGTH_MAX as u64)?;
                encoded(&quote, &json, at, (self.not_before, self.not_after))
                    .map_err(|reason| CliError::new(format!("{shown}: {reason}")))
            }
            _ => Err(CliError::new("wanted --input, or --quote and --collateral")),
        }
    }
}

fn encoded(
    quote: &[u8],
    collateral: &[u8],
    at: u64,
    (first, last): (Option<u64>, Option<u64>),
) -> Result<Vec<u8>, String> {
    let it = Collateral::parse(collateral).map_err(|error| error.to_string())?;
    let parts = DcapParts {
        at,
        within: (first.unwrap_or(0), last.unwrap_or(u64::MAX)),
        quote,
        pck_crl_issuer_chain: &it.pck_crl_issuer_chain,
        root_ca_crl: &it.root_ca_crl,
        pck_crl: &it.pck_crl,
        tcb_info_issuer_chain: &it.tcb_info_issuer_chain,
        tcb_info: &it.tcb_info,
        tcb_info_signature: &it.tcb_info_signature,
        qe_identity_issuer_chain: &it.qe_identity_issuer_chain,
        qe_identity: &it.qe_identity,
        qe_identity_signature: &it.qe_identity_signature,
        pck_certificate_chain: it.pck_certificate_chain.as_deref().unwrap_or_default(),
    };
    Ok(parts.encode())
}
