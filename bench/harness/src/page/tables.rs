//! The tables of a record: headline rows with published figures, every comparison, every figure.

use super::{
    costs,
    published::arm_protection,
    view::RecordView,
    vocabulary::{metric_name, row_label},
    words::describe_verdict_counts,
};
use crate::{
    document::{Attributes, Block, Cell, CellContent, Column, Section, Table, TableBody, TableRow},
    fit::fit_cost_lines,
    format::{describe_statistic, format_number, format_value, is_duration},
    published::case_has_params,
    record::{ArmRecord, Record},
    rows::{
        row::{PooledFigure, Row, RowNote},
        text::{
            describe_pairing, format_arm_figures, format_cost, format_judgement, format_ratio,
            verdict_colour, verdict_name,
        },
    },
    suite::{
        PublishedFigure,
        bench::{CostForm, Params},
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

/// Builds the table of headline rows, one line each, with what stands behind a row folded below its
/// label, and the A/A rows in a body of their own.
pub(super) fn headline_section(view: &RecordView<'_>, number: usize) -> Section {
    let record = view.record;
    let rows: Vec<&Row> = record.rows.iter().filter(|row| row.headline).collect();
    let shared = shared_remarks(&rows);
    let mut table = Table::new(HEADING, row_columns());
    for row in rows.iter().filter(|row| !row.twin) {
        table.push_row(headline_row(view, row, &shared));
    }
    if rows.iter().any(|row| row.twin) {
        table.bodies.push(TableBody { heading: AA_HEADING.to_owned(), rows: Vec::new() });
    }
    for row in rows.iter().filter(|row| row.twin) {
        table.push_row(headline_row(view, row, &shared));
    }
    let mut blocks = match rows.as_slice() {
        [] => vec![Block::Paragraph("No row has two blocks.".to_owned())],
        _ => vec![Block::Table(table)],
    };
    if !shared.is_empty() {
        let text = format!("Remarks on every row: {}.", shared.join("; "));
        blocks.insert(0, Block::Paragraph(text));
    }
    Section {
        id: format!("rows-{number}"),
        heading: HEADING.to_owned(),
        about: format!(
            "{} Every block runs each arm once, in random order. The cost is the mean over n \
             blocks with its 95 % interval, and the verdict compares it with a margin that was set \
             before the run. With fewer than ten blocks there is neither. Open a row to see what \
             was compared, its CPU time, memory, disturbed runs and definition.",
            describe_verdict_counts(rows.iter().copied())
        ),
        blocks,
    }
}

const HEADING: &str = "Cost of each layer";
const AA_HEADING: &str =
    "A/A check: the reference arm against itself, where no difference should be found";

fn row_columns() -> Vec<Column> {
    vec![
        Column::new_label("what is measured"),
        Column::new_text("cost [95 %]").with_name("cost").with_class("cost"),
        Column::new_text("verdict").with_class("verdict"),
        Column::new_number("reference"),
        Column::new_number("this arm"),
        Column::new_number("n"),
    ]
}

/// The number of rows from which on a remark that all of them have is said once.
const SHARED_ROWS_MIN: usize = 3;

/// Lists the remarks that every row has; empty for few rows.
fn shared_remarks(rows: &[&Row]) -> Vec<String> {
    let mut rows = rows.iter().filter(|row| !row.twin);
    let Some(first) = rows.next().filter(|_| rows.clone().count() + 1 >= SHARED_ROWS_MIN) else {
        return Vec::new();
    };
    let is_shared = |remark: &String| rows.clone().all(|row| row_remarks(row).contains(remark));
    row_remarks(first).into_iter().filter(is_shared).collect()
}

/// Lists what arms and samples say against a row, each in a few words.
fn row_remarks(row: &Row) -> Vec<String> {
    let notes = row.notes.iter().map(|note| note.short_text().to_owned());
    row.marks.iter().cloned().chain(notes).collect()
}

fn headline_row(view: &RecordView<'_>, row: &Row, shared: &[String]) -> TableRow {
    let cells = row_cells(row, row_facts(view, row), shared);
    TableRow { class: "item", attributes: row_attributes(view, row), cells }
}

/// Builds the cells of a row: what is measured, with facts folded below it, cost, verdict and both
/// figures.
fn row_cells(row: &Row, folded: Vec<(String, String)>, shared: &[String]) -> Vec<Cell> {
    let [reference, arm] = format_arm_figures(row);
    vec![
        Cell { folded, ..Cell::from(row_label(row)) },
        Cell::new(CellContent::Figure, format_short_cost(row)).with_sort_key(cost_sort_key(row)),
        short_verdict_cell(row, shared),
        Cell::from(reference).with_sort_key(row.clear),
        Cell::from(arm).with_sort_key(row.protected),
        Cell::from(row.blocks.to_string()).with_sort_key(row.blocks as f64),
    ]
}

/// Formats the cost; the verdict says where it has no interval.
fn format_short_cost(row: &Row) -> String {
    let cost = format_cost(row);
    cost.split_once(", no interval").map_or(cost.as_str(), |(number, _)| number).to_owned()
}

/// Formats the cost as a difference, also where the suite shows a ratio.
pub(super) fn format_cost_as_difference(row: &Row) -> String {
    format_cost(&Row { show: CostForm::Difference, ..row.clone() })
}

/// Writes the verdict without the remarks that all rows share. A page shows it without any: these are
/// among the facts of the row.
fn short_verdict_cell(row: &Row, shared: &[String]) -> Cell {
    let without = |text: String, remark: &String| text.replace(&format!(", {remark}"), "");
    let whole = shared.iter().fold(format_judgement(row), without);
    let first = whole.split(", ").next().unwrap_or_default();
    let has_interval = row.has_interval() || row.twin || row.is_without_tail();
    let (text, mut short) = if has_interval {
        (whole.clone(), first.to_owned())
    } else {
        let text = format!("no interval: {} blocks{}", row.blocks, &whole[first.len()..]);
        (text, "no interval".to_owned())
    };
    if row.adds_at_most.is_some() && row.show == CostForm::Ratio && has_interval && !row.twin {
        // The limit is on a difference: next to a ratio alone it would have no unit in common.
        let difference = format_cost_as_difference(row);
        let number = difference.split(" [").next().unwrap_or_default();
        short = format!("{number}: {short}");
    }
    if row.client_bound && !row.twin {
        short += ", client-bound";
    }
    match row_remarks(row).iter().filter(|remark| !shared.contains(remark)).count() {
        0 => {}
        1 => short += ", 1 remark",
        many => short += &format!(", {many} remarks"),
    }
    let cell = Cell::new(CellContent::Verdict(verdict_colour(row)), text);
    Cell { short, ..cell }.with_simulated(row.simulated)
}

/// Lists what stands behind a row: what was compared, the whole verdict, what its runs used, and its
/// definition.
fn row_facts(view: &RecordView<'_>, row: &Row) -> Vec<(String, String)> {
    let fact = |name: &str, text: String| (name.to_owned(), text);
    let remarks: Vec<String> = row.notes.iter().map(RowNote::long_text).collect();
    let mut facts = vec![
        fact("compared", describe_arms(view, row)),
        fact("verdict", format_judgement(row)),
        fact("remarks", remarks.join("; ")),
        fact("as a ratio", ratio_of_difference(row).unwrap_or_default()),
        fact("round trips before the first byte", describe_round_trips(row).unwrap_or_default()),
        fact("share of the floor", describe_floor(row)),
        fact("who is protected", describe_protection(view.record, row)),
        fact("published, on other hardware", describe_published_figures(view.record, row)),
    ];
    facts.extend(costs::usage_facts(row));
    facts.push(fact("what pairing gained", describe_pairing(row).unwrap_or_default()));
    facts.push(fact("definition", describe_definition(row)));
    facts
}

fn describe_arms(view: &RecordView<'_>, row: &Row) -> String {
    let reference = view.arm_label(&row.reference);
    match row.twin {
        true => format!("{reference}, twice"),
        false => format!("{reference} → {}", row.arm_label),
    }
}

/// Says who is protected from whom in the row's arm; nothing for an A/A row.
fn describe_protection(record: &Record, row: &Row) -> String {
    let is = |arm: &&ArmRecord| arm.name == row.arm && arm.bench == row.bench && !arm.twin;
    let arm = record.arms.iter().find(is).filter(|_| !row.twin);
    arm.map(|arm| arm_protection(arm).to_owned()).unwrap_or_default()
}

/// Formats the ratio of a row whose cost is printed as a difference.
fn ratio_of_difference(row: &Row) -> Option<String> {
    let ends = row.ratio.filter(|_| row.show == CostForm::Difference && row.has_interval())?;
    Some(format_ratio(ends.value, ends.low, ends.high))
}

fn describe_round_trips(row: &Row) -> Option<String> {
    let [Some(reference), Some(arm)] = row.round_trips else { return None };
    (!row.twin).then(|| format!("{reference:.0} → {arm:.0}"))
}

fn describe_floor(row: &Row) -> String {
    let floor = row.floor.as_ref();
    floor
        .map(|floor| format!("{} of {}", format_number(floor.value), floor.name))
        .unwrap_or_default()
}

/// Returns the number that a cost is sorted by: its ratio, else its difference.
pub(super) fn cost_sort_key(row: &Row) -> f64 {
    row.ratio.map_or(row.difference.value, |ends| ends.value)
}

/// Quotes the published figures that answer a row, with their source.
fn describe_published_figures(record: &Record, row: &Row) -> String {
    let figure = |arm: Option<&str>| {
        let mut figures =
            record.seed_figures.iter().filter(|figure| is_published_figure_of(figure, row));
        figures.find(|figure| figure.arm.as_deref() == arm).filter(|_| !row.twin)
    };
    let figures = [figure(None), figure(Some(&row.arm))];
    let Some(last) = figures.iter().flatten().last() else { return String::new() };
    let values: Vec<&str> = figures.iter().flatten().map(|figure| figure.value.as_str()).collect();
    format!("{} ({})", values.join(" → "), last.source)
}

fn is_published_figure_of(figure: &PublishedFigure, row: &Row) -> bool {
    figure.bench == row.bench
        && figure.metric == row.metric
        && case_has_params(&Params::new(), &row.case, &figure.params)
}

/// Builds the table of rows of every metric, A/A rows among them.
pub(super) fn comparisons_table<'a>(
    view: &RecordView<'_>,
    rows: impl Iterator<Item = &'a Row>,
) -> Table {
    let mut table = Table::new("Every comparison", row_columns());
    for row in rows {
        let cells = row_cells(row, comparison_facts(view, row), &[]);
        let attributes = row_attributes(view, row);
        table.push_row(TableRow { class: "item counted", attributes, cells });
    }
    table
}

/// Lists what stands behind a row of the table of all rows.
fn comparison_facts(view: &RecordView<'_>, row: &Row) -> Vec<(String, String)> {
    let correlation = row.correlation.map_or_else(String::new, |r| format!("{r:.2}"));
    let bench = format!("{}, {}", row.bench, row.case);
    let facts = [
        ("bench", bench.trim_end_matches(", ").to_owned()),
        ("compared", describe_arms(view, row)),
        ("verdict", format_judgement(row)),
        ("correlation of pairs", correlation),
        ("what pairing gained", describe_pairing(row).unwrap_or_default()),
        ("statistic", describe_statistic(row.stat, row.better)),
        ("definition", describe_definition(row)),
    ];
    facts.map(|(name, text)| (name.to_owned(), text)).into()
}

/// Names the metric, its id, its definition in MODELS.md, and the kind of load.
fn describe_definition(row: &Row) -> String {
    let Row { metric, model, load, .. } = row;
    format!("{}: `{metric}` in `{model}`, {load} loop", metric_name(metric))
}

/// Describes how cost grows with work, where the suite asks for it.
pub(super) fn cost_growth_section(record: &Record) -> Section {
    let columns = vec![
        Column::new_label("what is measured"),
        Column::new_text("fixed part, and part for each unit").with_name("cost"),
    ];
    let mut table = Table::new("How cost grows with work", columns);
    for fitted in fit_cost_lines(record) {
        table.push(vec![
            Cell::from(format!("{}: {}", fitted.name, metric_name(&fitted.cost)))
                .with_simulated(fitted.simulated),
            fitted.text.into(),
        ]);
    }
    let about = "A fixed part and a part for each unit, fitted by least squares of the relative errors over \
                 the sizes of this run.";
    let heading = table.name.clone();
    let blocks = if table.is_empty() { Vec::new() } else { vec![Block::Table(table)] };
    Section { about: about.to_owned(), ..Section::new(heading, blocks) }
}

/// Builds the table of pooled means and percentiles of every metric of every arm.
pub(super) fn figures_table(view: &RecordView<'_>) -> Table {
    let text = ["arm", "metric"].map(Column::new_text);
    let numbers = ["n", "mean", "p50", "p95", "p99"].map(Column::new_number);
    let columns = [Column::new_label("bench")].into_iter().chain(text).chain(numbers).collect();
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
            metric_cell(&figure.metric),
            Cell::from(format_number(figure.n as f64)).with_sort_key(figure.n as f64),
        ];
        cells.extend(figure_cells(figure));
        table.push_row(TableRow { class: "item", attributes, cells });
    }
    table
}

/// Names a metric in words, with its id below.
fn metric_cell(id: &str) -> Cell {
    Cell::from(metric_name(id)).with_note(format!("`{id}`"))
}

/// What stands in place of a duration that is zero in every sample: the arm has no such part.
pub(super) const ABSENT: &str = "absent";

/// Formats the mean and the three percentiles of a figure; a dash for one without a tail.
pub(super) fn figure_cells(figure: &PooledFigure) -> [Cell; 4] {
    if figure.mean == 0.0 && is_duration(&figure.metric) {
        return [ABSENT, "–", "–", "–"].map(Cell::from);
    }
    [Some(figure.mean), figure.p50, figure.p95, figure.p99]
        .map(|number| number_cell(&figure.metric, number))
}

/// Formats a number of a metric with its unit; a dash where there is none.
pub(super) fn number_cell(metric: &str, number: Option<f64>) -> Cell {
    match number {
        Some(number) => Cell::from(format_value(metric, number)).with_sort_key(number),
        None => "–".into(),
    }
}
