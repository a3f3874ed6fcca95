//! The export of one record to other formats.

use std::io::Write;

use confide_bench::{IntervalEstimate, LoadedRecord, RowFacts, RunFacts};
use serde_json::{Map, Value, json};

use crate::{error::StoreError, parquet, table::Table};

/// A format of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportFormat {
    /// The whole run as one document of this version's layout.
    Json,
    /// A table as comma-separated values.
    Csv,
    /// A table as Apache Parquet.
    Parquet,
    /// Bencher's metric format: a value with bounds for each benchmark and measure.
    Bencher,
}

/// A table of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableName {
    /// The rows: one arm compared with another.
    Rows,
    /// Every number of every sample and run.
    Samples,
}

/// Writes a record in a format. `table` chooses rows or samples, for CSV and Parquet.
///
/// # Errors
/// [`StoreError`] if the output cannot be written.
pub fn export(
    loaded: &LoadedRecord,
    format: ExportFormat,
    table: TableName,
    mut out: impl Write + Send,
) -> Result<(), StoreError> {
    let facts = loaded.facts();
    let make_table = || match table {
        TableName::Rows => Table::from_rows(&facts),
        TableName::Samples => Table::from_samples(loaded, &facts.sha256),
    };
    match format {
        ExportFormat::Json => out.write_all(loaded.to_json_document()?.as_bytes())?,
        ExportFormat::Csv => out.write_all(make_table().to_csv().as_bytes())?,
        ExportFormat::Parquet => return parquet::write_parquet(&make_table(), out),
        ExportFormat::Bencher => {
            serde_json::to_writer_pretty(&mut out, &bencher_metrics(&facts))?;
            out.write_all(b"\n")?;
        }
    }
    Ok(out.flush()?)
}

/// `{"suite/bench/case/arm": {"ttft_ms_p50": {"value": …}, "ttft_ms_p50_ratio": {…}}}`. The arm's own
/// figure has no bounds, because the interval is one of the comparison.
fn bencher_metrics(facts: &RunFacts) -> Value {
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
        let against =
            &facts.rows.iter().find(|first| is_same_figure(first, row)).unwrap_or(row).reference;
        let is_first = *against == row.reference;
        if let (Some(clear), Some(protected), true) = (row.clear, row.protected, is_first) {
            put(row, &row.reference, measure.clone(), json!({ "value": clear }));
            put(row, &arm, measure.clone(), json!({ "value": protected }));
        }
        let (name, cost) =
            if row.as_difference { ("difference", row.difference) } else { ("ratio", row.ratio) };
        let to = if is_first { String::new() } else { format!("_to_{}", row.reference) };
        if let Some(cost) = cost {
            put(row, &arm, format!("{measure}_{name}{to}"), bencher_measure(cost));
        }
    }
    Value::Object(benchmarks)
}

/// Whether two rows are about the same figure, whichever their references.
fn is_same_figure(one: &RowFacts, other: &RowFacts) -> bool {
    (&one.bench, &one.case, &one.metric) == (&other.bench, &other.case, &other.metric)
}

fn bencher_measure(estimate: IntervalEstimate) -> Value {
    let mut value = json!({ "value": estimate.value });
    if let Some([low, high]) = estimate.interval {
        value["lower_value"] = low.into();
        value["upper_value"] = high.into();
    }
    value
}
