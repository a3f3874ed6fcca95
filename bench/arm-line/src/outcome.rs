//! Results of an arm's work, and how its process ends.

use std::{error::Error, fs, path::Path, process::ExitCode};

/// An arm's error: a text for the person who reads the arm's log.
pub type ArmError = Box<dyn Error + Send + Sync>;

/// A result of an arm's work.
pub type Outcome<T = ()> = Result<T, ArmError>;

/// The exit status of an arm's process: 0 after success; after a failure 2, with the reason printed on
/// standard error.
pub fn exit_code(program: &str, outcome: Outcome) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{program}: {error}");
            ExitCode::from(2)
        }
    }
}

/// Reads a whole file.
///
/// # Errors
/// When it cannot be read; the path is named.
pub fn read_file(path: &Path) -> Outcome<Vec<u8>> {
    fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()).into())
}
