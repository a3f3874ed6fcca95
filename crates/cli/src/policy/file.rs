//! The file of a policy: how it is read, and what is wrong with one that cannot be used.

use std::{fmt::Display, path::Path};

use confide_evidence::certificate::Certificate;
use confide_verification::{POLICY_HINT, clip_lines, nearest_known_key};
use confide_verifier::{POLICY_LENGTH_MAX, Policy};
use toml::Table;

use crate::{
    error::CliError,
    files::{ROOT_BYTES_MAX, read_file, read_text},
};

/// The table of rules for a notary's statements, which are not about evidence.
const DISCLOSURE: &str = "disclosure";

/// Reads a policy from its file.
pub(crate) fn read_policy(path: &Path) -> Result<Policy, CliError> {
    Policy::from_toml(&read_policy_text(path)?).map_err(|error| explain_error(path, &error))
}

/// Reads the policy of a notary, which may have a table `[disclosure]` for those to whom a statement is shown: one file
/// serves both.
pub(crate) fn read_notary_policy(path: &Path) -> Result<Policy, CliError> {
    parse_without_disclosure(&read_policy_text(path)?).map_err(|error| explain_error(path, &error))
}

/// The policy in a text that may have a table `[disclosure]`.
pub(super) fn parse_without_disclosure(text: &str) -> Result<Policy, String> {
    let mut table: Table = toml::from_str(text).map_err(|error| error.to_string())?;
    if table.remove(DISCLOSURE).is_none() {
        // The error of the whole text names the line.
        return Policy::from_toml(text).map_err(|error| error.to_string());
    }
    let policy: Policy =
        toml::Value::Table(table).try_into().map_err(|error: toml::de::Error| error.to_string())?;
    policy.validate().map_err(|error| error.to_string())
}

/// Reads the text of a policy's file.
pub(crate) fn read_policy_text(path: &Path) -> Result<String, CliError> {
    read_text(path, POLICY_LENGTH_MAX as u64, "TOML").map_err(|error| error.with_hint(POLICY_HINT))
}

/// The appraiser of a policy's file, without endorsements of its own.
#[cfg(feature = "services")]
pub(crate) fn read_appraiser(path: &Path) -> Result<confide_client::PolicyAppraiser, CliError> {
    let now = crate::process::unix_now;
    confide_client::PolicyAppraiser::new(read_policy(path)?, None, now).map_err(CliError::new)
}

/// The policy with one more root (DER), where one is given.
pub(crate) fn add_root(policy: Policy, root: Option<&Path>) -> Result<Policy, CliError> {
    let Some(path) = root else { return Ok(policy) };
    let der = read_file(path, ROOT_BYTES_MAX)?;
    Certificate::parse("root certificate", &der).map_err(|error| {
        CliError::in_file(path)(error)
            .with_hint("--root takes DER; `openssl x509 -outform der` makes it from PEM")
    })?;
    confide_verification::add_root(policy, &der).map_err(CliError::new)
}

/// Explains why a text cannot be used as a policy.
pub(crate) fn explain_error(path: &Path, error: &dyn Display) -> CliError {
    let text = error.to_string();
    let failure = CliError::new(format!("{}: {}", path.display(), clip_lines(&text)));
    match nearest_known_key(&text) {
        Some(key) => failure.with_hint(format!("did you mean `{key}`? {POLICY_HINT}")),
        None => failure.with_hint(POLICY_HINT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_key_is_answered_with_the_one_that_was_meant() {
        for (text, meant) in [
            ("tcb_statsu = \"UpToDate\"\n", Some("tcb_status")),
            ("config_diges = \"00\"\n", Some("config_digest")),
            ("[workload.tdx]\nmrdt = \"00\"\n", Some("mrtd")),
            ("colour = 1\n", None),
        ] {
            let error = Policy::from_toml(text).unwrap_err();
            assert_eq!(nearest_known_key(&error.to_string()), meant, "{error}");
            let failure = explain_error(Path::new("p.toml"), &error);
            assert!(failure.hint_text().unwrap().contains("confide policy init"), "{failure:?}");
            assert!(
                failure.message().lines().all(|line| line.chars().count() < 140),
                "{failure:?}"
            );
        }
    }

    #[test]
    fn a_notarys_policy_is_held_to_the_same_rules() {
        let own = format!("operator_roots = [\"sha256:{}\"]\n", "ab".repeat(32));
        assert!(parse_without_disclosure(&own).unwrap_err().contains("operator_roots"));
        let both = format!("{own}[disclosure]\nhosts = [\"a\"]\n");
        assert!(parse_without_disclosure(&both).unwrap_err().contains("operator_roots"));
    }
}
