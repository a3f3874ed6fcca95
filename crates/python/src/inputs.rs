//! Policies, roots and numbers, as Python gives them.

use confide_verification::{add_root, parse_root};
use confide_verifier::{POLICY_LENGTH_MAX, Policy, Roots};

use crate::failure::Failure;

/// Reads a policy, TOML.
pub(crate) fn parse_policy(text: &str) -> Result<Policy, Failure> {
    if text.len() > POLICY_LENGTH_MAX {
        let text = format!("policy is too long: wanted at most {POLICY_LENGTH_MAX} bytes");
        return Err(Failure::policy(&text));
    }
    Policy::from_toml(text).map_err(|error| Failure::policy(&error))
}

/// Reads a policy for connections; `root` is trusted in addition to its roots.
pub(crate) fn parse_policy_with_root(text: &str, root: Option<&[u8]>) -> Result<Policy, Failure> {
    let policy = parse_policy(text)?;
    match root {
        None => Ok(policy),
        Some(root) => add_root(policy, &read_root(root)?).map_err(|error| Failure::policy(&error)),
    }
}

/// Reads a policy for evidence, or gives the default one; `root` takes the place of its roots.
pub(crate) fn parse_evidence_policy(
    text: Option<&str>,
    root: Option<&[u8]>,
) -> Result<Policy, Failure> {
    let mut policy = text.map(parse_policy).transpose()?.unwrap_or_default();
    if let Some(root) = root {
        policy.roots = Roots::from_der(&read_root(root)?);
    }
    Ok(policy)
}

fn read_root(bytes: &[u8]) -> Result<Vec<u8>, Failure> {
    parse_root(bytes).map_err(|error| Failure::Input {
        message: format!("root: {error}"),
        hint: Some("root takes one certificate, DER or PEM".into()),
    })
}

/// Reads an array of bytes with a fixed length.
pub(crate) fn parse_array<const N: usize>(name: &str, bytes: &[u8]) -> Result<[u8; N], Failure> {
    bytes
        .try_into()
        .map_err(|_| Failure::input(format!("{name}: wanted {N} bytes, got {}", bytes.len())))
}
