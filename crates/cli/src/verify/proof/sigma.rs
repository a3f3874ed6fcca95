//! Proofs that one holds a signature, without any zkVM.

use std::{fmt::Write as _, process::ExitCode, time::Instant};

use confide_prover::{Check, Outcome};
use confide_sigma::{PublicKey, Scheme, SigmaError, SignatureProof};
use serde_json::json;

use super::{
    super::REJECTED,
    Answered, Args, Unjudged, other_kind,
    zkvm::{checks_json, table},
};
use crate::prove::signature;

pub(super) fn answer(bytes: &[u8], args: &Args) -> Result<Answered, Unjudged> {
    no_options_of_the_zkvm(args)?;
    let claimed = &args.claimed;
    let missing = |what: &str| {
        Unjudged::new("missing_input", format!("wanted {what}, got none"))
            .hint("key and message are the verifier's own: what the proof says of them is compared")
    };
    let key = claimed.key()?.ok_or_else(|| missing("--certificate or --key"))?;
    let message = claimed.message()?.ok_or_else(|| missing("--message"))?;
    let proof = SignatureProof::from_bytes(bytes)
        .map_err(|error| Unjudged::new("malformed_file", error.to_string()))?;
    let started = Instant::now();
    let outcome = proof.verify(&key, &message, claimed.context());
    let check_ms = started.elapsed().as_secs_f64() * 1e3;
    let checks = checks(&key, &proof, &outcome);
    Ok(match outcome {
        Ok(()) => yes(&key, &proof, &checks, check_ms, bytes.len(), args.json),
        Err(error) => no(&error, &checks, args.json),
    })
}

fn no_options_of_the_zkvm(args: &Args) -> Result<(), Unjudged> {
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
        Some((option, _)) => Err(other_kind(option, "a signature")),
    }
}

/// The checks in their order: what follows a failed one was not evaluated.
fn checks(key: &PublicKey, proof: &SignatureProof, outcome: &Result<(), SigmaError>) -> Vec<Check> {
    let failed_at = match outcome {
        Ok(()) => usize::MAX,
        Err(SigmaError::OtherKey) => 0,
        Err(SigmaError::OtherMessage) => 1,
        Err(SigmaError::OtherContext) => 2,
        Err(_) => 3,
    };
    let context = match proof.context().is_empty() {
        true => "none: whoever has the proof can show it on".to_string(),
        false => hex::encode(proof.context()),
    };
    let salt = match proof.scheme() {
        Scheme::Pss { salt } => format!(", a salt of {} bytes", salt.len()),
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
            std::cmp::Ordering::Less => Outcome::Passed,
            std::cmp::Ordering::Equal => Outcome::Failed,
            std::cmp::Ordering::Greater => Outcome::NotEvaluated,
        },
        detail,
    };
    details.into_iter().enumerate().map(check).collect()
}

fn yes(
    key: &PublicKey,
    proof: &SignatureProof,
    checks: &[Check],
    check_ms: f64,
    bytes: usize,
    json: bool,
) -> Answered {
    if json {
        let mut object = signature::facts_json(key, proof);
        object["outcome"] = json!("accepted");
        object["reason"] = json!(null);
        object["proof_bytes"] = json!(bytes);
        object["check_ms"] = json!(check_ms);
        object["checks"] = checks_json(checks);
        return (format!("{object}\n"), ExitCode::SUCCESS);
    }
    let mut text = table(checks);
    text.push_str(&signature::facts(key, proof));
    let _ = writeln!(text, "{:<19}{bytes} bytes, checked in {check_ms:.2} ms", "proof");
    let worth = "its maker knew such a signature; whose the key is was not judged";
    let _ = writeln!(text, "{:<19}{:<15}{worth}", "accepted", "yes");
    (text, ExitCode::SUCCESS)
}

fn no(error: &SigmaError, checks: &[Check], json: bool) -> Answered {
    let name = match error {
        SigmaError::OtherKey => "other_key",
        SigmaError::OtherMessage => "other_message",
        SigmaError::OtherContext => "other_context",
        SigmaError::Unsupported { .. } => "other_scheme",
        SigmaError::NotOnCurve { .. } => "not_on_curve",
        SigmaError::Malformed { .. } | SigmaError::TooLong { .. } => "malformed_proof",
        _ => "proof_does_not_hold",
    };
    if json {
        let object = json!({
            "outcome": "rejected",
            "reason": name,
            "detail": error.to_string(),
            "checks": checks_json(checks),
        });
        return (format!("{object}\n"), REJECTED.into());
    }
    let mut text = table(checks);
    let _ = writeln!(text, "{:<19}{:<15}{name}: {error}", "accepted", "no");
    (text, REJECTED.into())
}
