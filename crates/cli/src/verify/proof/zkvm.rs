//! Proofs of the zkVM, through `confide-prover`.

use std::{fmt::Write as _, path::Path, process::ExitCode};

use confide_prover::{
    Check, CheckedProof, ExpectedProof, Outcome, POLICY_BYTES_MAX, ProofFile, ProofPolicy,
    ProverError, RejectedProof, Verdict, judge,
};
use confide_statement::Statement;
use serde_json::{Map, Value, json};

use super::{
    super::{NOT_JUDGED, REJECTED, read},
    Answered, Args, Unjudged, dcap,
    expected::Wanted,
};
use crate::prove::{
    prover::{self, Shown, WorkFolder},
    shown, size,
};

pub(super) fn answer(bytes: &[u8], args: &Args) -> Result<Answered, Unjudged> {
    let file = ProofFile::decode(bytes)
        .map_err(|error| Unjudged::new("malformed_file", error.to_string()))?;
    let wanted = Wanted::read(args, &file.header.claim)?;
    let policy = policy(args.policy.as_deref())?;
    let beyond = dcap::Beyond::read(args)?;
    let program = prover::find(args.prover.as_deref())
        .map_err(|error| Unjudged { name: "prover_missing", error })?;
    let (work, stop) = (WorkFolder::new()?, prover::stop_at_signal()?);
    let progress = Shown::new();
    let told = |stage, step| progress.show(stage, step);
    let back = prover::back_end(program, &work, stop, &told);
    let prover_sha256 = back.sha256().map_err(unjudged)?;
    let expected = ExpectedProof {
        prover_sha256,
        policy: &policy,
        statement: wanted.statement.as_ref(),
        program: args.program,
    };
    let judged = judge(&file, &back, &expected);
    progress.end();
    match judged {
        Ok(checked) => Ok(accepted(&checked, &wanted, beyond, &file, args)),
        Err(Verdict::Rejected(rejected)) => Ok(rejected_by(&rejected, args)),
        Err(Verdict::NotJudged(error)) => Err(unjudged(error)),
    }
}

fn unjudged(error: ProverError) -> Unjudged {
    let name = match &error {
        ProverError::Missing { .. } => "prover_missing",
        ProverError::NotStarted { .. } => "prover_not_started",
        ProverError::NotSealed { .. } => "prover_not_sealed",
        ProverError::Interrupted { .. } => "interrupted",
        _ => "prover_failed",
    };
    // Whatever `confide prove` ends with: here nothing is known of the proof, which has one status.
    Unjudged { name, error: prover::explained(&error).status(NOT_JUDGED) }
}

fn policy(path: Option<&Path>) -> Result<ProofPolicy, Unjudged> {
    const HINT: &str = "docs/prove.md lists every key of a proof policy";
    let Some(path) = path else { return Ok(ProofPolicy::unwritten()) };
    let wrong = |reason: String| {
        Unjudged::new("malformed_policy", format!("{}: {reason}", path.display())).hint(HINT)
    };
    let bytes = read(path, POLICY_BYTES_MAX as u64)?;
    let text = String::from_utf8(bytes).map_err(|_| wrong("policy is not UTF-8".to_string()))?;
    ProofPolicy::from_toml(&text).map_err(|error| wrong(error.to_string()))
}

/// The back end's yes, and what this program itself compares with what it knows of the world.
fn accepted(
    checked: &CheckedProof,
    wanted: &Wanted,
    beyond: dcap::Beyond,
    file: &ProofFile,
    args: &Args,
) -> Answered {
    let mut checks = checked.checks().to_vec();
    let compared = match checked.statement() {
        Statement::Dcap(claim) => beyond.compare(claim, &mut checks),
        _ => beyond.of_no_quote(&mut checks),
    };
    let compared = compared.and_then(|()| wanted.compare(checked.statement(), &mut checks));
    match compared {
        Err(refused) => no(&checks, refused.name, &refused.detail, Some(checked), args),
        Ok(()) => yes(checked, wanted, &checks, file, args),
    }
}

