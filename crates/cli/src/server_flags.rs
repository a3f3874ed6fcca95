//! The flags that several servers have alike.

use std::{net::SocketAddr, path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

use confide_evidence::Attest;
use tokio::net::TcpListener;

use crate::{
    address::parse_listen_address, attest::arguments::AttesterArgs, error::CliError,
    features::NO_ATTESTER_HINT, process,
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

/// The evidence of an attested server, and the life of the key that it binds.
#[derive(clap::Args, Debug)]
pub(crate) struct ServerEvidenceArgs {
    #[command(flatten)]
    pub(crate) attester: AttesterArgs,
    /// Staple this collateral instead of the attester's own
    #[arg(long, value_name = "FILE")]
    collateral: Option<PathBuf>,
    /// Seconds after which a new key replaces the current one
    #[arg(long, value_name = "N", default_value_t = 3600,
          value_parser = clap::value_parser!(u64).range(60..=604_800))]
    key_validity_s: u64,
}

impl ServerEvidenceArgs {
    /// Opens the attester that the arguments name. `server` is the subject of the refusal where they name none, and
    /// `alternative` what else would do.
    pub(crate) fn open_attester(
        &self,
        server: &str,
        alternative: &str,
    ) -> Result<Arc<dyn Attest>, CliError> {
        self.attester.open_attester(self.collateral.as_deref())?.ok_or_else(|| {
            CliError::new(format!("{server} has no attester"))
                .with_hint(format!("{NO_ATTESTER_HINT}{alternative}"))
        })
    }

    /// The life of a key.
    pub(crate) fn key_validity(&self) -> Duration {
        Duration::from_secs(self.key_validity_s)
    }
}

/// The names in the certificate of an attested server: those of this machine, and `more` of its operator's.
pub(crate) fn certificate_names(listen: SocketAddr, more: &[String]) -> Vec<String> {
    let mut names = vec!["localhost".to_owned()];
    if !listen.ip().is_unspecified() {
        names.push(listen.ip().to_string());
    }
    names.extend(more.iter().cloned());
    names.dedup();
    names
}

/// Prints the digest of a server's configuration, which ends the command.
pub(crate) fn print_configuration_digest(digest: [u8; 32]) -> Result<ExitCode, CliError> {
    process::print_text(&format!("{}\n", hex::encode(digest)))?;
    Ok(ExitCode::SUCCESS)
}
