//! `confide collateral show`: what a store holds.

use std::{fmt::Write, path::PathBuf, process::ExitCode};

use confide_collateral::{Document, UnreadableFile};
use confide_evidence::UnixSeconds;
use serde_json::{Value, json};

use super::service::open_store;
use crate::{answer::CommandReport, error::CliError, process::unix_now, time::parse_time};

/// The arguments of `confide collateral show`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The folder of the store
    #[arg(long, value_name = "DIR")]
    store: PathBuf,
    /// The time for which validity is shown: `now` (the default), an RFC 3339 date or Unix seconds
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    at: Option<u64>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> Result<ExitCode, CliError> {
    if !args.store.is_dir() {
        return Err(CliError::new(format!("{} is not a folder", args.store.display()))
            .with_hint("`confide collateral fetch --store DIR` makes one"));
    }
    let (documents, faults) = open_store(&args.store)?.list().map_err(CliError::new)?;
    let now = args.at.unwrap_or_else(unix_now);
    let mut text = render_document_table(&documents, now);
    for fault in &faults {
        let _ = writeln!(text, "damaged: {}: {}", fault.name, fault.reason);
    }
    if documents.is_empty() && faults.is_empty() {
        text = format!("{} holds no endorsements\n", args.store.display());
    }
    let fault = |fault: &UnreadableFile| json!({ "file": fault.name, "reason": fault.reason });
    let faults: Vec<Value> = faults.iter().map(fault).collect();
    let json = json!({ "documents": document_rows(&documents, now), "not_whole": faults });
    CommandReport::new(text, json).print(args.json)
}

/// The documents as JSON, one object for each.
pub(super) fn document_rows(documents: &[Document], now: u64) -> Vec<Value> {
    let row = |document: &Document| {
        json!({
            "document": document.key.to_string(),
            "service": document.service,
            "number": document.number,
            "issued": document.issued,
            "until": document.until,
            "holds": (document.issued..=document.until).contains(&now),
            "left_s": document.until.saturating_sub(now),
            "fetched_at": document.fetched_at,
            "bytes": document.content.len(),
        })
    };
    documents.iter().map(row).collect()
}

/// The documents as a table, one line for each; the number is that of the list or of the TCB
/// recovery.
pub(super) fn render_document_table(documents: &[Document], now: u64) -> String {
    let mut text = format!(
        "{:<44} {:>10} {:<20} {:<20}  {}\n",
        "document", "number", "issued", "until", "holds"
    );
    for document in documents {
        let name: String = document.key.to_string().chars().take(44).collect();
        let Document { number, issued, until, .. } = document;
        let holds = if now < *issued {
            "not yet".to_owned()
        } else if now > *until {
            "expired".to_owned()
        } else {
            format!("{} days", (until - now) / 86_400)
        };
        let [issued, until] = [*issued, *until].map(|at| UnixSeconds(at).utc().to_string());
        let _ = writeln!(text, "{name:<44} {number:>10} {issued:<20} {until:<20}  {holds}");
    }
    text
}
