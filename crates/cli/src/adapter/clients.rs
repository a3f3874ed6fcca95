//! Lists of the clients of adapter hosts and notaries.

use std::path::Path;

use confide_lora::host::ClientList;

use crate::error::CliError;

/// Reads a list of clients: names, each with the SHA-256 of its credential.
pub(crate) fn read_clients(path: &Path) -> Result<ClientList, CliError> {
    ClientList::read(path).map_err(CliError::in_file(path))
}
