//! The facts about a proof, for people and for programs.

use std::path::Path;

use confide_prover::{
    Header, StageUsage,
    line::{Digest, ProofStrength, StageResult},
};
use confide_statement::Statement;
use serde_json::{Map, Value, json};

use super::size;
use crate::{
    answer::CommandReport, printable::escape_line, process::merge_objects, verdict_lines::fact_line,
};

/// The results of the four stages.
pub(super) struct ProvedRun {
    pub(super) statement: Statement,
    pub(super) header: Header,
    pub(super) body_bytes: usize,
    /// The encoded proof file.
    pub(super) file: Vec<u8>,
    pub(super) prover_sha256: Digest,
    pub(super) stages: [(StageResult, StageUsage); 4],
}

/// The answer about a proof that was written to `path`.
pub(super) fn proof_report(proved: &ProvedRun, path: &Path) -> CommandReport {
    let ProvedRun { statement, header, body_bytes, file, prover_sha256, stages } = proved;
    let mut text = format!("{:<19}{:>12}{:>12}{:>16}\n", "stage", "wall", "CPU", "peak memory");
    for (done, used) in stages {
        let least = if used.peak_is_at_most { "<= " } else { "" };
        let peak = format!("{least}{}", size::format_bytes(used.peak_rss_bytes));
        let (wall, cpu) =
            (format_seconds(used.wall.as_secs_f64()), format_seconds(used.cpu.as_secs_f64()));
        text += &fact_line(done.stage.name(), format_args!("{wall:>12}{cpu:>12}{peak:>16}"));
    }
    let khz = header.cycles as f64 / stages[2].1.wall.as_secs_f64() / 1000.0;
    text += &describe_facts(statement, header, &[]);
    text += &fact_line("proving", format_args!("{khz:.1} kHz, by the wall clock of its process"));
    text += &fact_line("proof", format_args!("{} ({} bytes)", path.display(), file.len()));
    let stages: Map<String, Value> = stages
        .iter()
        .map(|(done, used)| (done.stage.name().to_string(), stage_json(done, *used)))
        .collect();
    let more = json!({
        "stages": stages,
        "prover_sha256": prover_sha256.to_string(),
        "proof_bytes": body_bytes,
        "file_bytes": file.len(),
        "out": path.display().to_string(),
    });
    CommandReport::new(text, merge_objects(facts_json(statement, header), more))
}

/// The resources that one process used, for programs.
pub(crate) fn stage_json(done: &StageResult, used: StageUsage) -> Value {
    json!({
        "wall_s": used.wall.as_secs_f64(),
        "cpu_s": used.cpu.as_secs_f64(),
        "peak_rss_bytes": used.peak_rss_bytes,
        "peak_is_at_most": used.peak_is_at_most,
        "parts": done.parts,
    })
}

/// The lines about every proof: its statement, what it rests on, what it hides. `unproved` names
/// the fields that no check can confirm.
pub(crate) fn describe_facts(statement: &Statement, header: &Header, unproved: &[&str]) -> String {
    let origin =
        |name: &str| if unproved.contains(&name) { " (as claimed by the prover)" } else { "" };
    let ProofStrength { proven_bits, conjectured_bits, zero_knowledge } = header.strength;
    let (digest, yes_or_no) =
        (Digest(statement.digest()), if zero_knowledge { "yes" } else { "no" });
    let Header { backend, backend_version, mode, segments, cycles, .. } = header;
    let security = format_args!("{proven_bits} bits proven, {conjectured_bits} bits conjectured");
    let mut text = fact_line("statement", format_args!("{} {digest}", header.claim));
    for (name, value) in statement_fields(statement) {
        text += &fact_line("", format_args!("{name}: {value}"));
    }
    text += &fact_line("program", header.program_digest);
    text += &fact_line("back end", format_args!("{backend} {backend_version}, {mode} proof"));
    text += &fact_line("security", security);
    text += &fact_line("zero-knowledge", yes_or_no);
    text += &fact_line("hidden", describe_hidden_part(zero_knowledge));
    text += &fact_line("segments", format_args!("{segments}{}", origin("segments")));
    text += &fact_line("cycles", format_args!("{cycles}{}", origin("cycles")));
    text
}

/// The same facts for programs.
pub(crate) fn facts_json(statement: &Statement, header: &Header) -> Value {
    let ProofStrength { proven_bits, conjectured_bits, zero_knowledge } = header.strength;
    json!({
        "claim": header.claim,
        "statement": statement.to_json(),
        "statement_sha256": Digest(statement.digest()),
        "program_digest": header.program_digest,
        "backend": header.backend,
        "backend_version": header.backend_version,
        "mode": header.mode,
        "proven_bits": proven_bits,
        "conjectured_bits": conjectured_bits,
        "zero_knowledge": zero_knowledge,
        "hidden": describe_hidden_part(zero_knowledge),
        "segments": header.segments,
        "cycles": header.cycles,
    })
}

/// What stays hidden, as far as the back end promises it.
fn describe_hidden_part(zero_knowledge: bool) -> &'static str {
    if zero_knowledge {
        "the input, from everyone who holds the proof; the statement is public"
    } else {
        "nothing is promised: the proof is short, not zero-knowledge, and may reveal the input"
    }
}

/// The statement's own fields.
fn statement_fields(statement: &Statement) -> Vec<(String, String)> {
    let Value::Object(fields) = statement.to_json() else { return Vec::new() };
    let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_string);
    let all = fields.iter().filter(|(name, _)| *name != "claim");
    // The maker of the proof chose them: a statement must not imitate the lines of an answer.
    all.map(|(name, value)| (name.clone(), escape_line(&plain(value)))).collect()
}

fn format_seconds(seconds: f64) -> String {
    if seconds < 1.0 { format!("{:.1} ms", seconds * 1e3) } else { format!("{seconds:.2} s") }
}

#[cfg(test)]
mod tests {
    use confide_statement::{Direction, Predicate, Transcript};

    use super::*;

    #[test]
    fn a_statement_draws_no_line_of_its_own() {
        let text = "größe \"x\"\n\u{1b}[2K\u{9b}1A\u{202e}\u{7f}\u{2028}".to_string();
        let predicate = Predicate::Contains { direction: Direction::Response, text };
        let claim = Transcript { root: [0; 32], depth: 1, predicate };
        let shown = statement_fields(&Statement::Transcript(claim));
        let (_, predicate) = shown.iter().find(|(name, _)| name == "predicate").unwrap();
        assert!(predicate.contains("größe"), "{predicate}");
        for hidden in ['\n', '\u{1b}', '\u{9b}', '\u{202e}', '\u{7f}', '\u{2028}'] {
            assert!(!predicate.contains(hidden), "{hidden:?}: {predicate:?}");
        }
    }
}
