//! The statement that a proof of a run has to be about: accepting any statement would be meaningless.

use std::path::Path;

use confide_guest_programs::host;
use confide_prover::{Check, Outcome};
use confide_statement::Statement;
use sha2::{Digest as _, Sha256};

use super::{arguments::Args, dcap::RefusedStatement, unjudged::UnjudgedProof};
use crate::{files::read_file, prove::input};

/// The longest file of an expected statement, in bytes.
const STATEMENT_BYTES_MAX: u64 = 64 * 1024;

/// The statement that the verifier expects, or parts of it.
#[derive(Default)]
pub(super) struct ExpectedStatement {
    /// The statement, from its file or computed from the input.
    pub(super) statement: Option<Statement>,
    /// The modulus of the verifier's own key, for `rsa2048`.
    modulus: Option<Vec<u8>>,
    /// The verifier's own message, for `rsa2048` and `sha256`.
    message: Option<Vec<u8>>,
}

impl ExpectedStatement {
    /// Reads what the options name, for a proof whose file names `claim`.
    pub(super) fn from_args(args: &Args, claim: &str) -> Result<Self, UnjudgedProof> {
        if let Some(option) = option_of_another_claim(args, claim) {
            let kind = format!("a run of {claim}");
            return Err(UnjudgedProof::option_of_another_kind(option, &kind));
        }
        if !is_something_expected(args) && !args.dangerous_any_statement {
            return Err(missing_expectation_error(claim));
        }
        let statement = match (&args.statement, &args.input) {
            (Some(path), _) => Some(read_statement(path)?),
            (None, Some(path)) => Some(compute_statement(claim, path)?),
            (None, None) => None,
        };
        let modulus = match args.claimed.read_key()? {
            None => None,
            Some(key) => Some(key.rsa_modulus().ok_or_else(|| {
                let detail = format!("wanted an RSA-2048 key, got {}", key.name());
                UnjudgedProof::new("malformed_key", detail)
            })?),
        };
        Ok(Self { statement, modulus, message: args.claimed.read_message()? })
    }

    /// Whether every field of a statement is compared, except those that its claim leaves open.
    pub(super) fn is_complete(&self, statement: &Statement) -> bool {
        match statement {
            _ if self.statement.is_some() => true,
            Statement::Rsa2048(_) => self.modulus.is_some() && self.message.is_some(),
            Statement::Sha256(_) => self.message.is_some(),
            _ => false,
        }
    }

    /// Compares key and message with what was proved.
    pub(super) fn compare(
        &self,
        statement: &Statement,
        checks: &mut Vec<Check>,
    ) -> Result<(), RefusedStatement> {
        let (modulus, digest, length) = match statement {
            Statement::Rsa2048(claim) => (Some(&claim.modulus[..]), claim.message_sha256, None),
            Statement::Sha256(claim) => (None, claim.message_sha256, Some(claim.message_bytes)),
            // The options were refused for the claim that the file names, which is this one.
            _ => return Ok(()),
        };
        if let Some(wanted) = &self.modulus {
            let holds = modulus == Some(&wanted[..]);
            let detail = |modulus: &[u8]| format!("modulus of SHA-256 {}", sha256_hex(modulus));
            let (wanted, got) = (detail(wanted), detail(modulus.unwrap_or_default()));
            push_check(checks, ["key", "other_key"], holds, &wanted, &got)?;
        }
        if let Some(message) = &self.message {
            let wanted: [u8; 32] = Sha256::digest(message).into();
            let same_length = length.is_none_or(|length| length as usize == message.len());
            let holds = wanted == digest && same_length;
            let (wanted, got) = (hex::encode(wanted), hex::encode(digest));
            push_check(checks, ["message", "other_message"], holds, &wanted, &got)?;
        }
        Ok(())
    }
}

