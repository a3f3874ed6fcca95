//! Judgement of a record: what it is, and whether to believe it, before any figure.

use confide_estimate::minimum_detectable_effect;

use super::{download::RecordAttachment, layers::describe_left_out_arms, view::RecordView};
use crate::{
    disturbed::DISTURBED_WARNS,
    document::{
        Block, Cell, CellContent, Column, Judgement, JudgementColour, Section, Table, TableRow,
    },
    format::format_number,
    plan::Effort,
    record::Record,
    utc::format_utc,
    validity::Validity,
};

/// Judges whether the record may be believed, and lists what is missing from it.
pub(crate) fn judgements(record: &Record) -> Vec<Judgement> {
    let mut out = vec![validity_judgement(record)];
    out.extend(disturbance_judgement(record));
    let mut warn = |strong: String, text: &str| {
        out.push(Judgement { class: JudgementColour::Warn, strong, text: text.to_owned() });
    };
    for remark in &record.remarks {
        warn("Origin:".into(), remark);
    }
    if let Some(reason) = &record.partial {
        warn("Partial.".into(), reason);
    }
    for not in &record.not_run {
        warn(format!("{} was not run.", not.bench), &not.reason);
    }
    let mut benches: Vec<&str> = record.arms.iter().map(|arm| arm.bench.as_str()).collect();
    benches.dedup();
    for text in benches.into_iter().filter_map(|bench| describe_left_out_arms(record, bench)) {
        warn("Left out:".into(), &text);
    }
    for cut in &record.cut {
        let text = format!("{} of {} blocks: {}", cut.blocks, cut.planned, cut.reason);
        warn(format!("{} was cut.", cut.bench), &text);
    }
    if record.sessions.len() > 1 {
        let text = "processes, and perhaps the boot, differ between them.";
        warn(format!("Interrupted and resumed, {} sessions:", record.sessions.len()), text);
    }
    if let Some(first) = record.voids.first() {
        let text = match record.voids.len() {
            1 => format!("one run is excluded: {}", first.reason),
            count => format!("{count} runs are excluded, the first: {}", first.reason),
        };
        warn("Void:".into(), &text);
    }
    if record.rows.iter().any(|row| row.simulated) {
        let text = "rows marked so use simulated evidence, devices or delays. They show what protocols and checks \
                    cost, not that a machine protects anything.";
        warn("Simulated:".into(), text);
    }
    out
}

/// Warns where other work on the machine reached too many runs.
fn disturbance_judgement(record: &Record) -> Option<Judgement> {
    let share = record.disturbed_share();
    (share >= DISTURBED_WARNS).then(|| Judgement {
        class: JudgementColour::Warn,
        strong: format!("{:.0} % of the runs were disturbed: indicative only.", share * 100.0),
        text: "Something else on the machine took CPU time, memory or speed while they ran; each row says what and \
               how often. Run it again on a quiet machine before you quote it."
            .to_owned(),
    })
}

/// Says how small a difference the headline A/A rows could have shown; empty where none has an interval.
fn describe_power(record: &Record) -> String {
    let twins = record.rows.iter().filter(|row| row.twin && row.headline && row.has_interval());
    let effects = twins.filter_map(|row| {
        let ends = row.ratio?;
        minimum_detectable_effect((ends.high / ends.low).ln() / 2.0, row.blocks).map(f64::exp_m1)
    });
    let effects: Vec<f64> = effects.filter(|effect| effect.is_finite()).collect();
    let bounds =
        effects.iter().copied().reduce(f64::min).zip(effects.iter().copied().reduce(f64::max));
    match bounds {
        Some((least, most)) => format!(
            " The smallest difference that these rows could have shown is {} to {} %.",
            format_number(least * 100.0),
            format_number(most * 100.0)
        ),
        None => String::new(),
    }
}

