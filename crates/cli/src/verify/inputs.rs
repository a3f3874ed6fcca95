//! Inputs that several verifications share.

use std::path::Path;

use confide_evidence::ReportData;
use confide_verification::{POLICY_HINT, describe_policy_error, parse_root};
use confide_verifier::{POLICY_LENGTH_MAX, Policy, Roots};

use crate::{
    error::CliError,
    files::{ROOT_BYTES_MAX, read_file},
};

/// Exit status where something was judged and rejected.
pub(super) const REJECTED: u8 = 1;
/// Exit status where something could not be judged.
pub(super) const NOT_JUDGED: u8 = 2;

/// Reads the policy for evidence, or gives the default one; `root` replaces its roots.
pub(super) fn read_policy(policy: Option<&Path>, root: Option<&Path>) -> Result<Policy, CliError> {
    let mut policy = match policy {
        None => Policy::default(),
        Some(path) => parse_policy(path)?,
    };
    if let Some(path) = root {
        policy.roots = Roots::from_der(&read_root(path)?);
    }
    Ok(policy)
}

fn parse_policy(path: &Path) -> Result<Policy, CliError> {
    let explain = |reason: String| CliError::in_file(path)(reason).with_hint(POLICY_HINT);
    let bytes = read_file(path, POLICY_LENGTH_MAX as u64)?;
    let text = String::from_utf8(bytes).map_err(|_| explain("policy is not UTF-8".into()))?;
    Policy::from_toml(&text).map_err(|error| explain(describe_policy_error(&error)))
}

/// Reads a root certificate of any vendor, DER or one PEM certificate; gives its DER.
pub(super) fn read_root(path: &Path) -> Result<Vec<u8>, CliError> {
    parse_root(&read_file(path, ROOT_BYTES_MAX)?).map_err(|error| {
        CliError::in_file(path)(error).with_hint("--root takes one certificate, DER or PEM")
    })
}

/// Reads the 64 bytes of a quote's report data, for `clap`.
pub(super) fn parse_report_data(text: &str) -> Result<ReportData, String> {
    parse_hex(text).map(ReportData)
}

/// Reads bytes in hexadecimal, for `clap`.
pub(super) fn parse_hex<const N: usize>(text: &str) -> Result<[u8; N], String> {
    let mut bytes = [0; N];
    hex::decode_to_slice(text, &mut bytes).map_err(|error| {
        format!("wanted {} hexadecimal digits, got {}: {error}", 2 * N, text.len())
    })?;
    Ok(bytes)
}
