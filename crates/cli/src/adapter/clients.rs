//! Lists of the clients of adapter hosts and notaries.

use std::path::Path;

use confide_lora::host::{CLIENTS_BYTES_MAX, ClientList};

use crate::{error::CliError, files::read_text};

/// Reads a list of clients: names, each with the SHA-256 of its credential.
pub(crate) fn read_clients(path: &Path) -> Result<ClientList, CliError> {
    let text = read_text(path, CLIENTS_BYTES_MAX, "a list of clients")?;
    let clients = ClientList::parse(&text).map_err(CliError::in_file(path))?;
    if clients.is_empty() {
        return Err(CliError::new(format!("{} names no client", path.display())));
    }
    Ok(clients)
}
