//! `confide bench export`.

use std::{
    fs::File,
    io::{BufWriter, IsTerminal},
    path::PathBuf,
    process::ExitCode,
};

use confide_bench::Loaded;
use confide_store::{Format, TableName, export};

use super::{explained, index::shown};
use crate::error::CliError;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// A folder that `bench run` wrote, a record.json, or a record.json.gz
    #[arg(value_name = "RECORD")]
    record: PathBuf,
    /// json: the whole run as one document; bencher: Bencher's metric format; csv and parquet: a table
    #[arg(long)]
    format: Formats,
    /// Of csv and parquet: its rows, or every number of every sample
    #[arg(long, default_value = "rows")]
    table: Tables,
    /// Where to write, instead of to standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Formats {
    Json,
    Csv,
    Parquet,
    Bencher,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Tables {
    Rows,
    Samples,
}

pub(super) fn run(args: &Args) -> Result<ExitCode, CliError> {
    let format = match args.format {
        Formats::Json => Format::Json,
        Formats::Csv => Format::Csv,
        Formats::Parquet => Format::Parquet,
        Formats::Bencher => Format::Bencher,
    };
    let table = match args.table {
        Tables::Rows => TableName::Rows,
        Tables::Samples => TableName::Samples,
    };
    let loaded = Loaded::read(&args.record).map_err(explained)?;
    match &args.out {
        Some(path) => {
            let file = File::create(path).map_err(|error| {
                CliError::new(format!("cannot create {}: {error}", path.display()))
            })?;
            export(&loaded, format, table, BufWriter::new(file)).map_err(shown)?;
        }
        None if format == Format::Parquet && std::io::stdout().is_terminal() => {
            return Err(CliError::new("parquet is not for a terminal").hint("--out FILE"));
        }
        None => export(&loaded, format, table, std::io::stdout()).map_err(shown)?,
    }
    Ok(ExitCode::SUCCESS)
}
