//! `confide bench compare`.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use confide_bench::{CompareOptions, LoadedRecord, compare};

use super::{failure::explain_error, status};
use crate::{error::CliError, process};

/// The most records in a folder of a side: one with more was given by mistake.
const RECORDS_MAX: usize = 1_000;

/// Each of A and B is a record, a folder that `bench run` wrote, or a folder of such folders.
///
/// A is the reference, for instance the machine with the TEE off; a cost is B's figure over A's. With
/// one record on a side, the effect of the machine cannot be separated from that of the treatment: the
/// difference is printed without an interval, as `confounded: machine`. Give several records for each
/// side (boots or machines, with --a and --b or as folders of records): intervals come from resampling
/// them.
///
/// Exit status: 0 if at least one row was compared, 4 if none was (the reasons are printed), 2 if a
/// record cannot be read.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// Two records: A, then B
    #[arg(num_args = 0..=2, value_name = "RECORD")]
    records: Vec<PathBuf>,
    /// A further record of side A; may be repeated
    #[arg(long, value_name = "RECORD")]
    a: Vec<PathBuf>,
    /// A further record of side B; may be repeated
    #[arg(long, value_name = "RECORD")]
    b: Vec<PathBuf>,
    /// Only this metric, headline or not
    #[arg(long)]
    metric: Option<String>,
    /// Only this bench
    #[arg(long)]
    bench: Option<String>,
    /// Every metric, not only the headline ones
    #[arg(long)]
    all: bool,
    /// Print everything as JSON
    #[arg(long, conflicts_with = "markdown")]
    json: bool,
    /// Print the tables as Markdown
    #[arg(long)]
    markdown: bool,
    /// Also write a page to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Compare records of different processors, although their ratios do not measure an overhead
    #[arg(long)]
    dangerous_across_hardware: bool,
    /// Compare records of different versions of the measured software
    #[arg(long)]
    dangerous_across_versions: bool,
}

pub(super) fn run(args: &Args) -> Result<ExitCode, CliError> {
    let (first, second) = match args.records.as_slice() {
        [] => (None, None),
        [a, b] => (Some(a), Some(b)),
        _ => {
            return Err(CliError::new("wanted two records, A and B, got one").with_hint(
                "confide bench compare A B, or --a A --b B with each option once for every record",
            ));
        }
    };
    let a = load_records(first, &args.a)?;
    let b = load_records(second, &args.b)?;
    let options = CompareOptions {
        metric: args.metric.clone(),
        bench: args.bench.clone(),
        all: args.all,
        dangerous_across_hardware: args.dangerous_across_hardware,
        dangerous_across_versions: args.dangerous_across_versions,
    };
    let comparison = compare(&a, &b, &options);
    if let Some(path) = &args.html {
        std::fs::write(path, comparison.html())
            .map_err(|error| CliError::new(format!("cannot write {}: {error}", path.display())))?;
    }
    let text = match (args.json, args.markdown) {
        (true, _) => comparison.json().map_err(CliError::new)?,
        (_, true) => comparison.markdown(),
        _ => comparison.text(),
    };
    process::print_text(&text)?;
    Ok(if comparison.has_compared_rows() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(status::UNDECIDED)
    })
}

fn load_records(first: Option<&PathBuf>, more: &[PathBuf]) -> Result<Vec<LoadedRecord>, CliError> {
    let mut loaded = Vec::new();
    for path in first.into_iter().chain(more) {
        for record in find_records(path)? {
            loaded.push(LoadedRecord::read(&record).map_err(explain_error)?);
        }
    }
    Ok(loaded)
}

/// The path itself, or for a folder without a record the folders in it that have one, in the order of their names.
fn find_records(path: &Path) -> Result<Vec<PathBuf>, CliError> {
    let has_record = |folder: &Path| {
        ["record.json", "record.json.gz", "samples.jsonl"].iter().any(|f| folder.join(f).exists())
    };
    if !path.is_dir() || has_record(path) {
        return Ok(vec![path.to_owned()]);
    }
    let shown = path.display();
    let cannot = |error| CliError::new(format!("cannot read {shown}: {error}"));
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path).map_err(cannot)? {
        let folder = entry.map_err(cannot)?.path();
        if folder.is_dir() && has_record(&folder) {
            found.push(folder);
        }
    }
    found.sort();
    if found.is_empty() || found.len() > RECORDS_MAX {
        let message = format!(
            "{shown}: wanted 1 to {RECORDS_MAX} folders with a record, got {}",
            found.len()
        );
        return Err(CliError::new(message)
            .with_hint("a record is a folder that `confide bench run --out DIR` wrote"));
    }
    Ok(found)
}
