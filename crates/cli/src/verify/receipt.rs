//! `confide verify receipt`: whether an answer is that of an attested gateway, by its signed receipt.

pub(crate) mod body_key;
mod report;

use std::{path::PathBuf, process::ExitCode};

use confide_disclosure::{EXCERPT_BYTES_MAX, EXCERPT_MAGIC, Excerpt};
use confide_evidence::collateral::COLLATERAL_LENGTH_MAX;
use confide_receipt::{Nonce, RECEIPT_BYTES_MAX, REPORT_BYTES_MAX, parse_nonce};
use confide_verification::{
    ReceiptInput, ReceiptRules, ReceiptVerdict, judge_receipt, split_excerpt,
};
use confide_verifier::AwsLc;

use super::inputs::read_policy;
use crate::{
    error::CliError,
    files::{read_file, read_optional_file},
    process::unix_now,
    time::parse_time,
};

/// The longest body of a request or an answer, in bytes.
const BODY_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// The arguments of `confide verify receipt`.
#[derive(clap::Args)]
pub(crate) struct ReceiptArgs {
    /// The receipt of one answer, JSON (aci/1), as the gateway gave it, or an excerpt that
    /// `confide disclose` made of one.
    receipt: PathBuf,
    /// The gateway's attestation report with the keyset that the receipt names, JSON (aci/1).
    #[arg(long, value_name = "FILE")]
    report: PathBuf,
    /// The nonce with which the report was requested, 64 lower-case hexadecimal digits; by default,
    /// the report has to be one that was requested without a nonce, which proves no freshness.
    #[arg(long, value_name = "HEX", value_parser = parse_nonce_argument)]
    nonce: Option<Nonce>,
    /// The policy for the gateway's evidence and configuration, TOML.
    #[arg(long, value_name = "FILE")]
    policy: PathBuf,
    /// The body of the request, byte by byte as it was sent.
    #[arg(long, value_name = "FILE")]
    request: Option<PathBuf>,
    /// The body of the answer, byte by byte as it came.
    #[arg(long, value_name = "FILE")]
    response: Option<PathBuf>,
    /// Endorsements instead of those in the report, JSON.
    #[arg(long, value_name = "FILE")]
    collateral: Option<PathBuf>,
    /// A root certificate to trust instead of the policy's, DER or PEM.
    #[arg(long, value_name = "FILE")]
    root: Option<PathBuf>,
    /// The time to judge at: `now` (the default), an RFC 3339 date or Unix seconds.
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    at: Option<u64>,
    /// Do not compare the gateway's configuration, even if the policy pins one: the gateway may have
    /// sent the prompt anywhere.
    #[arg(long)]
    dangerous_skip_config_digest: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &ReceiptArgs) -> Result<ExitCode, CliError> {
    let answer = match judge_files(args) {
        Ok(verdict) => report::describe_verdict(&verdict),
        Err(error) if args.json => report::describe_unreadable(&error),
        Err(error) => return Err(error),
    };
    answer.print(args.json)
}

fn parse_nonce_argument(text: &str) -> Result<Nonce, String> {
    parse_nonce(text).ok_or_else(|| "wanted 64 lower-case hexadecimal digits".into())
}

fn judge_files(args: &ReceiptArgs) -> Result<ReceiptVerdict, CliError> {
    let rules = ReceiptRules {
        policy: read_policy(Some(&args.policy), args.root.as_deref())?,
        nonce: args.nonce,
        at: args.at.unwrap_or_else(unix_now),
        skips_configuration: args.dangerous_skip_config_digest,
    };
    let (receipt, excerpt) = read_receipt(args)?;
    let input = ReceiptInput {
        report: read_file(&args.report, REPORT_BYTES_MAX as u64)?,
        receipt,
        excerpt,
        collateral: read_optional_file(args.collateral.as_deref(), COLLATERAL_LENGTH_MAX as u64)?,
        request: read_optional_file(args.request.as_deref(), BODY_BYTES_MAX)?,
        response: read_optional_file(args.response.as_deref(), BODY_BYTES_MAX)?,
    };
    Ok(judge_receipt(&input, &rules, &AwsLc))
}

/// Reads the receipt itself, or the excerpt in which it is.
fn read_receipt(args: &ReceiptArgs) -> Result<(Vec<u8>, Option<Excerpt>), CliError> {
    let bytes = read_file(&args.receipt, EXCERPT_BYTES_MAX as u64)?;
    if !bytes.starts_with(EXCERPT_MAGIC) {
        let limit = RECEIPT_BYTES_MAX;
        return match bytes.len() > limit {
            true => {
                let path = args.receipt.display();
                let text = format!("{path} is too long: wanted at most {limit} bytes");
                Err(CliError::new(text))
            }
            false => Ok((bytes, None)),
        };
    }
    let in_file = CliError::in_file(&args.receipt);
    if args.request.is_some() || args.response.is_some() {
        let hint = "an excerpt has the parts of the bodies that it shows";
        return Err(in_file("an excerpt needs no --request and no --response").with_hint(hint));
    }
    split_excerpt(bytes).map_err(CliError::in_file(&args.receipt))
}

#[cfg(test)]
#[path = "receipt_tests.rs"]
mod tests;
