//! Inputs that several verifications share.

use std::path::Path;

use confide_evidence::{
    ParseError, ReportData, certificate::Certificate, gpu::DeviceCertificate, pem,
    snp::AmdCertificate,
};
use confide_verifier::{POLICY_LENGTH_MAX, Policy, Roots};

use crate::{
    error::CliError,
    files::{ROOT_BYTES_MAX, read_file},
    policy::file,
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
    let explain = |reason: String| CliError::in_file(path)(reason).with_hint(file::HINT);
    let bytes = read_file(path, POLICY_LENGTH_MAX as u64)?;
    let text = String::from_utf8(bytes).map_err(|_| explain("policy is not UTF-8".into()))?;
    Policy::from_toml(&text).map_err(|error| explain(file::describe_error(&error)))
}

/// Reads a root certificate of any vendor, DER or one PEM certificate; gives its DER.
pub(super) fn read_root(path: &Path) -> Result<Vec<u8>, CliError> {
    const SUBJECT: &str = "root certificate";
    let bytes = read_file(path, ROOT_BYTES_MAX)?;
    let explain = |error: ParseError| {
        CliError::in_file(path)(error).with_hint("--root takes one certificate, DER or PEM")
    };
    let der = if bytes.trim_ascii_start().starts_with(b"-----BEGIN") {
        match &mut pem::decode_chain(SUBJECT, &bytes).map_err(explain)?[..] {
            [der] => std::mem::take(der),
            _ => return Err(explain(ParseError::TooMany { subject: SUBJECT, limit: 1 })),
        }
    } else {
        bytes
    };
    match Certificate::parse(SUBJECT, &der) {
        Err(error)
            if AmdCertificate::parse(SUBJECT, &der).is_err()
                && DeviceCertificate::parse(SUBJECT, &der).is_err() =>
        {
            Err(explain(error))
        }
        _ => Ok(der),
    }
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
