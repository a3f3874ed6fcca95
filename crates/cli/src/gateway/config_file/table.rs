//! Reads parts of a table of the file.

use serde::de::DeserializeOwned;
use toml::{Table, Value};

/// Removes a key from a table and reads its value.
pub(super) fn take_key<T: DeserializeOwned>(
    table: &mut Table,
    key: &str,
) -> Result<Option<T>, String> {
    let value = table.remove(key);
    value
        .map(|value| {
            value.try_into().map_err(|error: toml::de::Error| format!("{key}: {}", error.message()))
        })
        .transpose()
}

/// Reads a whole table.
pub(super) fn parse_table<T: DeserializeOwned>(table: Table) -> Result<T, String> {
    Value::Table(table).try_into().map_err(|error: toml::de::Error| error.message().to_owned())
}
