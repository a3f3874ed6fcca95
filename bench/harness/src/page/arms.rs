//! What was compared, and who is protected from whom.

use crate::{
    document::{Block, Cell, Column, Section, Table},
    record::{ArmRecord, Record},
};

/// Lists every arm once, with the benches that it is in.
pub(super) fn arms_section(record: &Record) -> Section {
    let heading = "What was compared, and who is protected from whom";
    let columns = vec![
        Column::new_label("arm"),
        Column::new_text("what it does").with_name("does"),
        Column::new_text("who is protected from whom").with_name("protects"),
        Column::new_text("what it reports about itself").with_name("reports"),
    ];
    let mut table = Table::new(heading, columns);
    let arms: Vec<&ArmRecord> = record.arms.iter().filter(|arm| !arm.twin).collect();
    for (at, arm) in arms.iter().enumerate() {
        if arms[..at].iter().any(|known| known.name == arm.name) {
            continue;
        }
        let benches = arms[at..].iter().filter(|other| other.name == arm.name);
        let benches: Vec<&str> = benches.map(|other| other.bench.as_str()).collect();
        table.push(vec![
            Cell::from(arm.label.clone())
                .with_simulated(arm.simulated)
                .with_note(benches.join(", ")),
            arm.description.clone().into(),
            arm.protects.clone().into(),
            describe_arm(arm).into(),
        ]);
    }
    Section::new(heading, vec![Block::Table(table)])
}

fn describe_arm(arm: &ArmRecord) -> String {
    let guarantee = arm.guarantee.as_ref().map(|text| format!("guarantee: {text}"));
    // Some arms note what they guarantee: once is enough.
    let note = arm.note.clone().filter(|note| arm.guarantee.as_ref() != Some(note));
    let parts = [Some(arm.version.clone()), guarantee, note];
    let parts: Vec<String> = parts.into_iter().flatten().filter(|text| !text.is_empty()).collect();
    parts.join(" · ")
}
