//! `confide verify disclosure`: what a third party may rely on, and whom it then trusts.

mod judged;
mod shown;
#[cfg(feature = "circuits")]
mod texts;

use std::{path::PathBuf, process::ExitCode};

use confide_disclosure::{ProvenClaim, TextProofs};

use super::{NOT_JUDGED, REJECTED, Unreadable, line, print, read, read_root};
use crate::{error::CliError, process::unix_now, time::time};
use judged::{Judged, Rules, judge};

/// Longest policy with its table.
const POLICY_BYTES_MAX: u64 = confide_verifier::POLICY_LENGTH_MAX as u64;

/// Arguments.
#[derive(clap::Args)]
pub(crate) struct DisclosureArgs {
    /// The disclosure, as `confide disclose` wrote it.
    file: PathBuf,
    /// What the notary has to be, TOML, with a table [disclosure] that names hosts.
    #[arg(long, value_name = "FILE")]
    policy: PathBuf,
    /// A root certificate to trust instead of the policy's, DER or PEM.
    #[arg(long, value_name = "FILE")]
    root: Option<PathBuf>,
    /// The time from which the statement's age counts: `now`, an RFC 3339 date or Unix seconds;
    /// without it, now.
    #[arg(long, value_name = "TIME", value_parser = time)]
    at: Option<u64>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: DisclosureArgs) -> Result<ExitCode, CliError> {
    let (text, status) = match judge_files(&args) {
        Ok(Judged::Accepted(accepted)) if args.json => {
            (line(&shown::accepted_json(&accepted)), ExitCode::SUCCESS)
        }
        Ok(Judged::Accepted(accepted)) => (shown::accepted_text(&accepted), ExitCode::SUCCESS),
        Ok(Judged::Rejected(rejected)) => {
            let status = if rejected.is_unjudged() { NOT_JUDGED } else { REJECTED };
            let text = match args.json {
                true => line(&shown::rejected_json(&rejected)),
                false => shown::rejected_text(&rejected),
            };
            (text, status.into())
        }
        Err(unreadable) if args.json => {
            (line(&shown::unreadable_json(&unreadable.reason)), NOT_JUDGED.into())
        }
        Err(unreadable) => return Err(unreadable.error()),
    };
    print(&text).map(|()| status)
}

/// Proofs about texts, where this program has the circuits.
pub(crate) fn text_proofs() -> Option<&'static dyn TextProofs> {
    #[cfg(feature = "circuits")]
    let proofs: Option<&dyn TextProofs> = Some(&texts::Circuits);
    #[cfg(not(feature = "circuits"))]
    let proofs: Option<&dyn TextProofs> = None;
    proofs
}

/// A field's name as it may stand on a terminal: hosts choose the names of their members.
pub(crate) fn name_words(name: &str) -> String {
    shown::name_words(name)
}

/// What a claim is about, and what it says.
pub(crate) fn claim_words(claim: &ProvenClaim) -> (String, String) {
    shown::claim_words(claim)
}

fn judge_files(args: &DisclosureArgs) -> Result<Judged, Unreadable> {
    let bytes = read(&args.policy, POLICY_BYTES_MAX)?;
    let mut rules = Rules::parse(&bytes).map_err(|reason| Unreadable {
        reason: format!("{}: {reason}", args.policy.display()),
        hint: Some("docs/policy.md lists every key, docs/disclosure.md those of [disclosure]"),
    })?;
    if let Some(path) = &args.root {
        rules.trust(&read_root(path)?);
    }
    let file = read(&args.file, confide_disclosure::DISCLOSURE_BYTES_MAX as u64)?;
    Ok(judge(&file, &rules, args.at.unwrap_or_else(unix_now)))
}

#[cfg(test)]
#[path = "disclosure_tests.rs"]
mod tests;
