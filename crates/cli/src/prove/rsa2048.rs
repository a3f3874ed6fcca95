//! `confide prove rsa2048`: a signature, the message and the key, from JSON or from their files.

use std::path::PathBuf;

use super::{Order, input};
use crate::error::CliError;

/// The input: JSON, or the files that OpenSSL writes.
#[derive(clap::Args)]
pub(super) struct Args {
    /// The guest's input, JSON.
    #[arg(long, value_name = "FILE", required_unless_present = "key")]
    input: Option<PathBuf>,
    /// The signer: a certificate or a public key, PEM.
    #[arg(long, value_name = "PEM-FILE", conflicts_with = "input", requires_all = ["message", "signature"])]
    key: Option<PathBuf>,
    /// The message that was signed.
    #[arg(long, value_name = "FILE", requires = "key")]
    message: Option<PathBuf>,
    /// The signature, binary: `openssl dgst -sha256 -sign KEY -out FILE MESSAGE`.
    #[arg(long, value_name = "FILE", requires = "key")]
    signature: Option<PathBuf>,
    #[command(flatten)]
    pub(super) order: Order,
}

impl Args {
    pub(super) fn input(&self) -> Result<Vec<u8>, CliError> {
        match (&self.input, &self.key, &self.message, &self.signature) {
            (Some(path), ..) => input::read("rsa2048", path),
            _ => Err(CliError::new("wanted --input, or --key, --message and --signature")),
        }
    }
}
