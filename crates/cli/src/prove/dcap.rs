//! `confide prove dcap`: a quote and its endorsements, as `confide verify quote` takes them.

use std::path::PathBuf;

use confide_evidence::{
    collateral::{COLLATERAL_LENGTH_MAX, Collateral},
    quote::QUOTE_LENGTH_MAX,
};
use confide_prover::DcapGuestInput;
use serde::Deserialize;
use serde_json::Value;

use super::{input, options::ProveOptions};
use crate::{error::CliError, files::read_file, process::unix_now, time::parse_time};

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
    /// A time at which the endorsements are valid: `now` (the default), an RFC 3339 date or Unix seconds.
    /// The statement names the whole period.
    #[arg(long, value_name = "TIME", requires = "quote", value_parser = parse_time)]
    at: Option<u64>,
    /// First instant that the statement covers.
    #[arg(long, value_name = "TIME", requires = "quote", value_parser = parse_time)]
    not_before: Option<u64>,
    /// Last instant that the statement covers.
    #[arg(long, value_name = "TIME", requires = "quote", value_parser = parse_time)]
    not_after: Option<u64>,
    #[command(flatten)]
    pub(super) options: ProveOptions,
}

/// The input in one file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DcapInput {
    /// Hexadecimal.
    quote: String,
    /// QuoteCollateralV3, whose signed parts are strings.
    collateral: Value,
    at: u64,
    #[serde(default)]
    not_before: Option<u64>,
    #[serde(default)]
    not_after: Option<u64>,
}

impl Args {
    /// The guest's encoded input.
    pub(super) fn read_guest_input(&self) -> Result<Vec<u8>, CliError> {
        match (&self.input, &self.quote, &self.collateral) {
            (Some(path), ..) => {
                let text = read_file(path, input::JSON_BYTES_MAX)?;
                let explain = |reason: String| {
                    CliError::in_file(path)(format!("input of dcap is malformed: {reason}"))
                        .with_hint("docs/prove.md shows the input of each guest")
                };
                let all: DcapInput =
                    serde_json::from_slice(&text).map_err(|error| explain(error.to_string()))?;
                let quote = hex::decode(&all.quote).map_err(|error| explain(error.to_string()))?;
                let times =
                    AppraisalTimes { at: all.at, first: all.not_before, last: all.not_after };
                encode_dcap_input(&quote, all.collateral.to_string().as_bytes(), times)
                    .map_err(explain)
            }
            (None, Some(quote), Some(collateral)) => {
                let at = self.at.unwrap_or_else(unix_now);
                let quote = read_file(quote, QUOTE_LENGTH_MAX as u64)?;
                let json = read_file(collateral, COLLATERAL_LENGTH_MAX as u64)?;
                let times = AppraisalTimes { at, first: self.not_before, last: self.not_after };
                encode_dcap_input(&quote, &json, times).map_err(CliError::in_file(collateral))
            }
            _ => Err(CliError::new("wanted --input, or --quote and --collateral")),
        }
    }
}

/// The time to judge at, and the first and last instants that the statement covers, in Unix seconds.
struct AppraisalTimes {
    at: u64,
    first: Option<u64>,
    last: Option<u64>,
}

fn encode_dcap_input(
    quote: &[u8],
    collateral: &[u8],
    times: AppraisalTimes,
) -> Result<Vec<u8>, String> {
    let it = Collateral::parse(collateral).map_err(|error| error.to_string())?;
    let parts = DcapGuestInput {
        at: times.at,
        within: (times.first.unwrap_or(0), times.last.unwrap_or(u64::MAX)),
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
