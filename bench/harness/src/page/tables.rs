//! The tables of a record: headline rows with published figures, every comparison, every figure.

use super::{published::protection, view::RecordView, words::tally};
use crate::{
    document::{Attributes, Block, Cell, Column, Content, Section, Table, TableBody, TableRow},
    fit::fit_record,
    format::{digits, metric, value},
    published::has_params,
    record::{ArmRecord, Record},
    rows::{
        row::{Figure, Row},
        text::{cost, judgement, pairing, sides, verdict_class, verdict_name},
    },
    suite::{
        SeedFigure,
        bench::{Params, Show},
    },
};

/// Returns the attributes by which the filters of a page find a row.
pub(super) fn row_attributes(view: &RecordView<'_>, row: &Row) -> Attributes {
    let mut attributes = vec![
        ("suite", view.record.suite.name.clone()),
        ("layer", view.layer(&row.bench, &row.model).id().to_owned()),
        ("arm", row.arm.clone()),
        ("metric", row.metric.clone()),
        ("verdict", verdict_name(row).to_owned()),
    ];
    if row.twin {
        attributes.push(("aa", String::new()));
    }
    attributes
}

/// Builds the table of headline rows, their A/A rows below, and published figures in a column of
/// their own.
pub(super) fn headline(view: &RecordView<'_>, number: usize) -> Section {
    let record = view.record;
    let rows: Vec<&Row> = record.rows.iter().filter(|row| row.headline).collect();
    let sources = sources(record);
    let mut columns = vec![
        Column::label("layer"),
        Column::number("clear"),
        Column::number("protected"),
        Column::text("cost [95 %]").with_name("cost").with_class("cost"),
        Column::number("n"),
        Column::text("verdict"),
    ];
    if !sources.is_empty() {
        let ours = if rows.iter().any(|row| row.simulated) { "; ours simulated" } else { "" };
        let heading = format!("published figures: their hardware and network{ours}");
        columns.push(Column::text(&heading).with_name("published").with_class("seed"));
    }
    let mut table = Table::new("Cost of each layer", columns);
    for row in rows.iter().filter(|row| !row.twin) {
        table.push_row(headline_row(view, row, &sources));
    }
    if rows.iter().any(|row| row.twin) {
        let heading =
            "A/A: the reference arm against itself. A sound instrument finds nothing here.";
        table.bodies.push(TableBody { heading: heading.to_owned(), rows: Vec::new() });
    }
    for row in rows.iter().filter(|row| row.twin) {
        table.push_row(headline_row(view, row, &sources));
    }
    let mut blocks = match rows.as_slice() {
        [] => vec![Block::Paragraph("No row has two blocks.".to_owned())],
        _ => vec![Block::Table(table)],
    };
    if !sources.is_empty() {
        blocks.push(Block::Sources(sources.iter().map(|source| (*source).to_owned()).collect()));
    }
    Section {
        id: format!("rows-{number}"),
        heading: "Cost of each layer".to_owned(),
        about: format!(
            "{} Each block runs every arm once, in random order; a cost is the mean over n blocks with \
             its 95 % interval. A verdict is about a margin that was set before the run.",
            tally(rows.iter().copied())
        ),
        blocks,
    }
}

fn headline_row(view: &RecordView<'_>, row: &Row, sources: &[&str]) -> TableRow {
    let label = if row.twin { format!("A/A {}", row.label) } else { row.label.clone() };
    let mut label = Cell::from(label);
    if let Some(arm) = protecting_arm(view.record, row) {
        label.notes.push(("guards", format!("protection: {}", protection(arm))));
    }
    let label = row
        .notes
        .iter()
        .fold(label.with_note(origin(view, row)), |label, note| label.with_note(note.long()));
    let [clear, protected] = sides(row);
    let mut cells = vec![
        label,
        Cell::from(clear).with_sort(row.clear),
        Cell::from(protected).with_sort(row.protected),
        Cell::new(Content::Figure, cost(row)).with_sort(cost_size(row)),
        Cell::from(row.blocks.to_string()).with_sort(row.blocks as f64),
        verdict_cell(row),
    ];
    if !sources.is_empty() {
        cells.push(seed_text(view.record, row, sources).into());
    }
    TableRow { class: "item", attributes: row_attributes(view, row), cells }
}

