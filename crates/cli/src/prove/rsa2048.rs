//! `confide prove rsa2048`: a signature, the message and the key, from JSON or from their files.

use std::path::PathBuf;

use confide_sigma::PublicKey;
use serde_json::json;

use super::{input, options::ProveOptions};
use crate::{error::CliError, files::read_file};

/// The longest file: a message of 64 KiB, which is the guest's limit; keys and signatures are shorter.
const FILE_BYTES_MAX: u64 = 64 * 1024;

/// The input: JSON, or the files that OpenSSL writes.
#[derive(clap::Args)]
pub(super) struct Args {
    /// The guest's input, JSON.
    #[arg(long, value_name = "FILE", required_unless_present = "key")]
    input: Option<PathBuf>,
    /// The signer: a certificate or a public key, PEM or DER. It is not verified.
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with = "input",
        requires_all = ["message", "signature"]
    )]
    key: Option<PathBuf>,
    /// The message that was signed.
    #[arg(long, value_name = "FILE", requires = "key")]
    message: Option<PathBuf>,
    /// The signature, binary: `openssl dgst -sha256 -sign KEY -out FILE MESSAGE`.
    #[arg(long, value_name = "FILE", requires = "key")]
    signature: Option<PathBuf>,
    #[command(flatten)]
    pub(super) options: ProveOptions,
}

impl Args {
    /// The guest's encoded input.
    pub(super) fn read_guest_input(&self) -> Result<Vec<u8>, CliError> {
        let (key, message, signature) = match (&self.input, &self.key) {
            (Some(path), _) => return input::read_input("rsa2048", path),
            (None, Some(key)) => (key, self.message.as_ref(), self.signature.as_ref()),
            (None, None) => return Err(CliError::new("wanted --input or --key")),
        };
        let modulus = read_modulus(key)?;
        let read = |path: Option<&PathBuf>| match path {
            Some(path) => read_file(path, FILE_BYTES_MAX),
            None => Err(CliError::new("wanted --message and --signature with --key")),
        };
        let json = json!({
            "message_hex": hex::encode(read(message)?),
            "modulus": hex::encode(modulus),
            "signature": hex::encode(read(signature)?),
        });
        input::encode_input("rsa2048", json.to_string().as_bytes(), &key.display().to_string())
    }
}

/// The modulus of an RSA-2048 key with the exponent 65537.
fn read_modulus(path: &std::path::Path) -> Result<Vec<u8>, CliError> {
    let bytes = read_file(path, FILE_BYTES_MAX)?;
    let shown = path.display();
    let key = PublicKey::from_certificate(&bytes).or_else(|_| PublicKey::from_spki(&bytes));
    let key = key.map_err(|error| {
        CliError::new(format!("{shown}: {error}"))
            .with_hint("give a certificate or a public key (PEM, `openssl pkey -pubout`)")
    })?;
    match key.rsa_modulus() {
        Some(modulus) if modulus.len() == confide_statement::MODULUS_BYTES => Ok(modulus),
        _ => Err(CliError::new(format!("{shown}: wanted an RSA-2048 key, got {}", key.name()))
            .with_hint(
                "`confide prove signature` takes RSA to 4096 bits and ECDSA, without the zkVM",
            )),
    }
}
