//! `confide bench index`, `list` and `query`.

use std::{path::PathBuf, process::ExitCode};

use confide_evidence::UnixSeconds;
use confide_store::{AddOutcome, Index, Query, RowLine};

use super::failure::{explain_error, explain_store_error, read_record};
use crate::error::CliError;

/// The index that is used without `--store`.
const STORE: &str = "bench-index.sqlite";

#[derive(clap::Args)]
pub(crate) struct StoreArgs {
    /// The index: a SQLite file, or postgres://user@host/database
    #[arg(long, value_name = "PATH|URL", default_value = STORE)]
    store: String,
}

#[derive(clap::Args)]
pub(crate) struct IndexArgs {
    /// Folders that `bench run` wrote, one record each, or folders of such folders
    #[arg(required = true, value_name = "DIR")]
    folders: Vec<PathBuf>,
    #[command(flatten)]
    store: StoreArgs,
}

#[derive(clap::Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    selection: SelectionArgs,
}

#[derive(clap::Args)]
pub(crate) struct QueryArgs {
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    selection: SelectionArgs,
    /// Only rows of this bench
    #[arg(long, value_name = "NAME", default_value = "")]
    bench: String,
    /// Only rows of this arm
    #[arg(long, value_name = "NAME", default_value = "")]
    arm: String,
    /// Only rows of this metric, such as ttft_ms
    #[arg(long, value_name = "NAME", default_value = "")]
    metric: String,
    /// List A/A rows too
    #[arg(long)]
    twins: bool,
}

#[derive(clap::Args)]
struct SelectionArgs {
    /// Only records of this suite
    #[arg(long, value_name = "NAME", default_value = "")]
    suite: String,
    /// Only records of machines whose line contains this, such as a processor's name
    #[arg(long, value_name = "TEXT", default_value = "")]
    machine: String,
    /// Only records whose run started on or after this day (UTC)
    #[arg(long, value_name = "YYYY-MM-DD", value_parser = parse_day, default_value = "1970-01-01")]
    since: u64,
}

impl SelectionArgs {
    fn to_query(&self) -> Query {
        Query {
            suite: self.suite.clone(),
            machine: self.machine.clone(),
            since_unix_s: self.since,
            ..Query::default()
        }
    }
}