fn verdict_cell(row: &Row) -> Cell {
    Cell::new(Content::Verdict(verdict_class(row)), judgement(row)).with_simulated(row.simulated)
}

/// Finds the arm of a row; `None` for an A/A row.
fn protecting_arm<'a>(record: &'a Record, row: &Row) -> Option<&'a ArmRecord> {
    let is = |arm: &&ArmRecord| arm.name == row.arm && arm.bench == row.bench && !arm.twin;
    record.arms.iter().find(is).filter(|_| !row.twin)
}

/// Describes which arms a row is of, their round trips, the ratio to a floor, and the definition of
/// its figure.
fn origin(view: &RecordView<'_>, row: &Row) -> String {
    let reference = view.arm_label(&row.reference);
    let arms = if row.twin {
        format!("{reference}, twice")
    } else {
        format!("{reference} → {}", row.arm_label)
    };
    let mut parts = vec![arms];
    if let [Some(clear), Some(protected)] = row.round_trips
        && !row.twin
    {
        parts.push(format!("{clear:.0} → {protected:.0} round trips before the first byte"));
    }
    if let Some(floor) = &row.floor {
        parts.push(format!("{} of the floor ({})", digits(floor.value), floor.name));
    }
    if let Some(ratio) = row.ratio
        && !row.twin
        && row.has_interval()
        && row.show == Show::Difference
    {
        parts.push(format!("x{:.2} [{:.2}, {:.2}]", ratio.value, ratio.low, ratio.high));
    }
    parts.push(format!("{}, {}, {} loop", row.model, row.metric, row.load));
    parts.join(" · ")
}

/// Returns the number that a cost is sorted by: its ratio, else its difference.
pub(super) fn cost_size(row: &Row) -> f64 {
    row.ratio.map_or(row.difference.value, |ends| ends.value)
}

/// Lists the sources of the published figures that answer headline rows of this run, each once.
fn sources(record: &Record) -> Vec<&str> {
    let mut known: Vec<&str> = Vec::new();
    let answers_a_row = |figure: &&SeedFigure| {
        let mut rows = record.rows.iter().filter(|row| row.headline && !row.twin);
        rows.any(|row| is_figure_of(figure, row))
    };
    for figure in record.seed_figures.iter().filter(answers_a_row) {
        if !known.contains(&figure.source.as_str()) {
            known.push(&figure.source);
        }
    }
    known
}

/// Returns the letter of a source below the table.
fn letter(source: usize) -> char {
    char::from(b'a' + (source % 26) as u8)
}

fn seed_text(record: &Record, row: &Row, sources: &[&str]) -> String {
    let figure = |arm: Option<&str>| {
        let mut figures = record.seed_figures.iter().filter(|figure| is_figure_of(figure, row));
        figures.find(|figure| figure.arm.as_deref() == arm).filter(|_| !row.twin)
    };
    let figures = [figure(None), figure(Some(&row.arm))];
    let Some(last) = figures.iter().flatten().last() else { return String::new() };
    let values: Vec<&str> = figures.iter().flatten().map(|figure| figure.value.as_str()).collect();
    let source = sources.iter().position(|source| *source == last.source).unwrap_or_default();
    format!("{} ({})", values.join(" → "), letter(source))
}

fn is_figure_of(figure: &SeedFigure, row: &Row) -> bool {
    figure.bench == row.bench
        && figure.metric == row.metric
        && has_params(&Params::new(), &row.case, &figure.params)
}

