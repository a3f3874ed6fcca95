//! The second table: what each row cost, and how quiet the machine was.

use std::{collections::BTreeMap, fmt::Write};

use crate::{
    format::{digits, value},
    record::Record,
    rows::row::{Row, RunCosts},
    text_table::TextTable,
};

/// CPU time, memory and disturbed slices of the headline rows; empty of a record that has none.
pub(super) fn cost_table(record: &Record) -> String {
    let headline = || record.rows.iter().filter(|row| row.headline);
    let with = || headline().filter_map(|row| Some((row, row.beside.as_deref()?)));
    let mut lines =
        TextTable::new(&["cost of a run", "CPU time", "cores", "MiB", "per CPU s", "disturbed"]);
    with().for_each(|(row, beside)| lines.push(line(row, beside)));
    if lines.is_empty() {
        return String::new();
    }
    let mut text = lines.columns(&[]);
    text.push_str(SIDES);
    text.push_str(&harness(with().map(|(_, beside)| beside)));
    text.push_str(&disturbances(with().map(|(_, beside)| beside)));
    for (row, beside) in with() {
        if let Some(without) = beside.describe_quiet_estimate(row) {
            let _ = writeln!(text, "without disturbed slices: {}: {without}", row.label);
        }
    }
    text
}

const SIDES: &str = "each: clear, protected; arm + services where there are any; peaks of memory\n";

fn line(row: &Row, beside: &RunCosts) -> [String; 6] {
    let name = if row.twin { format!("A/A {}", row.label) } else { row.label.clone() };
    let pair = |values: [Option<f64>; 2], show: &dyn Fn(f64) -> String| match values {
        [None, None] => "–".to_owned(),
        [clear, protected] => {
            let text = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), show);
            format!("{}, {}", text(clear), text(protected))
        }
    };
    let sum = |own: [Option<f64>; 2], services: [Option<f64>; 2], show: &dyn Fn(f64) -> String| {
        let side = |at: usize| {
            let own = show(own[at]?);
            Some(services[at].map_or_else(|| own.clone(), |more| format!("{own} + {}", show(more))))
        };
        match [side(0), side(1)] {
            [None, None] => "–".to_owned(),
            sides => sides.map(|side| side.unwrap_or_else(|| "–".to_owned())).join(", "),
        }
    };
    [
        name,
        sum(beside.cpu_s, beside.services_cpu_s, &|cpu_s| value("cpu_s", cpu_s)),
        pair(beside.cores, &|cores| format!("{cores:.2}")),
        sum(beside.memory_mib, beside.services_memory_mib, &digits),
        pair(beside.per_cpu_s, &|work| {
            value(&row.metric, work).trim_end_matches(" /s").replace("/s", "")
        }),
        format!("{} of {}", beside.disturbed, beside.slices),
    ]
}

/// What the harness used of a CPU while slices ran: the largest of the rows.
fn harness<'a>(all: impl Iterator<Item = &'a RunCosts> + Clone) -> String {
    let cpu_s = all.clone().filter_map(|beside| beside.harness_cpu_s).max_by(f64::total_cmp);
    let memory = all.filter_map(|beside| beside.harness_memory_mib).max_by(f64::total_cmp);
    match cpu_s.zip(memory) {
        Some((cpu_s, memory)) => format!(
            "harness: at most {} ms of CPU a slice, {} MiB\n",
            digits(cpu_s * 1e3),
            digits(memory)
        ),
        None => String::new(),
    }
}

fn disturbances<'a>(all: impl Iterator<Item = &'a RunCosts>) -> String {
    let mut counted: BTreeMap<_, usize> = BTreeMap::new();
    for (by, count) in all.flat_map(|beside| &beside.disturbances) {
        let known = counted.entry(*by).or_default();
        *known = (*known).max(*count);
    }
    if counted.is_empty() {
        return String::new();
    }
    let names: Vec<String> =
        counted.iter().map(|(by, count)| format!("{} (up to {count} slices)", by.name())).collect();
    format!("disturbed, and kept: {}\n", names.join(", "))
}
