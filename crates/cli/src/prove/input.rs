//! Inputs of the guests: JSON in, the guest's own encoding out.

use std::path::Path;

use confide_prover::INPUT_BYTES_MAX;
use serde::Deserialize;

use crate::error::{CliError, read_file};

/// Longest input as JSON: hexadecimal doubles the bytes, and numbers of a list take up to 12 characters.
const JSON_BYTES_MAX: u64 = 4 * INPUT_BYTES_MAX as u64;

/// Reads a guest's input.
pub(super) fn read(guest: &str, path: &Path) -> Result<Vec<u8>, CliError> {
    let text = read_file(path, JSON_BYTES_MAX)?;
    let encoded = match guest {
        "fibonacci" => parsed::<Fibonacci>(&text).map(|input| input.encode()),
        _ => Err("no such guest".to_string()),
    };
    encoded.map_err(|error| {
        CliError::new(format!("{}: input of {guest} is malformed: {error}", path.display()))
            .hint("docs/prove.md shows the input of each guest")
    })
}

fn parsed<'a, T: Deserialize<'a>>(text: &'a [u8]) -> Result<T, String> {
    serde_json::from_slice(text).map_err(|error| error.to_string())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fibonacci {
    n: u32,
}

impl Fibonacci {
    fn encode(&self) -> Vec<u8> {
        self.n.to_le_bytes().to_vec()
    }
}
