//! One record in other formats.

use std::io::Write;

use confide_bench::{Estimated, Facts, Loaded, RowFacts};
use serde_json::{Map, Value, json};

use crate::{error::StoreError, parquet, table::Table};

/// The formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The whole run as one document of this version's layout.
    Json,
    /// A table, comma-separated.
    Csv,
    /// A table as Apache Parquet.
    Parquet,
    /// Bencher's metric format: a value with bounds for each benchmark and measure.
    Bencher,
}

/// Which table of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableName {
    /// Its rows: one arm against another.
    Rows,
    /// Every number of every sample and run.
    Samples,
}

/// Writes a record in a format. `table` chooses rows or samples, for CSV and Parquet.
///
/// # Errors
/// When the output cannot be written.
pub fn export(
    loaded: &Loaded,
    format: Format,
    table: TableName,
    mut out: impl Write + Send,
) -> Result<(), StoreError> {
    let facts = loaded.facts();
    let whole = || match table {
        TableName::Rows => Table::rows(&facts),
        TableName::Samples => Table::samples(loaded, &facts.sha256),
    };
    match format {
        Format::Json => out.write_all(loaded.document()?.as_bytes())?,
        Format::Csv => out.write_all(whole().csv().as_bytes())?,
        Format::Parquet => return parquet::write(&whole(), out),
        Format::Bencher => {
            serde_json::to_writer_pretty(&mut out, &bencher(&facts))?;
            out.write_all(b"\n")?;
        }
    }
    Ok(out.flush()?)
}

/// `{"suite/bench/case/arm": {"ttft_ms_p50": {"value": …}, "ttft_ms_p50_ratio": {…}}}`. The arm's own
/// figure has no bounds, because the interval is one of the comparison.
fn bencher(facts: &Facts) -> Value {
    let mut benchmarks = Map::new();
    let mut put = |row: &RowFacts, arm: &str, measure: String, value: Value| {
        let name = [&facts.suite, &row.bench, &row.case, arm]
            .into_iter()
            .filter(|part| !part.is_empty())
            .collect::<Vec<_>>()
            .join("/");
        let benchmark = benchmarks.entry(name).or_insert_with(|| json!({}));
        benchmark[measure] = value;
    };
    for row in &facts.rows {
        let measure = format!("{}_{}", row.metric, row.stat);
        let arm = if row.twin { format!("{} (A/A)", row.arm) } else { row.arm.clone() };
        // A second reference has rows of its own; its figures stand in those of the first.
        let against = &facts.rows.iter().find(|first| same(first, row)).unwrap_or(row).reference;
        let is_first = *against == row.reference;
        if let (Some(clear), Some(protected), true) = (row.clear, row.protected, is_first) {
            put(row, &row.reference, measure.clone(), json!({ "value": clear }));
            put(row, &arm, measure.clone(), json!({ "value": protected }));
        }
        let (name, cost) = match row.as_difference {
            true => ("difference", row.difference),
            false => ("ratio", row.ratio),
        };
        let to = if is_first { String::new() } else { format!("_to_{}", row.reference) };
        if let Some(cost) = cost {
            put(row, &arm, format!("{measure}_{name}{to}"), bounded(cost));
        }
    }
    Value::Object(benchmarks)
}

fn same(one: &RowFacts, other: &RowFacts) -> bool {
    let key = |row: &RowFacts| (row.bench.clone(), row.case.clone(), row.metric.clone());
    key(one) == key(other)
}

fn bounded(estimate: Estimated) -> Value {
    let mut value = json!({ "value": estimate.value });
    if let Some([low, high]) = estimate.interval {
        value["lower_value"] = low.into();
        value["upper_value"] = high.into();
    }
    value
}