/// Adds records.
pub(super) fn run_index(args: &IndexArgs) -> Result<ExitCode, CliError> {
    let mut index = open_index(&args.store)?;
    for folder in &args.folders {
        for record in confide_bench::list_record_folders(folder).map_err(explain_error)? {
            let loaded = read_record(&record)?;
            let facts = loaded.facts();
            let path = loaded.path().display().to_string();
            let added = match index.add(&facts, &path).map_err(explain_store_error)? {
                AddOutcome::Added => "added",
                AddOutcome::Present => "known",
            };
            println!("{added}  {}  {:<12} {path}", &facts.sha256[..12], facts.suite);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints records.
pub(super) fn run_list(args: &ListArgs) -> Result<ExitCode, CliError> {
    let mut index = open_index(&args.store)?;
    for line in index.list(&args.selection.to_query()).map_err(explain_store_error)? {
        let partial = if line.partial.is_some() { ", partial" } else { "" };
        println!(
            "{}  {}  {:<12} {}{partial}, {} rows, {:.0} s, {}; {}; {}",
            format_date(line.started_unix_s),
            &line.sha256[..12.min(line.sha256.len())],
            line.suite,
            line.validity,
            line.rows,
            line.wall_s,
            line.version,
            line.machine,
            line.path,
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints rows over records, one arm and metric after the other, the newest first.
pub(super) fn run_query(args: &QueryArgs) -> Result<ExitCode, CliError> {
    let mut index = open_index(&args.store)?;
    let query = Query {
        bench: args.bench.clone(),
        arm: args.arm.clone(),
        metric: args.metric.clone(),
        twins: args.twins,
        ..args.selection.to_query()
    };
    let mut last = String::new();
    for row in index.rows(&query).map_err(explain_store_error)? {
        let head = render_row_heading(&row);
        if head != last {
            println!("{head}");
            last = head;
        }
        println!(
            "  {}  {}  {}",
            format_date(row.started_unix_s),
            &row.sha256[..12],
            render_figures(&row)
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn render_row_heading(row: &RowLine) -> String {
    let case = if row.case.is_empty() { String::new() } else { format!(", {}", row.case) };
    let twin = if row.twin { " (A/A)" } else { "" };
    let (bench, arm, stat, metric) = (&row.bench, &row.arm, &row.stat, &row.metric);
    format!("{bench}{case}: {stat} {metric} of {arm}{twin}, against {}", row.reference)
}

fn render_figures(row: &RowLine) -> String {
    let (Some(clear), Some(protected)) = (row.clear, row.protected) else {
        return "no figure: a percentile without a tail".into();
    };
    let estimate = |[value, low, high]: [Option<f64>; 3], sign: &str| match (value, low, high) {
        (Some(value), Some(low), Some(high)) => format!("{sign}{value:.4} [{low:.4}, {high:.4}]"),
        (Some(value), ..) => format!("{sign}{value:.4}, no interval: {}", row.blocks),
        _ => "no ratio".into(),
    };
    // Both, because the index does not say by which of the two a row was judged.
    let difference = estimate(row.difference, "");
    let cost = match row.ratio[0] {
        Some(_) => format!("{}, difference {difference}", estimate(row.ratio, "x")),
        None => difference,
    };
    let simulated = if row.simulated { ", simulated" } else { "" };
    let record = if row.validity == "valid" { "" } else { ", record not valid" };
    format!("{clear:.4} -> {protected:.4}  {cost}  {}{simulated}{record}", row.verdict)
}

fn open_index(store: &StoreArgs) -> Result<Box<dyn Index>, CliError> {
    confide_store::open_index(&store.store).map_err(explain_store_error)
}

/// Reads `YYYY-MM-DD` and gives the Unix seconds of the day's beginning, by the Gregorian calendar.
fn parse_day(text: &str) -> Result<u64, String> {
    let wrong = || format!("wanted YYYY-MM-DD from 1970 on, got {text}");
    let mut parts = text.splitn(3, '-').map(|part| part.parse::<i64>().ok());
    let mut next = || parts.next().flatten().ok_or_else(wrong);
    let (year, month, day) = (next()?, next()?, next()?);
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return Err(wrong());
    }
    u64::try_from(days_since_epoch(year, month, day) * 86_400).map_err(|_| wrong())
}

/// Days since 1970-01-01: years begin in March, so that the leap day is a year's last.
fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let months = (month + 9) % 12;
    let of_year = (153 * months + 2) / 5 + day - 1;
    year * 365 + year / 4 - year / 100 + year / 400 + of_year - 719_468
}

/// The day of these seconds, `2026-11-22`.
fn format_date(unix_s: i64) -> String {
    // Only a forged record starts before 1970: its number is shown as it stands.
    let Ok(seconds) = u64::try_from(unix_s) else { return unix_s.to_string() };
    let time = UnixSeconds(seconds).utc().to_string();
    time.split('T').next().unwrap_or(&time).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_go_to_seconds_and_back() {
        for (text, seconds) in [
            ("1970-01-01", 0),
            ("1972-02-29", 68_169_600),
            ("2000-12-31", 978_220_800),
            ("2026-11-22", 1_795_305_600),
        ] {
            assert_eq!(parse_day(text), Ok(seconds));
            assert_eq!(format_date(seconds as i64), text);
            assert_eq!(format_date(seconds as i64 + 86_399), text);
        }
        for wrong in ["2026", "2026-13-01", "1969-01-01", "2026-11-x", "today"] {
            assert!(parse_day(wrong).is_err(), "{wrong}");
        }
    }
}
