//! What was compared, and who is protected from whom.

use std::fmt::Write;

use super::html::{escape, scroll, simulated};
use crate::record::{ArmRecord, Record};

/// One table per distinct set of arms.
pub(super) fn section(record: &Record) -> String {
    let mut out = format!(
        "<h2>What was compared, and who is protected from whom</h2>\n\
         {}<table class=\"cards\"><thead><tr><th scope=\"col\">arm</th>\
         <th scope=\"col\">what it does</th><th scope=\"col\">who is protected from whom</th>\
         <th scope=\"col\">what it says of itself</th></tr></thead><tbody>\n",
        scroll("What was compared"),
    );
    let mut seen: Vec<&str> = Vec::new();
    for arm in record.arms.iter().filter(|arm| !arm.twin) {
        if seen.contains(&arm.name.as_str()) {
            continue;
        }
        seen.push(&arm.name);
        let benches: Vec<&str> = record
            .arms
            .iter()
            .filter(|other| !other.twin && other.name == arm.name)
            .map(|other| other.bench.as_str())
            .collect();
        let _ = writeln!(
            out,
            "<tr><td class=\"layer\">{}{}<small class=\"soft\">{}</small></td>\
             <td data-name=\"does\">{}</td><td data-name=\"protects\">{}</td>\
             <td data-name=\"says\">{}</td></tr>",
            escape(&arm.label),
            simulated(arm.simulated),
            escape(&benches.join(", ")),
            escape(&arm.description),
            escape(&arm.protects),
            escape(&describe_arm(arm)),
        );
    }
    out + "</tbody></table></div>\n"
}

fn describe_arm(arm: &ArmRecord) -> String {
    let guarantee = arm.guarantee.as_ref().map(|text| format!("guarantee: {text}"));
    // Some arms note what they guarantee: once is enough.
    let note = arm.note.clone().filter(|note| arm.guarantee.as_ref() != Some(note));
    let parts = [Some(arm.version.clone()), guarantee, note];
    let parts: Vec<String> = parts.into_iter().flatten().filter(|text| !text.is_empty()).collect();
    parts.join(" · ")
}
