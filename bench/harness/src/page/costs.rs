//! What the runs behind the headline rows used, and what disturbed them.

use std::collections::BTreeMap;

use crate::{
    disturbed::Disturbance,
    document::{Block, Cell, Column, Section, Table},
    format::{digits, value},
    record::Record,
    rows::row::{Row, RunCosts},
};

/// Builds the table of CPU time, memory and disturbed slices of the headline rows; the section has
/// no blocks for a record that counted none.
pub(super) fn costs(record: &Record) -> Section {
    let rows: Vec<(&Row, &RunCosts)> = record
        .rows
        .iter()
        .filter(|row| row.headline)
        .filter_map(|row| Some((row, row.beside.as_deref()?)))
        .collect();
    let mut columns = vec![Column::label("cost of a run")];
    columns.extend(["CPU time", "cores", "MiB", "per CPU s", "disturbed"].map(Column::text));
    let mut table = Table::new("What a run used", columns);
    rows.iter().for_each(|(row, beside)| table.push(cost_cells(row, beside)));
    if table.is_empty() {
        return Section::default();
    }
    let mut lines = vec![SIDES.to_owned()];
    lines.extend(harness(&rows));
    lines.extend(disturbances(&rows));
    lines.extend(rows.iter().filter_map(|(row, beside)| {
        Some(format!(
            "without disturbed slices: {}: {}",
            row.label,
            beside.describe_quiet_estimate(row)?
        ))
    }));
    let lines = lines.into_iter().map(Block::Paragraph);
    let blocks = [Block::Table(table)].into_iter().chain(lines).collect();
    Section::new("What a run used", blocks)
}

const SIDES: &str =
    "each cell: clear, protected; arm + services where there are any; memory as the peak";

fn cost_cells(row: &Row, beside: &RunCosts) -> Vec<Cell> {
    let label = if row.twin { format!("A/A {}", row.label) } else { row.label.clone() };
    let none = [None, None];
    let work = |work| value(&row.metric, work).trim_end_matches(" /s").replace("/s", "");
    vec![
        label.into(),
        join_sides(beside.cpu_s, beside.services_cpu_s, |cpu_s| value("cpu_s", cpu_s)),
        join_sides(beside.cores, none, |cores| format!("{cores:.2}")),
        join_sides(beside.memory_mib, beside.services_memory_mib, digits),
        join_sides(beside.per_cpu_s, none, work),
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
fn harness(rows: &[(&Row, &RunCosts)]) -> Option<String> {
    let most = |number: fn(&RunCosts) -> Option<f64>| {
        rows.iter().filter_map(|(_, beside)| number(beside)).max_by(f64::total_cmp)
    };
    let cpu_ms = most(|beside| beside.harness_cpu_s)? * 1e3;
    let memory_mib = most(|beside| beside.harness_memory_mib)?;
    let (cpu_ms, memory_mib) = (digits(cpu_ms), digits(memory_mib));
    Some(format!("harness: at most {cpu_ms} ms of CPU a slice, {memory_mib} MiB"))
}

fn disturbances(rows: &[(&Row, &RunCosts)]) -> Option<String> {
    let mut counts: BTreeMap<Disturbance, usize> = BTreeMap::new();
    for (by, count) in rows.iter().flat_map(|(_, beside)| &beside.disturbances) {
        let most = counts.entry(*by).or_default();
        *most = (*most).max(*count);
    }
    let names: Vec<String> =
        counts.iter().map(|(by, count)| format!("{} (up to {count} slices)", by.name())).collect();
    (!names.is_empty()).then(|| format!("disturbed, but counted: {}", names.join(", ")))
}