fn validity_judgement(record: &Record) -> Judgement {
    let is_disturbed = record.disturbed_share() >= DISTURBED_WARNS;
    let passed = if is_disturbed { JudgementColour::Warn } else { JudgementColour::Good };
    let (class, strong, text) = match &record.validity {
        Validity::Valid { judged, failed } if *failed > 0 => (
            JudgementColour::Warn,
            format!("A/A passed, {} of {judged}.", judged - failed),
            "That is no more than chance explains among so many; the rows that they belong to are \
             marked invalid."
                .to_owned(),
        ),
        Validity::Valid { judged, .. } => (
            passed,
            format!("A/A passed, {judged} of {judged}."),
            "Each reference arm ran a second time as if it were another arm, and the two did not \
             differ."
                .to_owned()
                + &describe_power(record),
        ),
        Validity::NotJudged { reason } => (
            JudgementColour::Warn,
            "A/A not judged: indicative only.".into(),
            format!("{reason}. Run it with more blocks before you quote it."),
        ),
        Validity::Invalid { reasons } => (
            JudgementColour::Bad,
            "A/A failed: this run is invalid.".into(),
            format!(
                "The same arm against itself came out different ({}). The machine was not steady \
                 enough; do not quote these figures.",
                reasons.join("; ")
            ),
        ),
    };
    Judgement { class, strong, text }
}

/// Returns the judgements as blocks of a section.
pub(super) fn judgement_blocks(record: &Record) -> Vec<Block> {
    judgements(record).into_iter().map(Block::Judgement).collect()
}

/// Counts what the A/A rows say of many records, in one sentence.
pub(super) fn describe_validity(views: &[RecordView<'_>]) -> String {
    let count =
        |is: fn(&Validity) -> bool| views.iter().filter(|one| is(&one.record.validity)).count();
    let counts: Vec<String> = [
        (count(|v| matches!(v, Validity::Valid { .. })), "passed the A/A check"),
        (
            count(|v| matches!(v, Validity::NotJudged { .. })),
            "indicative only (too few blocks for the A/A check)",
        ),
        (count(|v| matches!(v, Validity::Invalid { .. })), "invalid (failed the A/A check)"),
    ]
    .into_iter()
    .filter(|(count, _)| *count > 0)
    .map(|(count, what)| format!("{count} {what}"))
    .collect();
    format!("Of {} records: {}.", views.len(), counts.join("; "))
}

/// Lists the facts that place a record: its start, suite, machine, version and duration.
pub(crate) fn record_summary(record: &Record) -> Vec<String> {
    let effort = match record.effort {
        Effort::Quick => "quick",
        Effort::Full => "full",
    };
    let memory = record.machine.memory_bytes as f64 / f64::from(1 << 30);
    vec![
        format_utc(record.started_unix_s),
        format!("suite {} ({effort})", record.suite.name),
        format!(
            "{}, {} CPUs, {memory:.0} GiB",
            record.machine.describe_processor(),
            record.machine.cpus_online
        ),
        format!("confide {} at {}", record.version, short_commit(&record.commit)),
        format!("{:.0} s", record.wall_s),
    ]
}

/// Builds the list of the records of a report, each with what its A/A rows say; in a page with its
/// download.
pub(super) fn record_list_section(
    views: &[RecordView<'_>],
    attached: &[RecordAttachment],
) -> Section {
    let columns = vec![
        Column::new_label("suite"),
        Column::new_text("machine"),
        Column::new_text("A/A check"),
        Column::new_text("data").with_class("data"),
    ];
    let mut table = Table::new("The records of this report", columns);
    for (number, view) in views.iter().enumerate() {
        let facts = record_summary(view.record);
        let judgements = judgements(view.record);
        let (first, others) = (&judgements[0], &judgements[1..]);
        let mut others: Vec<&str> =
            others.iter().map(|one| one.strong.trim_end_matches([':', '.'])).collect();
        others.dedup();
        let link = attached.get(number).map_or_else(String::new, |attached| {
            format!("<a href=\"#r{number}\">Its report</a><br>{}", attached.render_link())
        });
        table.push_row(TableRow {
            class: "item",
            attributes: vec![("suite", view.record.suite.name.clone())],
            cells: vec![
                Cell::from(view.record.suite.title.clone())
                    .with_note(format!("{}, {}", facts[1], facts[0])),
                Cell::from(facts[2].clone()).with_note(facts[3..].join(", ")),
                Cell::new(CellContent::Verdict(first.class), first.strong.clone())
                    .with_note(others.join("; ")),
                Cell::new(CellContent::Markup, link),
            ],
        });
    }
    let section = Section::new("The records of this report", vec![Block::Table(table)]);
    Section { id: "records".to_owned(), ..section }
}

/// Returns the first ten digits of a commit, and whether the folder had changes.
pub(crate) fn short_commit(commit: &str) -> String {
    let (hash, dirty) = commit.split_once('-').map_or((commit, ""), |(hash, _)| (hash, "-dirty"));
    let hash: String = hash.chars().take(10).collect();
    hash + dirty
}
