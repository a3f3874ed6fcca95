//! `confide policy explain`: a policy in words.

use std::{fmt::Write as _, path::PathBuf, process::ExitCode};

use confide_verifier::{FieldTreatment, Sentence};
use serde_json::{Value, json};

use super::file;
use crate::{answer::CommandReport, error::CliError};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The policy, TOML.
    file: PathBuf,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, CliError> {
    let policy = file::read_policy(&args.file)?;
    let sentences = policy.explain();
    CommandReport::new(to_text(&sentences), to_json(&sentences)).print(args.json)
}

const GROUPS: [(FieldTreatment, &str, &str); 3] = [
    (FieldTreatment::Checked, "checked", "Evidence is refused unless:"),
    (FieldTreatment::Unchecked, "unchecked", "Not checked:"),
    (FieldTreatment::Dangerous, "dangerous", "DANGEROUS, disabled explicitly by this policy:"),
];

fn to_text(sentences: &[Sentence]) -> String {
    let mut text = String::new();
    let width = sentences.iter().map(|sentence| sentence.field.len()).max().unwrap_or(0);
    for (stance, _, heading) in GROUPS {
        let mut group = sentences.iter().filter(|sentence| sentence.stance == stance).peekable();
        if group.peek().is_none() {
            continue;
        }
        let _ = writeln!(text, "{heading}");
        for Sentence { field, text: words, .. } in group {
            let _ = writeln!(text, "  {field:<width$}  {words}");
        }
        text.push('\n');
    }
    text + "Always checked, whatever a policy says: every signature from the root down, every date,\n\
            revocation, and the rules that docs/policy.md lists under \"What no policy can change\".\n"
}

fn to_json(sentences: &[Sentence]) -> Value {
    let mut object = json!({});
    for (stance, name, _) in GROUPS {
        let group = sentences.iter().filter(|sentence| sentence.stance == stance);
        let fields: Vec<Value> = group
            .map(|sentence| json!({ "field": sentence.field, "text": sentence.text }))
            .collect();
        object[name] = fields.into();
    }
    object
}

#[cfg(test)]
mod tests {
    use confide_verifier::Policy;

    use super::*;

    #[test]
    fn a_weakening_stands_in_a_group_of_its_own() {
        let text = "tcb_status = \"dangerous-any\"\n";
        let sentences = Policy::from_toml(text).unwrap().explain();
        let text = to_text(&sentences);
        let (before, after) = text.split_once("DANGEROUS").expect("a group");
        assert!(after.contains("tcb_status") && !before.contains("tcb_status"), "{text}");
        assert_eq!(to_json(&sentences)["dangerous"].as_array().unwrap().len(), 1);
        assert!(to_text(&Policy::default().explain()).lines().all(|line| !line.contains("DANGER")));
    }
}
