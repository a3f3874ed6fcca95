//! What a proof is, for people and for programs.

use std::{fmt::Write as _, path::Path};

use confide_prover::{
    Header, StageUsage,
    line::{Digest, StageResult, Strength},
};
use confide_statement::Statement;
use serde_json::{Map, Value, json};

use super::size;

/// What the four stages gave.
pub(super) struct Proved {
    pub(super) statement: Statement,
    pub(super) header: Header,
    pub(super) body_bytes: usize,
    /// The whole file.
    pub(super) file: Vec<u8>,
    pub(super) prover_sha256: Digest,
    pub(super) stages: [(StageResult, StageUsage); 4],
}

pub(super) fn text(proved: &Proved, path: &Path) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "{:<19}{:>12}{:>12}{:>16}", "stage", "wall", "CPU", "peak memory");
    for (done, used) in &proved.stages {
        let least = if used.peak_is_at_most { "<= " } else { "" };
        let peak = format!("{least}{}", size::shown(used.peak_rss_bytes));
        let (wall, cpu) = (seconds(used.wall.as_secs_f64()), seconds(used.cpu.as_secs_f64()));
        let _ = writeln!(text, "{:<19}{wall:>12}{cpu:>12}{peak:>16}", done.stage.name());
    }
    let prove = &proved.stages[2];
    let khz = proved.header.cycles as f64 / prove.1.wall.as_secs_f64() / 1000.0;
    text.push_str(&facts(&proved.statement, &proved.header, &[]));
    let _ = writeln!(text, "{:<19}{khz:.1} kHz, by the wall clock of its process", "proving");
    let _ = writeln!(text, "{:<19}{} ({} bytes)", "proof", path.display(), proved.file.len());
    text
}

pub(super) fn json(proved: &Proved, path: &Path) -> Value {
    let mut object = facts_json(&proved.statement, &proved.header);
    let stages: Map<String, Value> = proved
        .stages
        .iter()
        .map(|(done, used)| (done.stage.name().to_string(), stage_json(done, *used)))
        .collect();
    object.insert("stages".into(), stages.into());
    object.insert("prover_sha256".into(), proved.prover_sha256.to_string().into());
    object.insert("proof_bytes".into(), proved.body_bytes.into());
    object.insert("file_bytes".into(), proved.file.len().into());
    object.insert("out".into(), path.display().to_string().into());
    Value::Object(object)
}

/// What one process used, for programs.
pub(crate) fn stage_json(done: &StageResult, used: StageUsage) -> Value {
    json!({
        "wall_s": used.wall.as_secs_f64(),
        "cpu_s": used.cpu.as_secs_f64(),
        "peak_rss_bytes": used.peak_rss_bytes,
        "peak_is_at_most": used.peak_is_at_most,
        "parts": done.parts,
    })
}

/// The lines that stand beside every proof: what it says, what it rests on, what it hides. `unproved`
/// names the fields that no check can tell.
pub(crate) fn facts(statement: &Statement, header: &Header, unproved: &[&str]) -> String {
    let mut text = String::new();
    let told = |name: &str| if unproved.contains(&name) { " (the prover's word)" } else { "" };
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<19}{value}");
    };
    let Strength { proven_bits, conjectured_bits, zero_knowledge } = header.strength;
    line("statement", format!("{} {}", header.claim, Digest(statement.digest())));
    for (name, value) in fields(statement) {
        line("", format!("{name}: {value}"));
    }
    line("program", header.program_digest.to_string());
    line(
        "back end",
        format!("{} {}, {} proof", header.backend, header.backend_version, header.mode),
    );
    line("security", format!("{proven_bits} bits proven, {conjectured_bits} bits conjectured"));
    line("zero-knowledge", if zero_knowledge { "yes" } else { "no" }.to_string());
    line("hidden", hidden(zero_knowledge).to_string());
    line("segments", format!("{}{}", header.segments, told("segments")));
    line("cycles", format!("{}{}", header.cycles, told("cycles")));
    text
}

/// The same for programs.
pub(crate) fn facts_json(statement: &Statement, header: &Header) -> Map<String, Value> {
    let Strength { proven_bits, conjectured_bits, zero_knowledge } = header.strength;
    let object = json!({
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
        "hidden": hidden(zero_knowledge),
        "segments": header.segments,
        "cycles": header.cycles,
    });
    match object {
        Value::Object(object) => object,
        _ => Map::new(),
    }
}

/// What stays hidden from whom; nothing is promised that the back end does not promise.
fn hidden(zero_knowledge: bool) -> &'static str {
    match zero_knowledge {
        true => "the input, from everyone who holds the proof; the statement is open",
        false => {
            "nothing is promised: the proof is short, not zero-knowledge, and may tell of the input"
        }
    }
}

/// The statement's own fields, one a line.
fn fields(statement: &Statement) -> Vec<(String, String)> {
    let Value::Object(fields) = statement.to_json() else { return Vec::new() };
    let shown = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_string);
    let all = fields.iter().filter(|(name, _)| *name != "claim");
    all.map(|(name, value)| (name.clone(), visible(&shown(value)))).collect()
}

/// Text that whoever made the proof chose, without what moves a cursor or turns the writing round:
/// a statement must not draw an answer of its own.
fn visible(text: &str) -> String {
    let mut shown = String::new();
    for character in text.chars() {
        match character {
            '"' | '\'' | '\\' => shown.push(character),
            _ => shown.extend(character.escape_debug()),
        }
    }
    shown
}

fn seconds(seconds: f64) -> String {
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
        let shown = fields(&Statement::Transcript(claim));
        let (_, predicate) = shown.iter().find(|(name, _)| name == "predicate").unwrap();
        assert!(predicate.contains("größe"), "{predicate}");
        for hidden in ['\n', '\u{1b}', '\u{9b}', '\u{202e}', '\u{7f}', '\u{2028}'] {
            assert!(!predicate.contains(hidden), "{hidden:?}: {predicate:?}");
        }
    }
}
