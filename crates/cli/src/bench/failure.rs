//! Failures of the instrument and of the index, each with a hint on how to fix it.

use std::path::Path;

use confide_bench::{BenchError, LoadedRecord};
use confide_store::StoreError;

use crate::error::CliError;

/// Reads a record, and prints on standard error what a reader must know of its origin.
pub(super) fn read_record(path: &Path) -> Result<LoadedRecord, CliError> {
    let loaded = LoadedRecord::read(path).map_err(explain_error)?;
    for remark in loaded.remarks() {
        eprintln!("note: {}: {remark}", path.display());
    }
    Ok(loaded)
}

/// Adds a hint to an error of the instrument, where there is one.
pub(super) fn explain_error(error: BenchError) -> CliError {
    let hint = match &error {
        BenchError::NoSuchProgram { .. } => {
            Some("`make build` puts the arms into this program's folder, which is searched first")
        }
        BenchError::Record { .. } => {
            Some("a record is a folder that `confide bench run --out DIR` wrote")
        }
        BenchError::Changed { .. } => Some("measure again, or use the original copy of the record"),
        BenchError::SuiteSyntax { .. } | BenchError::SuiteMeaning { .. } => {
            Some("see bench/suites for valid suites; unknown keys are errors")
        }
        BenchError::FolderInUse { .. } => Some("wait for it to end, or choose another --out"),
        BenchError::MachineInUse => {
            Some("wait for it to end; `bench run --dangerous-beside-another` measures anyway")
        }
        BenchError::Resume { .. } => {
            Some("omit --resume to start a new run; the earlier record is kept under `earlier`")
        }
        BenchError::Service { .. } | BenchError::Prepare { .. } => {
            Some("see its standard error in the folder `log` of the output folder")
        }
        _ => None,
    };
    let failure = CliError::new(error);
    match hint {
        Some(hint) => failure.with_hint(hint),
        None => failure,
    }
}

/// Adds a hint to an error of an index or an export, where there is one.
pub(super) fn explain_store_error(error: StoreError) -> CliError {
    match error {
        StoreError::Record(error) => explain_error(error),
        error @ (StoreError::Postgres(_) | StoreError::Late { .. }) => {
            CliError::new(error).with_hint("--store takes postgres://user:password@host/database")
        }
        error => CliError::new(error),
    }
}
