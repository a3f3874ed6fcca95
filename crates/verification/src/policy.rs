//! Policies and roots that cannot be used: what is wrong with them.

use std::fmt::Display;

use confide_evidence::{
    ParseError, certificate::Certificate, gpu::DeviceCertificate, pem, snp::AmdCertificate,
};
use confide_verifier::{Policy, Roots};

/// The hint for a policy that cannot be read.
pub const POLICY_HINT: &str =
    "docs/policy.md lists every key; `confide policy init --from EVIDENCE` writes a policy";

/// Describes the error of a policy in a few short lines.
pub fn describe_policy_error(error: &dyn Display) -> String {
    let text = error.to_string();
    match nearest_known_key(&text) {
        Some(key) => format!("{}\ndid you mean `{key}`?", clip_lines(&text)),
        None => clip_lines(&text),
    }
}

/// Shortens the lines of an error: a parser quotes the line that it cannot read, however long.
pub fn clip_lines(text: &str) -> String {
    const LINE_CHARS_MAX: usize = 120;
    let clip = |line: &str| match line.char_indices().nth(LINE_CHARS_MAX) {
        None => line.to_owned(),
        Some((at, _)) => format!("{}…", &line[..at]),
    };
    text.trim_end().lines().map(clip).collect::<Vec<_>>().join("\n")
}

/// The most similar known key, where the parser names an unknown one.
pub fn nearest_known_key(error: &str) -> Option<&str> {
    let (_, after) = error.split_once("unknown field `")?;
    let (got, after) = after.split_once('`')?;
    let line = after.lines().next()?;
    // Between back quotes: every second part is a name.
    let known = line.split('`').skip(1).step_by(2);
    let (distance, key) = known.map(|key| (strsim::levenshtein(got, key), key)).min()?;
    (distance <= (got.len() / 3).max(2)).then_some(key)
}

/// The policy with one more root, a certificate in DER.
///
/// # Errors
/// The reason why the roots of the policy and this one cannot be named together.
pub fn add_root(mut policy: Policy, der: &[u8]) -> Result<Policy, String> {
    let (listed, added) = (policy.roots.to_string(), Roots::from_der(der).to_string());
    let names: Vec<String> = listed.split(" or ").chain([added.as_str()]).map(Into::into).collect();
    policy.roots = Roots::from_names(&names)?;
    Ok(policy)
}

/// Reads a root certificate of any vendor, DER or one PEM certificate; gives its DER.
///
/// # Errors
/// [`ParseError`] if it is neither, or if there are several certificates.
pub fn parse_root(bytes: &[u8]) -> Result<Vec<u8>, ParseError> {
    const SUBJECT: &str = "root certificate";
    let der = if bytes.trim_ascii_start().starts_with(b"-----BEGIN") {
        match &mut pem::decode_chain(SUBJECT, bytes)?[..] {
            [der] => std::mem::take(der),
            _ => return Err(ParseError::TooMany { subject: SUBJECT, limit: 1 }),
        }
    } else {
        bytes.to_vec()
    };
    match Certificate::parse(SUBJECT, &der) {
        Err(error)
            if AmdCertificate::parse(SUBJECT, &der).is_err()
                && DeviceCertificate::parse(SUBJECT, &der).is_err() =>
        {
            Err(error)
        }
        _ => Ok(der),
    }
}
