//! `confide bench schema`.

use std::process::ExitCode;

use crate::error::CliError;

/// Prints the JSON Schema of `record.json`.
pub(super) fn run() -> Result<ExitCode, CliError> {
    let text = serde_json::to_string_pretty(&confide_bench::record_schema())
        .map_err(|error| CliError::new(format!("cannot write the schema: {error}")))?;
    println!("{text}");
    Ok(ExitCode::SUCCESS)
}
