//! Published tables with our figures next to theirs, and the quoted rates of other systems.

use super::view::RecordView;
use crate::{
    document::{Block, Cell, CellContent, Column, JudgementColour, Section, Table, TableRow},
    format::format_value,
    published::{FigureKey, QuotedRate, QuotedRow, QuotedTable, case_has_params},
    record::ArmRecord,
    rows::row::PooledFigure,
    suite::bench::Params,
};

/// Builds the section of every published table, theirs and ours.
pub(super) fn published_tables_section(view: &RecordView<'_>) -> Section {
    let about = "Each table as it was published, next to the figures of this run for the same rows and to what each of \
                 them protects. Hardware and models differ, so no ratio is given. This run's figures are \
                 means over all its samples.";
    let tables = view.record.answers.iter();
    let blocks = tables.flat_map(|table| published_table_blocks(view, table)).collect();
    Section {
        about: about.to_owned(),
        ..Section::new("Published tables, next to this run", blocks)
    }
}

/// Builds the section of rates of other systems: quoted, with ours between them.
pub(super) fn quoted_rates_section(view: &RecordView<'_>) -> Section {
    let columns = vec![
        Column::new_label("system"),
        Column::new_text("what is encrypted").with_name("encrypted"),
        Column::new_text("who is protected from whom").with_name("protects"),
        Column::new_text("rate"),
        Column::new_text("the report's table says").with_name("the report").with_class("theirs"),
        Column::new_text("source"),
    ];
    let mut table = Table::new("Other systems, as published", columns);
    for row in &view.record.quoted {
        table.push_row(quoted_row(view, row));
    }
    let about = "Figures that others published, on their hardware and with their models, except for the rows \
                 marked as measured. Rates are comparable only where the same is protected: a system that \
                 hides everything from everybody does more than one that hides one thing from one party.";
    let blocks = if table.is_empty() { Vec::new() } else { vec![Block::Table(table)] };
    Section { about: about.to_owned(), ..Section::new("Other systems, as published", blocks) }
}

/// Says who is protected from whom in an arm: what it computed of itself, else what the suite says.
pub(super) fn arm_protection(arm: &ArmRecord) -> &str {
    arm.guarantee.as_deref().unwrap_or(&arm.protects)
}

fn published_table_blocks(view: &RecordView<'_>, answers: &QuotedTable) -> [Block; 3] {
    let columns = vec![
        Column::new_label("row"),
        Column::new_text("published").with_class("theirs"),
        Column::new_text("this run"),
        Column::new_text("what this run measured").with_name("measured"),
        Column::new_text("who is protected in this run").with_name("protects"),
    ];
    let mut table = Table::new(answers.title.clone(), columns);
    let mut above = "";
    for row in &answers.rows {
        let arm = row.ours.iter().find(|ours| find_figure(view, ours).is_some());
        let arm = arm.and_then(|ours| find_arm(view, ours));
        let protects = arm.map_or("", arm_protection);
        // What a row protects is not repeated where the row above says it.
        let is_repeated = protects == above && !above.is_empty();
        let protects_text = if is_repeated { "as above" } else { protects };
        table.push(vec![
            row.what.clone().into(),
            row.theirs.clone().into(),
            our_figures_cell(view, row).with_simulated(arm.is_some_and(|arm| arm.simulated)),
            our_arms_cell(view, row).with_note(row.note.clone().unwrap_or_default()),
            protects_text.into(),
        ]);
        above = if protects.is_empty() { above } else { protects };
    }
    let note = answers.note.as_deref().unwrap_or_default();
    let QuotedTable { title, source, protects, .. } = answers;
    [
        Block::Heading(title.clone()),
        Block::Paragraph(format!(
            "{source}. What the published system protects: {protects}. {note}"
        )),
        Block::Table(table),
    ]
}

fn our_figures_cell(view: &RecordView<'_>, row: &QuotedRow) -> Cell {
    let mut values: Vec<String> = row.ours.iter().map(|ours| describe_figure(view, ours)).collect();
    values.dedup();
    Cell::new(CellContent::Strong, values.join("; "))
}

/// Names the arms of our figures, or says why there is none.
fn our_arms_cell(view: &RecordView<'_>, row: &QuotedRow) -> Cell {
    if let Some(reason) = &row.absent {
        return Cell::new(CellContent::Verdict(JudgementColour::Mute), reason.clone());
    }
    let mut arms: Vec<&str> = Vec::new();
    for arm in row.ours.iter().filter_map(|ours| find_arm(view, ours)) {
        if !arms.contains(&arm.label.as_str()) {
            arms.push(&arm.label);
        }
    }
    arms.join(" and ").into()
}

fn quoted_row(view: &RecordView<'_>, row: &QuotedRate) -> TableRow {
    let ours = row.ours.as_ref();
    let protects = ours.and_then(|ours| find_arm(view, ours)).map(arm_protection);
    let protects = row.protects.as_deref().or(protects).unwrap_or_default();
    let (class, kind, rate) = match ours {
        Some(ours) => {
            ("ours", "measured", Cell::new(CellContent::Strong, describe_figure(view, ours)))
        }
        None => ("", "quoted", row.rate.clone().unwrap_or_default().into()),
    };
    let cells = vec![
        Cell::from(row.system.clone())
            .with_note(format!("{kind}: {}, {}", row.model, row.hardware)),
        row.encrypted.clone().into(),
        protects.into(),
        rate,
        row.seed_says.clone().unwrap_or_default().into(),
        row.source.clone().into(),
    ];
    TableRow { class, cells, ..TableRow::default() }
}

fn find_arm<'a>(view: &RecordView<'a>, ours: &FigureKey) -> Option<&'a ArmRecord> {
    let is = |arm: &&ArmRecord| arm.bench == ours.bench && arm.name == ours.arm && !arm.twin;
    view.record.arms.iter().find(is)
}

fn find_figure<'a>(view: &RecordView<'a>, ours: &FigureKey) -> Option<&'a PooledFigure> {
    let is = |figure: &&PooledFigure| {
        !figure.twin
            && figure.bench == ours.bench
            && figure.arm == ours.arm
            && figure.metric == ours.metric
            && case_has_params(&Params::new(), &figure.case, &ours.params)
    };
    view.record.figures.iter().find(is)
}

/// Formats the figure with its unit, or says why there is none.
fn describe_figure(view: &RecordView<'_>, ours: &FigureKey) -> String {
    if let Some(figure) = find_figure(view, ours) {
        return format_value(&ours.metric, figure.mean);
    }
    let record = view.record;
    let has_failed = record.not_run.iter().any(|not| not.bench == ours.bench);
    match find_arm(view, ours) {
        None if !has_failed && record.partial.is_none() => "measured in a full run only".into(),
        Some(arm) if !has_failed && arm.given_up.is_none() => "not measured".into(),
        _ => "not run".into(),
    }
}
