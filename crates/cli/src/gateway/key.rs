//! `confide gateway key`: API keys for the clients of a gateway.

use std::process::ExitCode;

use clap::Subcommand;
use confide_gateway::{
    API_KEY_RANDOM_BYTES, ApiKeyDigest, KEY_NAME_WANTED, format_api_key, is_key_name,
};
use zeroize::Zeroizing;

use crate::{error::CliError, process};

/// The subcommands of `confide gateway key`.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Print a new API key, and the table for the gateway's key file, which holds only its digest.
    New(NewArgs),
}

/// The arguments of `confide gateway key new`.
#[derive(clap::Args)]
pub(crate) struct NewArgs {
    /// The name of the key in the usage file: 1 to 64 letters, digits, `-`, `_` or `.`
    #[arg(long, value_name = "NAME", value_parser = parse_key_name)]
    name: String,
}

pub(crate) fn run(command: Command) -> Result<ExitCode, CliError> {
    let Command::New(NewArgs { name }) = command;
    let mut random = Zeroizing::new([0; API_KEY_RANDOM_BYTES]);
    getrandom::fill(random.as_mut())
        .map_err(|error| CliError::new(format!("no random bytes: {error}")))?;
    process::print_text(&describe_key(&random, &name))?;
    Ok(ExitCode::SUCCESS)
}

/// The key on a line of its own, and its table.
fn describe_key(random: &[u8; API_KEY_RANDOM_BYTES], name: &str) -> Zeroizing<String> {
    let key = format_api_key(random);
    let sha256 = ApiKeyDigest::of_key(key.as_bytes()).to_hex();
    Zeroizing::new(format!(
        "{}\n\n[[key]]\nname = \"{name}\"\nsha256 = \"{sha256}\"\n",
        key.as_str()
    ))
}

fn parse_key_name(text: &str) -> Result<String, String> {
    if is_key_name(text) { Ok(text.to_owned()) } else { Err(format!("wanted {KEY_NAME_WANTED}")) }
}

#[cfg(test)]
mod tests {
    use confide_gateway::KeySet;

    use super::*;

    #[test]
    fn the_table_of_a_new_key_is_one_of_a_key_file() {
        let text = describe_key(&[7; API_KEY_RANDOM_BYTES], "team-a");
        let (key, table) = text.split_once("\n\n").unwrap();
        assert_eq!(key, "ck-BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc");
        assert_eq!(KeySet::parse(table).unwrap().len(), 1);
        assert!(table.contains(&ApiKeyDigest::of_key(key.as_bytes()).to_hex()));
        assert!(parse_key_name("team a").is_err());
    }
}