fn yes(
    checked: &CheckedProof,
    wanted: &Wanted,
    checks: &[Check],
    file: &ProofFile,
    args: &Args,
) -> Answered {
    let (statement, header) = (checked.statement(), checked.header());
    let used = checked.usage();
    let unproved = unproved(checked);
    if args.json {
        let mut object = shown::facts_json(statement, header);
        object.insert("unproved".into(), unproved.into());
        object.insert("outcome".into(), "accepted".into());
        object.insert("reason".into(), Value::Null);
        object.insert("proof_bytes".into(), file.body.len().into());
        object.insert("check".into(), shown::stage_json(checked.result(), used));
        object.insert("checks".into(), checks_json(checks));
        return (format!("{}\n", Value::Object(object)), ExitCode::SUCCESS);
    }
    let mut text = table(checks);
    text.push_str(&shown::facts(statement, header, unproved));
    let _ = writeln!(
        text,
        "{:<19}{} bytes; the check took {:.1} ms, {} of CPU, peak memory {}{}",
        "proof",
        file.body.len(),
        used.wall.as_secs_f64() * 1e3,
        format_args!("{:.1} ms", used.cpu.as_secs_f64() * 1e3),
        if used.peak_is_at_most { "<= " } else { "" },
        size::shown(used.peak_rss_bytes)
    );
    let _ = writeln!(
        text,
        "{:<19}{:<15}{}",
        "accepted",
        "yes",
        worth(wanted.is_whole(statement), checks)
    );
    (text, ExitCode::SUCCESS)
}

/// Fields of the answer that stand in the file and that no check can tell.
fn unproved(checked: &CheckedProof) -> &'static [&'static str] {
    match checked.result().segments {
        Some(_) => &["cycles"],
        None => &["segments", "cycles"],
    }
}

/// What the yes rests on beside the proof.
fn worth(is_statement_known: bool, checks: &[Check]) -> String {
    let open = |name| {
        let mut open = checks.iter().filter(|check| check.outcome == Outcome::NotEvaluated);
        open.any(|check| check.name == name)
    };
    let mut worth = vec!["the program ran to its end and said this statement"];
    if !is_statement_known {
        worth.push("whether it is the one you want was not checked: read it, or give --statement");
    }
    if open("prover") {
        worth.push("confide-prover was not pinned: a policy does");
    }
    worth.join("; ")
}

fn rejected_by(rejected: &RejectedProof, args: &Args) -> Answered {
    let reason = &rejected.reason;
    no(&rejected.checks, reason.name(), &reason.to_string(), None, args)
}

/// A no. Nothing of the file is shown as if it were true, unless it was proved and is only not what
/// is wanted.
fn no(
    checks: &[Check],
    name: &str,
    detail: &str,
    proved: Option<&CheckedProof>,
    args: &Args,
) -> Answered {
    if args.json {
        let mut object = Map::new();
        if let Some(checked) = proved {
            object = shown::facts_json(checked.statement(), checked.header());
            object.insert("unproved".into(), unproved(checked).into());
        }
        object.insert("outcome".into(), "rejected".into());
        object.insert("reason".into(), name.into());
        object.insert("detail".into(), detail.into());
        object.insert("checks".into(), checks_json(checks));
        return (format!("{}\n", Value::Object(object)), REJECTED.into());
    }
    let mut text = table(checks);
    let _ = writeln!(text, "{:<19}{:<15}{name}: {detail}", "accepted", "no");
    (text, REJECTED.into())
}

pub(super) fn table(checks: &[Check]) -> String {
    let mut text = String::new();
    for Check { name, outcome, detail } in checks {
        let (name, outcome) = (name.replace('_', " "), outcome.as_str().replace('_', " "));
        let _ = writeln!(text, "{name:<19}{outcome:<15}{detail}");
    }
    text
}

pub(super) fn checks_json(checks: &[Check]) -> Value {
    let line = |check: &Check| {
        let Check { name, outcome, detail } = check;
        json!({ "name": name, "outcome": outcome.as_str(), "detail": detail })
    };
    checks.iter().map(line).collect()
}
