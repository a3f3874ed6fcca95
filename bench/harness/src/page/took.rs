//! What the runs behind a row took, and what disturbed them, in words.

use crate::{
    format::{digits, ratio_places, value},
    rows::row::{Row, RunCosts},
};

/// CPU, memory, work for each CPU second, the harness's own share; and the disturbed runs, with what
/// the row would be without them. Nothing for a record that did not count.
pub(super) fn of_row(row: &Row) -> Vec<String> {
    let Some(beside) = &row.beside else { return Vec::new() };
    [cost_text(row, beside), disturbed(beside)].into_iter().flatten().collect()
}

fn cost_text(row: &Row, beside: &RunCosts) -> Option<String> {
    let pair = |both: [Option<f64>; 2], metric: &str| {
        let [clear, protected] = both;
        Some(format!("{} → {}", value(metric, clear?), value(metric, protected?)))
    };
    let bytes = |both: [Option<f64>; 2]| {
        pair(both.map(|mib| mib.map(|mib| mib * f64::from(1 << 20))), "memory_bytes")
    };
    // A rate's unit without its time: requests, MiB.
    let work = pair(beside.per_cpu_s, &row.metric)
        .map(|text| format!("{} for each CPU second", text.replace(" /s", "").replace("/s", "")));
    let parts = [
        pair(beside.cpu_s, "cpu_s").map(|text| format!("CPU {text}")),
        pair(beside.services_cpu_s, "cpu_s").map(|text| format!("of services {text}")),
        work.filter(|_| row.metric.ends_with("_per_s")),
        bytes(beside.memory_mib).map(|text| format!("memory at most {text}")),
        beside.harness_cpu_s.map(|cpu_s| format!("the harness {}", value("cpu_s", cpu_s))),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| format!("a run: {}", parts.join(" · ")))
}

fn disturbed(beside: &RunCosts) -> Option<String> {
    if beside.disturbed == 0 {
        return None;
    }
    let by: Vec<String> = beside
        .disturbances
        .iter()
        .map(|(by, count)| format!("{} {}", by.name(), digits(*count as f64)))
        .collect();
    let without = beside.without_disturbed.as_ref().and_then(|without| {
        let ends = without.ratio?;
        let places = ratio_places(ends.low, ends.high);
        Some(format!("; without these x{:.places$} of {} blocks", ends.value, without.blocks))
    });
    Some(format!(
        "disturbed: {} of {} runs ({}){}",
        beside.disturbed,
        beside.slices,
        by.join(", "),
        without.unwrap_or_default()
    ))
}
