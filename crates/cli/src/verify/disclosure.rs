//! `confide verify disclosure`: what a third party may rely on, and whom it has to trust.

mod judgement;
mod report;
#[cfg(feature = "circuits")]
mod texts;
pub(crate) mod words;

use std::{path::PathBuf, process::ExitCode};

use confide_disclosure::{DISCLOSURE_BYTES_MAX, TextProofs};

use super::inputs::read_root;
use crate::{error::CliError, files::read_file, process::unix_now, time::parse_time};
use judgement::{AcceptedDisclosure, DisclosurePolicy, RejectedDisclosure, judge_disclosure};

/// The longest policy, including its table.
const POLICY_BYTES_MAX: u64 = confide_verifier::POLICY_LENGTH_MAX as u64;

/// The arguments of `confide verify disclosure`.
#[derive(clap::Args)]
pub(crate) struct DisclosureArgs {
    /// The disclosure, as `confide disclose` wrote it.
    file: PathBuf,
    /// The policy for the notary, TOML, with a table [disclosure] that names hosts.
    #[arg(long, value_name = "FILE")]
    policy: PathBuf,
    /// A root certificate to trust instead of the policy's, DER or PEM.
    #[arg(long, value_name = "FILE")]
    root: Option<PathBuf>,
    /// The time at which the statement's age is measured: `now` (the default), an RFC 3339 date or Unix
    /// seconds.
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    at: Option<u64>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: DisclosureArgs) -> Result<ExitCode, CliError> {
    let answer = match judge_files(&args) {
        Ok(Ok(accepted)) => report::describe_acceptance(&accepted),
        Ok(Err(rejected)) => report::describe_rejection(&rejected),
        Err(error) if args.json => report::describe_unreadable(&error),
        Err(error) => return Err(error),
    };
    answer.print(args.json)
}

/// The proofs about texts, where this program was built with the circuits.
pub(crate) fn text_proofs() -> Option<&'static dyn TextProofs> {
    #[cfg(feature = "circuits")]
    let proofs: Option<&dyn TextProofs> = Some(&texts::CircuitTextProofs);
    #[cfg(not(feature = "circuits"))]
    let proofs: Option<&dyn TextProofs> = None;
    proofs
}

fn judge_files(
    args: &DisclosureArgs,
) -> Result<Result<AcceptedDisclosure, RejectedDisclosure>, CliError> {
    let bytes = read_file(&args.policy, POLICY_BYTES_MAX)?;
    let mut rules = DisclosurePolicy::parse(&bytes).map_err(|reason| {
        CliError::in_file(&args.policy)(reason)
            .with_hint("docs/policy.md lists every key, docs/disclosure.md those of [disclosure]")
    })?;
    if let Some(path) = &args.root {
        rules.trust_only_root(&read_root(path)?);
    }
    let file = read_file(&args.file, DISCLOSURE_BYTES_MAX as u64)?;
    Ok(judge_disclosure(&file, &rules, text_proofs(), args.at.unwrap_or_else(unix_now)))
}

#[cfg(test)]
#[path = "disclosure_tests.rs"]
mod tests;
