//! Proofs of a signature, which need no zkVM.

use std::{cmp::Ordering, time::Instant};

use confide_prover::{Check, Outcome};
use confide_sigma::{PublicKey, SigmaError, SignatureProof, SignatureScheme};
use serde_json::{Value, json};

use super::{
    arguments::Args,
    checks::{checks_json, describe_rejection, format_checks},
    unjudged::UnjudgedProof,
};
use crate::{
    answer::CommandReport,
    process::merge_objects,
    prove::signature,
    verdict_lines::{fact_line, verdict_line},
};

/// Judges a signature proof.
pub(super) fn judge_proof(bytes: &[u8], args: &Args) -> Result<CommandReport, UnjudgedProof> {
    refuse_zkvm_options(args)?;
    let claimed = &args.claimed;
    let missing = |what: &str| {
        UnjudgedProof::new("missing_input", format!("wanted {what}, got none"))
            .with_hint("give your own key and message, to be compared with those of the proof")
    };
    let key = claimed.read_key()?.ok_or_else(|| missing("--certificate or --key"))?;
    let message = claimed.read_message()?.ok_or_else(|| missing("--message"))?;
    let proof = SignatureProof::from_bytes(bytes)
        .map_err(|error| UnjudgedProof::new("malformed_file", error))?;
    let started = Instant::now();
    let outcome = proof.verify(&key, &message, claimed.context());
    let check_ms = started.elapsed().as_secs_f64() * 1e3;
    let checks = list_checks(&key, &proof, &outcome);
    if let Err(error) = outcome {
        return Ok(describe_rejection(
            &checks,
            rejection_code(&error),
            &error.to_string(),
            Value::Null,
        ));
    }
    let size = bytes.len();
    let mut text = format_checks(&checks) + &signature::describe_facts(&key, &proof);
    text += &fact_line("proof", format_args!("{size} bytes, checked in {check_ms:.2} ms"));
    let reason = "its maker knew such a signature; the owner of the key was not checked";
    text += &verdict_line("yes", reason);
    let more = json!({
        "outcome": "accepted",
        "reason": null,
        "proof_bytes": size,
        "check_ms": check_ms,
        "checks": checks_json(&checks),
    });
    Ok(CommandReport::new(text, merge_objects(signature::facts_json(&key, &proof), more)))
}

fn refuse_zkvm_options(args: &Args) -> Result<(), UnjudgedProof> {
    let given = [
        ("--statement", args.statement.is_some()),
        ("--input", args.input.is_some()),
        ("--dangerous-any-statement", args.dangerous_any_statement),
        ("--policy", args.policy.is_some()),
        ("--program", args.program.is_some()),
        ("--at", args.at.is_some()),
        ("--root", args.root.is_some()),
        ("--report-data", args.report_data.is_some()),
        ("--evidence-policy", args.evidence_policy.is_some()),
        ("--prover", args.prover.is_some()),
    ];
    match given.into_iter().find(|(_, given)| *given) {
        None => Ok(()),
        Some((option, _)) => Err(UnjudgedProof::option_of_another_kind(option, "a signature")),
    }
}

/// The checks in their order: those after a failed one were not evaluated.
fn list_checks(
    key: &PublicKey,
    proof: &SignatureProof,
    outcome: &Result<(), SigmaError>,
) -> Vec<Check> {
    let failed_at = match outcome {
        Ok(()) => usize::MAX,
        Err(SigmaError::OtherKey) => 0,
        Err(SigmaError::OtherMessage) => 1,
        Err(SigmaError::OtherContext) => 2,
        Err(_) => 3,
    };
    let context = if proof.context().is_empty() {
        "none: anyone who has the proof can pass it on".to_string()
    } else {
        hex::encode(proof.context())
    };
    let salt = match proof.scheme() {
        SignatureScheme::Pss { salt } => format!(", a salt of {} bytes", salt.len()),
        _ => String::new(),
    };
    let (scheme, hash) = (proof.scheme().name(), proof.hash().name());
    let details = [
        ("key", format!("{}, SHA-256 {}", key.name(), hex::encode(key.id()))),
        ("message", format!("{hash} {}", hex::encode(proof.digest()))),
        ("context", context),
        ("proof", format!("{scheme} with {hash}{salt}")),
    ];
    let check = |(index, (name, detail)): (usize, (&'static str, String))| Check {
        name,
        outcome: match index.cmp(&failed_at) {
            Ordering::Less => Outcome::Passed,
            Ordering::Equal => Outcome::Failed,
            Ordering::Greater => Outcome::NotEvaluated,
        },
        detail,
    };
    details.into_iter().enumerate().map(check).collect()
}

/// The code of a rejection, for programs.
fn rejection_code(error: &SigmaError) -> &'static str {
    match error {
        SigmaError::OtherKey => "other_key",
        SigmaError::OtherMessage => "other_message",
        SigmaError::OtherContext => "other_context",
        SigmaError::Unsupported { .. } => "other_scheme",
        SigmaError::NotOnCurve { .. } => "not_on_curve",
        SigmaError::Malformed { .. } | SigmaError::TooLong { .. } => "malformed_proof",
        _ => "proof_does_not_hold",
    }
}
