//! What the runs behind the headline rows used, and what disturbed them: as facts of one row, and as a table for a
//! terminal.

use std::collections::BTreeMap;

use super::vocabulary::row_label;
use crate::{
    disturbed::Disturbance,
    document::{Block, Cell, Column, Section, Table},
    format::{format_number, format_value},
    record::Record,
    rows::row::{Row, RunCosts},
};

/// Lists what the runs of one row used and what disturbed them; empty for a record that counted
/// none.
pub(super) fn usage_facts(row: &Row) -> Vec<(String, String)> {
    let Some(beside) = row.beside.as_deref() else { return Vec::new() };
    let seconds = |cpu_s| format_value("cpu_s", cpu_s);
    let memory = |mib| format_value("_mib", mib);
    let facts = [
        ("CPU time of a run", describe_sides(beside.cpu_s, seconds)),
        ("CPU time of its services", describe_sides(beside.services_cpu_s, seconds)),
        ("CPU cores in use", describe_sides(beside.cores, |cores| format!("{cores:.2}"))),
        (
            "work per CPU second",
            describe_sides(beside.per_cpu_s, |work| format_work_per_cpu_s(row, work)),
        ),
        ("memory, peak", describe_sides(beside.memory_mib, memory)),
        ("memory of its services, peak", describe_sides(beside.services_memory_mib, memory)),
        ("CPU time of the harness", beside.harness_cpu_s.map(seconds).unwrap_or_default()),
        ("disturbed runs", describe_disturbed(beside)),
        ("without disturbed runs", beside.describe_undisturbed_estimate(row).unwrap_or_default()),
    ];
    facts.map(|(name, text)| (name.to_owned(), text)).into()
}

/// Writes the numbers of the reference arm and of the other, `16.4 ms → 18.6 ms`; empty where there
/// are none.
fn describe_sides(sides: [Option<f64>; 2], show: impl Fn(f64) -> String) -> String {
    match sides {
        [None, None] => String::new(),
        [Some(0.0), Some(0.0)] => String::new(),
        sides => {
            let [reference, arm] = sides.map(|side| side.map_or_else(|| "–".to_owned(), &show));
            format!("{reference} → {arm}")
        }
    }
}

fn format_work_per_cpu_s(row: &Row, work: f64) -> String {
    format_value(&row.metric, work).trim_end_matches(" /s").replace("/s", "")
}

/// Counts the disturbed runs, and those of each cause.
fn describe_disturbed(beside: &RunCosts) -> String {
    let causes: Vec<String> =
        beside.disturbances.iter().map(|(by, count)| format!("{} {count}", by.name())).collect();
    let causes =
        if causes.is_empty() { String::new() } else { format!(" ({})", causes.join(", ")) };
    format!("{} of {}{causes}", beside.disturbed, beside.slices)
}

/// Builds the table of CPU time, memory and disturbed slices of the headline rows; the section has
/// no blocks for a record that counted none.
pub(super) fn costs_section(record: &Record) -> Section {
    let rows: Vec<(&Row, &RunCosts)> = record
        .rows
        .iter()
        .filter(|row| row.headline)
        .filter_map(|row| Some((row, row.beside.as_deref()?)))
        .collect();
    let mut columns = vec![Column::new_label("cost of a run")];
    columns.extend(["CPU time", "cores", "MiB", "per CPU s", "disturbed"].map(Column::new_text));
    let mut table = Table::new("What a run used", columns);
    rows.iter().for_each(|(row, beside)| table.push(cost_cells(row, beside)));
    if table.is_empty() {
        return Section::default();
    }
    let mut lines = vec![SIDES.to_owned()];
    lines.extend(describe_harness_usage(&rows));
    lines.extend(describe_disturbances(&rows));
    lines.extend(rows.iter().filter_map(|(row, beside)| {
        Some(format!(
            "without disturbed slices: {}: {}",
            row.label,
            beside.describe_undisturbed_estimate(row)?
        ))
    }));
    let lines = lines.into_iter().map(Block::Paragraph);
    let blocks = [Block::Table(table)].into_iter().chain(lines).collect();
    Section::new("What a run used", blocks)
}

const SIDES: &str =
    "each cell: reference, this arm; arm + services where there are any; memory as the peak";

fn cost_cells(row: &Row, beside: &RunCosts) -> Vec<Cell> {
    let none = [None, None];
    vec![
        row_label(row).into(),
        join_sides(beside.cpu_s, beside.services_cpu_s, |cpu_s| format_value("cpu_s", cpu_s)),
        join_sides(beside.cores, none, |cores| format!("{cores:.2}")),
        join_sides(beside.memory_mib, beside.services_memory_mib, format_number),
        join_sides(beside.per_cpu_s, none, |work| format_work_per_cpu_s(row, work)),
        format!("{} of {}", beside.disturbed, beside.slices).into(),
    ]
}

/// Joins both sides of a row, each the arm's own number and that of its services where there is
/// one.
fn join_sides(
    own: [Option<f64>; 2],
    services: [Option<f64>; 2],
    show: impl Fn(f64) -> String,
) -> Cell {
    let side = |at: usize| {
        let more = services[at].filter(|more| *more > 0.0);
        let more = more.map(|more| format!(" + {}", show(more))).unwrap_or_default();
        own[at].map(|own| show(own) + &more)
    };
    match [side(0), side(1)] {
        [None, None] => "–".into(),
        sides => sides.map(|side| side.unwrap_or_else(|| "–".to_owned())).join(", ").into(),
    }
}

/// Describes what the harness used of a CPU while slices ran, as the largest of the rows.
fn describe_harness_usage(rows: &[(&Row, &RunCosts)]) -> Option<String> {
    let most = |number: fn(&RunCosts) -> Option<f64>| {
        rows.iter().filter_map(|(_, beside)| number(beside)).max_by(f64::total_cmp)
    };
    let cpu_ms = most(|beside| beside.harness_cpu_s)? * 1e3;
    let memory_mib = most(|beside| beside.harness_memory_mib)?;
    let (cpu_ms, memory_mib) = (format_number(cpu_ms), format_number(memory_mib));
    Some(format!("harness: at most {cpu_ms} ms of CPU a slice, {memory_mib} MiB"))
}

fn describe_disturbances(rows: &[(&Row, &RunCosts)]) -> Option<String> {
    let mut counts: BTreeMap<Disturbance, usize> = BTreeMap::new();
    for (by, count) in rows.iter().flat_map(|(_, beside)| &beside.disturbances) {
        let most = counts.entry(*by).or_default();
        *most = (*most).max(*count);
    }
    let names: Vec<String> =
        counts.iter().map(|(by, count)| format!("{} (up to {count} slices)", by.name())).collect();
    (!names.is_empty()).then(|| format!("disturbed runs are included: {}", names.join(", ")))
}
