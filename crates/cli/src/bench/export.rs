//! `confide bench export`.

use std::{
    fs::File,
    io::{BufWriter, IsTerminal},
    path::PathBuf,
    process::ExitCode,
};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use confide_store::{ExportFormat, TableName, export};

use super::failure::{explain_store_error, read_record};
use crate::error::CliError;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// A folder that `bench run` wrote, a record.json, or a record.json.gz
    #[arg(value_name = "RECORD")]
    record: PathBuf,
    /// The format: json is the whole run as one document, bencher is Bencher's metric format, csv and
    /// parquet are a table
    #[arg(long, value_parser = PossibleValuesParser::new(["json", "csv", "parquet", "bencher"]).try_map(parse_format))]
    format: ExportFormat,
    /// The table of csv and parquet: the run's rows, or every number of every sample
    #[arg(long, default_value = "rows",
          value_parser = PossibleValuesParser::new(["rows", "samples"]).try_map(parse_table))]
    table: TableName,
    /// Write to this file instead of to standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

pub(super) fn run(args: &Args) -> Result<ExitCode, CliError> {
    let (format, table) = (args.format, args.table);
    let loaded = read_record(&args.record)?;
    match &args.out {
        Some(path) => {
            let file = File::create(path).map_err(|error| {
                CliError::new(format!("cannot create {}: {error}", path.display()))
            })?;
            export(&loaded, format, table, BufWriter::new(file)).map_err(explain_store_error)?;
        }
        None if format == ExportFormat::Parquet && std::io::stdout().is_terminal() => {
            return Err(CliError::new(
                "parquet is binary: wanted a file or a pipe, got a terminal",
            )
            .with_hint("add --out FILE"));
        }
        None => export(&loaded, format, table, std::io::stdout()).map_err(explain_store_error)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads a value of `--format`.
fn parse_format(name: String) -> Result<ExportFormat, String> {
    match name.as_str() {
        "json" => Ok(ExportFormat::Json),
        "csv" => Ok(ExportFormat::Csv),
        "parquet" => Ok(ExportFormat::Parquet),
        "bencher" => Ok(ExportFormat::Bencher),
        _ => Err(format!("wanted json, csv, parquet or bencher, got {name}")),
    }
}

/// Reads a value of `--table`.
fn parse_table(name: String) -> Result<TableName, String> {
    match name.as_str() {
        "rows" => Ok(TableName::Rows),
        "samples" => Ok(TableName::Samples),
        _ => Err(format!("wanted rows or samples, got {name}")),
    }
}
