//! Proofs of the zkVM, checked by `confide-prover`.

use std::path::Path;

use confide_prover::{
    Check, CheckedProof, ExpectedProof, JudgementError, Outcome, POLICY_BYTES_MAX, ProofFile,
    ProofPolicy, ProverError, judge,
};
use confide_statement::Statement;
use serde_json::{Value, json};

use super::{
    arguments::Args,
    checks::{checks_json, describe_rejection, format_checks},
    dcap::EvidenceExpectation,
    expected::ExpectedStatement,
    unjudged::UnjudgedProof,
};
use crate::{
    answer::CommandReport,
    files::read_file,
    process::merge_objects,
    prove::{
        facts,
        prover::{self, StageProgress, WorkFolder},
        size::format_bytes,
    },
    verdict_lines::{fact_line, verdict_line},
    verify::inputs::NOT_JUDGED,
};

/// Judges a proof of the zkVM.
pub(super) fn judge_proof(bytes: &[u8], args: &Args) -> Result<CommandReport, UnjudgedProof> {
    let file =
        ProofFile::decode(bytes).map_err(|error| UnjudgedProof::new("malformed_file", error))?;
    let wanted = ExpectedStatement::from_args(args, &file.header.claim)?;
    let policy = read_policy(args.policy.as_deref())?;
    let evidence = EvidenceExpectation::from_args(args)?;
    let program = prover::find_prover(args.prover.as_deref())
        .map_err(|error| UnjudgedProof { name: "prover_missing", error })?;
    let (work, stop) = (WorkFolder::new()?, prover::stop_at_signal()?);
    let progress = StageProgress::new();
    let on_progress = |stage, step| progress.show(stage, step);
    let back = prover::open_prover(program, &work, stop, &on_progress);
    let prover_sha256 = back.sha256().map_err(explain_error)?;
    let expected = ExpectedProof {
        prover_sha256,
        policy: &policy,
        statement: wanted.statement.as_ref(),
        program: args.program,
    };
    let verdict = judge(&file, &back, &expected);
    progress.clear();
    match verdict {
        Ok(checked) => Ok(compare_with_expectation(&checked, &wanted, &evidence, &file)),
        Err(JudgementError::Rejected(rejected)) => {
            let (name, detail) = (rejected.reason.name(), rejected.reason.to_string());
            Ok(describe_rejection(&rejected.checks, name, &detail, Value::Null))
        }
        Err(JudgementError::NotJudged(error)) => Err(explain_error(error)),
    }
}

fn explain_error(error: ProverError) -> UnjudgedProof {
    let name = match &error {
        ProverError::Missing { .. } => "prover_missing",
        ProverError::NotStarted { .. } => "prover_not_started",
        ProverError::NotSealed { .. } => "prover_not_sealed",
        ProverError::Interrupted { .. } => "interrupted",
        _ => "prover_failed",
    };
    // Whatever the status of `confide prove` is: here nothing is known of the proof, which has one status.
    UnjudgedProof { name, error: prover::explain_error(&error).with_status(NOT_JUDGED) }
}

fn read_policy(path: Option<&Path>) -> Result<ProofPolicy, UnjudgedProof> {
    const HINT: &str = "docs/prove.md lists every key of a proof policy";
    let Some(path) = path else { return Ok(ProofPolicy::with_any_prover()) };
    let explain = |reason: String| {
        UnjudgedProof::new("malformed_policy", format!("{}: {reason}", path.display()))
            .with_hint(HINT)
    };
    let bytes = read_file(path, POLICY_BYTES_MAX as u64).map_err(UnjudgedProof::unreadable)?;
    let text = String::from_utf8(bytes).map_err(|_| explain("policy is not UTF-8".to_string()))?;
    ProofPolicy::from_toml(&text).map_err(|error| explain(error.to_string()))
}

/// Compares a proof that the back end accepted with what this program knows. The facts of a
/// rejected one are shown, since they were proved and are only not those that are wanted.
fn compare_with_expectation(
    checked: &CheckedProof,
    wanted: &ExpectedStatement,
    evidence: &EvidenceExpectation,
    file: &ProofFile,
) -> CommandReport {
    let mut checks = checked.checks().to_vec();
    let (statement, header) = (checked.statement(), checked.header());
    let compared = match statement {
        Statement::Dcap(claim) => evidence.compare(claim, &mut checks),
        _ => evidence.refuse_without_quote(&mut checks),
    };
    let unproved = unproved_fields(checked);
    let proved =
        merge_objects(facts::facts_json(statement, header), json!({ "unproved": unproved }));
    if let Err(refused) = compared.and_then(|()| wanted.compare(statement, &mut checks)) {
        return describe_rejection(&checks, refused.name, &refused.detail, proved);
    }
    let (size, used) = (file.body.len(), checked.usage());
    let (wall_ms, cpu_ms) = (used.wall.as_secs_f64() * 1e3, used.cpu.as_secs_f64() * 1e3);
    let least = if used.peak_is_at_most { "<= " } else { "" };
    let peak = format_bytes(used.peak_rss_bytes);
    let resources = format!(
        "{size} bytes; the check took {wall_ms:.1} ms, {cpu_ms:.1} ms of CPU, peak memory \
         {least}{peak}"
    );
    let mut text = format_checks(&checks) + &facts::describe_facts(statement, header, unproved);
    text += &fact_line("proof", resources);
    text += &verdict_line("yes", describe_acceptance(wanted.is_complete(statement), &checks));
    let more = json!({
        "outcome": "accepted",
        "reason": null,
        "proof_bytes": size,
        "check": facts::stage_json(checked.result(), used),
        "checks": checks_json(&checks),
    });
    CommandReport::new(text, merge_objects(proved, more))
}

/// Fields of the file that no check can confirm.
fn unproved_fields(checked: &CheckedProof) -> &'static [&'static str] {
    match checked.result().segments {
        Some(_) => &["cycles"],
        None => &["segments", "cycles"],
    }
}

/// Describes what the acceptance rests on apart from the proof.
fn describe_acceptance(is_statement_known: bool, checks: &[Check]) -> String {
    let is_open = |name| {
        let mut open = checks.iter().filter(|check| check.outcome == Outcome::NotEvaluated);
        open.any(|check| check.name == name)
    };
    let mut reasons = vec!["the program ran to its end and made this statement"];
    if !is_statement_known {
        reasons.push("the statement was not compared with yours: read it, or give --statement");
    }
    if is_open("prover") {
        reasons.push("confide-prover was not pinned; a policy can pin it");
    }
    reasons.join("; ")
}