fn sha256_hex(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

fn push_check(
    checks: &mut Vec<Check>,
    [name, refusal]: [&'static str; 2],
    holds: bool,
    wanted: &str,
    got: &str,
) -> Result<(), RefusedStatement> {
    let (outcome, detail) = if holds {
        (Outcome::Passed, got.to_string())
    } else {
        (Outcome::Failed, format!("wanted {wanted}, got {got}"))
    };
    checks.push(Check { name, outcome, detail: detail.clone() });
    if holds { Ok(()) } else { Err(RefusedStatement { name: refusal, detail }) }
}

/// An option that does not apply to the claim: it would be ignored, while the caller relies on it.
fn option_of_another_claim(args: &Args, claim: &str) -> Option<&'static str> {
    let taken: &[&str] = match claim {
        "rsa2048" => &["--certificate", "--key", "--message", "--input"],
        "sha256" => &["--message", "--input"],
        // A quote is appraised under the evidence policy, and not run again here.
        "dcap" => &[],
        _ => &["--input"],
    };
    let mut given = args.claimed.given_options();
    given.extend(args.input.as_ref().map(|_| "--input"));
    given.into_iter().find(|option| !taken.contains(option))
}

fn is_something_expected(args: &Args) -> bool {
    // A time alone says nothing about the statement.
    !args.claimed.given_options().is_empty()
        || args.input.is_some()
        || args.statement.is_some()
        || args.program.is_some()
        || args.policy.is_some()
        || args.evidence_policy.is_some()
        || args.report_data.is_some()
        || args.root.is_some()
}

fn missing_expectation_error(claim: &str) -> UnjudgedProof {
    let hint = match claim {
        "rsa2048" => "--key FILE and --message FILE, --statement FILE or --input FILE",
        "sha256" => "--message FILE, --statement FILE or --input FILE",
        "dcap" => "--evidence-policy FILE, --report-data HEX or --statement FILE",
        _ => "--input FILE, the prover's input, or --statement FILE",
    };
    let hint = format!(
        "say what it must prove with {hint}; --dangerous-any-statement accepts any statement"
    );
    let detail = "no option says what this proof must prove";
    UnjudgedProof::new("no_expectation", detail).with_hint(&hint)
}

fn read_statement(path: &Path) -> Result<Statement, UnjudgedProof> {
    let bytes = read_file(path, STATEMENT_BYTES_MAX).map_err(UnjudgedProof::unreadable)?;
    Statement::from_json(&bytes).map_err(|error| {
        UnjudgedProof::new("malformed_statement_file", format!("{}: {error}", path.display()))
            .with_hint(
                "`confide prove … --json` and `confide verify proof … --json` print statements",
            )
    })
}

/// Runs the guest's program over the input, as the native stage does.
fn compute_statement(claim: &str, path: &Path) -> Result<Statement, UnjudgedProof> {
    let input = input::read_input(claim, path)
        .map_err(|error| UnjudgedProof { name: "malformed_input_file", error })?;
    let explain = |reason: String| {
        UnjudgedProof::new("malformed_input_file", format!("{}: {reason}", path.display()))
    };
    let outcome =
        host::run(claim, &input).ok_or_else(|| explain(format!("there is no program {claim}")))?;
    outcome.map_err(|error| explain(format!("{claim} refuses this input: {error}")))
}

#[cfg(test)]
mod tests {
    use confide_statement::{Fibonacci, Rsa2048, Sha256 as Preimage};

    use super::*;

    #[test]
    fn key_and_message_of_the_verifier_are_compared_with_what_was_proved() {
        let digest: [u8; 32] = Sha256::digest(b"message").into();
        let proved = Statement::Rsa2048(Rsa2048 { modulus: [0xa5; 256], message_sha256: digest });
        let wanted = |modulus: u8, message: &[u8]| ExpectedStatement {
            statement: None,
            modulus: Some(vec![modulus; 256]),
            message: Some(message.to_vec()),
        };
        for (modulus, message, refusal) in [
            (0xa5, &b"message"[..], None),
            (0xa7, b"message", Some("other_key")),
            (0xa5, b"another", Some("other_message")),
        ] {
            let mut checks = Vec::new();
            let wanted = wanted(modulus, message);
            let refused = wanted.compare(&proved, &mut checks).err();
            assert_eq!(refused.map(|refused| refused.name), refusal);
            let failed = checks.iter().filter(|check| check.outcome == Outcome::Failed).count();
            assert_eq!(failed, usize::from(refusal.is_some()));
            assert!(wanted.is_complete(&proved));
        }
        let key_only =
            ExpectedStatement { modulus: Some(vec![0xa5; 256]), ..ExpectedStatement::default() };
        assert!(!key_only.is_complete(&proved));
        let preimage = Preimage { message_bytes: 7, message_sha256: digest };
        let longer = Preimage { message_bytes: 8, ..preimage.clone() };
        for (claim, holds) in [(preimage, true), (longer, false)] {
            let message = ExpectedStatement {
                message: Some(b"message".to_vec()),
                ..ExpectedStatement::default()
            };
            let outcome = message.compare(&Statement::Sha256(claim), &mut Vec::new());
            assert_eq!(outcome.is_ok(), holds);
        }
    }

    #[test]
    fn a_statement_is_made_anew_from_the_input_that_its_prover_was_given() {
        let dir = std::env::temp_dir().join(format!("confide-expected-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let file = dir.join("input.json");
        std::fs::write(&file, br#"{"n":10}"#).unwrap();
        let wanted = Statement::Fibonacci(Fibonacci { n: 10, value: 55 });
        assert_eq!(compute_statement("fibonacci", &file).unwrap(), wanted);
        for claim in ["sort", "dcap", "nothing"] {
            assert_eq!(compute_statement(claim, &file).unwrap_err().name, "malformed_input_file");
        }
        std::fs::remove_dir_all(dir).unwrap();
    }
}
