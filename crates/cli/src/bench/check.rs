//! `confide bench check`.

use std::{path::PathBuf, process::ExitCode};

use confide_bench::{
    CheckOptions, CheckOutcome, LoadedRecord, check_against_baselines, check_record,
};

use super::{
    failure::explain_error,
    status::{FAILED, UNDECIDED, UNRELIABLE},
};
use crate::{error::CliError, process};

/// Checks a record against its suite's gates, or its headline rows against their margins; the exit status is the
/// verdict, for CI.
///
/// Gates are limits that a suite sets for chosen rows. If a suite has gates, only they are checked, unless --metric or
/// --margin selects other rows.
///
/// Exit status:
///   0  every checked row is within its gate or margin, or cheaper
///   1  at least one checked row is outside
///   2  the record cannot be read, or an argument is wrong
///   3  invalid: the A/A rows found a difference between identical arms, or the chain of hashes differs
///   4  undecided: an interval crosses a limit; fewer than ten blocks; a row is missing; most runs were disturbed
///
/// The worst verdict counts: 3, then 1, then 4, then 0.
///
/// With --baseline the costs (ratios of arms within a run) are compared with those of earlier records. The machine's
/// speed cancels out of these ratios. The variation from run to run does not; it is estimated from the baselines.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// A folder that `bench run` wrote, or a record.json
    record: PathBuf,
    /// The margin, instead of the suite's: `2%` or `0.02`
    #[arg(long, value_parser = parse_margin)]
    margin: Option<f64>,
    /// Only this metric, headline or not
    #[arg(long)]
    metric: Option<String>,
    /// Only this bench
    #[arg(long)]
    bench: Option<String>,
    /// Compare the costs with those of an earlier record of the same suite and machine; may be repeated: several
    /// baselines show how much identical runs differ
    #[arg(long, value_name = "RECORD")]
    baseline: Vec<PathBuf>,
    /// Also count a row as outside if it is cheaper by more than its margin
    #[arg(long)]
    both_ways: bool,
    /// Give a verdict even though more than half of the runs were disturbed
    #[arg(long)]
    accept_disturbed: bool,
    /// The end of the record's chain of hashes, or its first 16 digits or more, as `bench run` printed it
    #[arg(long, value_name = "HEX")]
    chain: Option<String>,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<ExitCode, CliError> {
    let options = CheckOptions {
        margin: args.margin,
        metric: args.metric.clone(),
        bench: args.bench.clone(),
        both_ways: args.both_ways,
        chain: args.chain.clone(),
        accept_disturbed: args.accept_disturbed,
    };
    let record = LoadedRecord::read(&args.record).map_err(explain_error)?;
    let result = if args.baseline.is_empty() {
        check_record(&record, &options)
    } else {
        let read = |path: &PathBuf| LoadedRecord::read(path).map_err(explain_error);
        let baselines: Vec<LoadedRecord> =
            args.baseline.iter().map(read).collect::<Result<_, _>>()?;
        check_against_baselines(&record, &baselines, &options)
    }
    .map_err(explain_error)?;
    let text = if args.json { result.json().map_err(CliError::new)? } else { result.text() };
    process::print_text(&text)?;
    Ok(match result.checked {
        CheckOutcome::Within => ExitCode::SUCCESS,
        CheckOutcome::Outside => ExitCode::from(FAILED),
        CheckOutcome::Invalid => ExitCode::from(UNRELIABLE),
        CheckOutcome::Undecided => ExitCode::from(UNDECIDED),
    })
}

/// Reads a margin: `2%`, `2 %` or `0.02`.
fn parse_margin(text: &str) -> Result<f64, String> {
    let (number, scale) = match text.trim().strip_suffix('%') {
        Some(percent) => (percent.trim(), 0.01),
        None => (text.trim(), 1.0),
    };
    let margin = number.parse::<f64>().map_err(|error| error.to_string())? * scale;
    if margin > 0.0 && margin < 1.0 {
        Ok(margin)
    } else {
        Err(format!("wanted a margin between 0 and 100 %, got {text}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_margin_is_a_share_or_a_percentage() {
        assert_eq!(parse_margin("2%"), Ok(0.02));
        assert_eq!(parse_margin("0.5 %"), Ok(0.005));
        assert_eq!(parse_margin("0.02"), Ok(0.02));
        assert!(
            parse_margin("2").is_err()
                && parse_margin("-1%").is_err()
                && parse_margin("x").is_err()
        );
    }
}
