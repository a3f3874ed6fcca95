//! `confide bench seeds`.

use std::{path::PathBuf, process::ExitCode};

use confide_bench::LoadedRecord;

use super::{failure::explain_error, status::FAILED};
use crate::{error::CliError, process};

/// Makes docs/seeds.md from records: each figure of five published reports, next to ours.
///
/// A row of ours counts only if it has exactly the requested params. Exit status 1 if a row has no exact
/// answer; standard error names it.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Records: folders that `bench run` wrote, or their record files. If several records have a row,
    /// the newest valid record is used
    #[arg(value_name = "RECORD")]
    records: Vec<PathBuf>,
    /// Write the document to this file instead of to standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

pub(super) fn run(args: &Args) -> Result<ExitCode, CliError> {
    let records: Result<Vec<LoadedRecord>, _> =
        args.records.iter().map(|path| LoadedRecord::read(path)).collect();
    let document = confide_bench::render_published_reports(
        &records.map_err(explain_error)?,
        &reproduction_command(args),
    )
    .map_err(explain_error)?;
    match &args.out {
        None => process::print_text(&document.text)?,
        Some(path) => std::fs::write(path, &document.text).map_err(|error| {
            CliError::new(format!("cannot write {}: {error}", path.display()))
                .with_hint("give a file in a folder that exists")
        })?,
    }
    for row in &document.unanswered {
        eprintln!("no exact answer: {row}");
    }
    Ok(if document.unanswered.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
}

/// The command that makes the same document again.
fn reproduction_command(args: &Args) -> String {
    let mut words = vec!["confide bench seeds".to_owned()];
    words.extend(args.records.iter().map(|path| path.display().to_string()));
    if let Some(out) = &args.out {
        words.push(format!("--out {}", out.display()));
    }
    words.join(" ")
}
