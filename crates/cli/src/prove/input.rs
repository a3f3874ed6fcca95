//! Inputs of the guests, from JSON to each guest's own encoding.

use std::path::Path;

use confide_guest_programs::host::input_from_json;
use confide_prover::INPUT_BYTES_MAX;

use crate::{error::CliError, files::read_file};

/// The longest input as JSON: hexadecimal doubles the bytes, and numbers of a list take up to 12 characters.
pub(super) const JSON_BYTES_MAX: u64 = 4 * INPUT_BYTES_MAX as u64;

/// Reads a guest's input.
pub(crate) fn read_input(guest: &str, path: &Path) -> Result<Vec<u8>, CliError> {
    let json = read_file(path, JSON_BYTES_MAX)?;
    encode_input(guest, &json, &path.display().to_string())
}

/// Encodes an input; `from` is its source, for errors.
pub(super) fn encode_input(guest: &str, json: &[u8], from: &str) -> Result<Vec<u8>, CliError> {
    input_from_json(guest, json).map_err(|error| {
        CliError::new(format!("{from}: {error}"))
            .with_hint("docs/prove.md shows the input of each guest")
    })
}
