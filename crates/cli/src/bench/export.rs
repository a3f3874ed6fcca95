//! `confide bench export`.

use std::{
    fs::File,
    io::{BufWriter, IsTerminal},
    path::PathBuf,
    process::ExitCode,
};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use confide_bench::Loaded;
use confide_store::{Format, TableName, export};

use super::failure::{explain_error, explain_store_error};
use crate::error::CliError;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// A folder that `bench run` wrote, a record.json, or a record.json.gz
    #[arg(value_name = "RECORD")]
    record: PathBuf,
    /// json: the whole run as one document; bencher: Bencher's metric format; csv and parquet: a table
    #[arg(long, value_parser = PossibleValuesParser::new(["json", "csv", "parquet", "bencher"]).map(format_named))]
    format: Format,
    /// Of csv and parquet: its rows, or every number of every sample
    #[arg(long, default_value = "rows", value_parser = PossibleValuesParser::new(["rows", "samples"]).map(table_named))]
    table: TableName,
    /// Where to write, instead of to standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

pub(super) fn run(args: &Args) -> Result<ExitCode, CliError> {
    let (format, table) = (args.format, args.table);
    let loaded = Loaded::read(&args.record).map_err(explain_error)?;
    match &args.out {
        Some(path) => {
            let file = File::create(path).map_err(|error| {
                CliError::new(format!("cannot create {}: {error}", path.display()))
            })?;
            export(&loaded, format, table, BufWriter::new(file)).map_err(explain_store_error)?;
        }
        None if format == Format::Parquet && std::io::stdout().is_terminal() => {
            return Err(CliError::new("parquet is not for a terminal").hint("--out FILE"));
        }
        None => export(&loaded, format, table, std::io::stdout()).map_err(explain_store_error)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The format of a possible value of `--format`.
fn format_named(name: String) -> Format {
    match name.as_str() {
        "csv" => Format::Csv,
        "parquet" => Format::Parquet,
        "bencher" => Format::Bencher,
        _ => Format::Json,
    }
}

/// The table of a possible value of `--table`.
fn table_named(name: String) -> TableName {
    if name == "samples" { TableName::Samples } else { TableName::Rows }
}
