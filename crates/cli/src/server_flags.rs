//! The flags that several servers have alike.

use std::{net::SocketAddr, process::ExitCode};

use tokio::net::TcpListener;

use crate::{
    address::parse_listen_address, attest::arguments::ServerEvidenceArgs, error::CliError, process,
};

/// The address of a server of plain HTTP, which is on loopback by default.
#[derive(clap::Args)]
pub(crate) struct PlainServerArgs {
    /// Address to listen at; port 0 takes any free one
    #[arg(long, value_name = "ADDR:PORT", value_parser = parse_listen_address,
          default_value = "127.0.0.1:0")]
    listen: SocketAddr,
}

impl PlainServerArgs {
    /// Listens at the address. Beyond loopback the operator is warned that the bytes which
    /// `exposed` names are not protected.
    pub(crate) async fn listen(
        &self,
        exposed: Option<&str>,
    ) -> Result<(TcpListener, SocketAddr), CliError> {
        let (listener, address) = process::listen(self.listen).await?;
        if let Some(exposed) = exposed.filter(|_| !address.ip().is_loopback()) {
            tracing::warn!("{address} is not loopback: {exposed} travel in the clear");
        }
        Ok((listener, address))
    }
}

/// What every attested server of HTTP has: its evidence, and the names in its certificate.
#[derive(clap::Args, Debug)]
pub(crate) struct AttestedServerArgs {
    #[command(flatten)]
    pub(crate) evidence: ServerEvidenceArgs,
    /// An additional name in the certificate; may be given several times
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Vec<String>,
}

/// Prints the digest of a server's configuration, which ends the command.
pub(crate) fn print_configuration_digest(digest: [u8; 32]) -> Result<ExitCode, CliError> {
    process::print_text(&format!("{}\n", hex::encode(digest)))?;
    Ok(ExitCode::SUCCESS)
}