/// Builds the table of rows of every metric, A/A rows among them.
pub(super) fn comparisons<'a>(view: &RecordView<'_>, rows: impl Iterator<Item = &'a Row>) -> Table {
    let columns = vec![
        Column::label("bench"),
        Column::text("metric"),
        Column::text("arm"),
        Column::number("reference"),
        Column::number("arm's"),
        Column::text("cost [95 %]").with_name("cost"),
        Column::number("correlation of pairs").with_name("pairs"),
        Column::number("n"),
        Column::text("verdict"),
    ];
    let mut table = Table::new("Every comparison", columns);
    for row in rows {
        let correlation = row.correlation.map_or_else(String::new, |r| format!("{r:.2}"));
        let [clear, protected] = sides(row);
        let cells = vec![
            Cell::from(row.bench.clone())
                .with_note(format!("{} · {}, {} loop", row.case, row.model, row.load)),
            metric(&row.metric, row.stat, row.better).into(),
            format!("{}{}", row.arm_label, if row.twin { " (A/A)" } else { "" }).into(),
            Cell::from(clear).with_sort(row.clear),
            Cell::from(protected).with_sort(row.protected),
            Cell::from(cost(row)).with_sort(cost_size(row)),
            Cell::from(correlation)
                .with_sort(row.correlation.unwrap_or(-2.0))
                .with_note(pairing(row).unwrap_or_default()),
            Cell::from(row.blocks.to_string()).with_sort(row.blocks as f64),
            verdict_cell(row),
        ];
        let attributes = row_attributes(view, row);
        table.push_row(TableRow { class: "item counted", attributes, cells });
    }
    table
}

/// Describes how cost grows with work, where the suite asks for it.
pub(super) fn growth(record: &Record) -> Section {
    let columns =
        vec![Column::label("of what"), Column::text("fixed, and for each unit").with_name("cost")];
    let mut table = Table::new("How cost grows with work", columns);
    for fitted in fit_record(record) {
        table.push(vec![
            Cell::from(fitted.name).with_simulated(fitted.simulated),
            fitted.text.into(),
        ]);
    }
    let about = "A fixed part and a part for each unit, by least squares of the relative errors over the \
                 sizes of this run.";
    let heading = table.name.clone();
    let blocks = if table.is_empty() { Vec::new() } else { vec![Block::Table(table)] };
    Section { about: about.to_owned(), ..Section::new(heading, blocks) }
}

/// Builds the table of pooled means and percentiles of every metric of every arm.
pub(super) fn figures(view: &RecordView<'_>) -> Table {
    let text = ["arm", "metric"].map(Column::text);
    let numbers = ["n", "mean", "p50", "p95", "p99"].map(Column::number);
    let columns = [Column::label("bench")].into_iter().chain(text).chain(numbers).collect();
    let mut table = Table::new("All figures", columns);
    for figure in &view.record.figures {
        let label = view.arm_label(&figure.arm);
        let mut attributes = vec![
            ("suite", view.record.suite.name.clone()),
            ("arm", figure.arm.clone()),
            ("metric", figure.metric.clone()),
        ];
        let mut twin = "";
        if figure.twin {
            twin = " (A/A)";
            attributes.push(("aa", String::new()));
        }
        let mut cells = vec![
            Cell::from(figure.bench.clone()).with_note(figure.case.clone()),
            Cell::from(format!("{label}{twin}")).with_simulated(figure.simulated),
            figure.metric.clone().into(),
            Cell::from(figure.n.to_string()).with_sort(figure.n as f64),
        ];
        cells.extend(figure_cells(figure));
        table.push_row(TableRow { class: "item", attributes, cells });
    }
    table
}

/// Formats the mean and the three percentiles of a figure; a dash for one without a tail.
pub(super) fn figure_cells(figure: &Figure) -> [Cell; 4] {
    [Some(figure.mean), figure.p50, figure.p95, figure.p99]
        .map(|number| number_cell(&figure.metric, number))
}

/// Formats a number of a metric with its unit; a dash where there is none.
pub(super) fn number_cell(metric: &str, number: Option<f64>) -> Cell {
    match number {
        Some(number) => Cell::from(value(metric, number)).with_sort(number),
        None => "–".into(),
    }
}
