//! The tables of a run: its rows, and every number.

use confide_bench::{IntervalEstimate, LoadedRecord, RowFacts, RunFacts};

/// A table: columns of one length, by their names.
pub(crate) struct Table {
    pub(crate) columns: Vec<(&'static str, Column)>,
}

/// The values of one column; `None` is an empty cell.
pub(crate) enum Column {
    Text(Vec<Option<String>>),
    Float(Vec<Option<f64>>),
    Integer(Vec<Option<i64>>),
    Flag(Vec<bool>),
}

impl Table {
    /// The table with one line for each row of a run.
    pub(crate) fn from_rows(facts: &RunFacts) -> Self {
        let rows = &facts.rows;
        let text = |of: fn(&RowFacts) -> &String| {
            Column::Text(rows.iter().map(|row| Some(of(row).clone())).collect())
        };
        let whole = |value: String| Column::Text(vec![Some(value); rows.len()]);
        let float = |of: fn(&RowFacts) -> Option<f64>| Column::Float(rows.iter().map(of).collect());
        let flag = |of: fn(&RowFacts) -> bool| Column::Flag(rows.iter().map(of).collect());
        let started = i64::try_from(facts.started_unix_s).ok();
        let columns = vec![
            ("record_sha256", whole(facts.sha256.clone())),
            ("suite", whole(facts.suite.clone())),
            ("plan_sha256", whole(facts.plan_sha256.clone())),
            ("machine", whole(facts.machine.clone())),
            ("version", whole(facts.version.clone())),
            ("commit", whole(facts.commit.clone())),
            ("started_unix_s", Column::Integer(vec![started; rows.len()])),
            ("validity", whole(facts.validity.clone())),
            ("bench", text(|row| &row.bench)),
            ("case", text(|row| &row.case)),
            ("label", text(|row| &row.label)),
            ("model", text(|row| &row.model)),
            ("metric", text(|row| &row.metric)),
            ("stat", text(|row| &row.stat)),
            ("better", text(|row| &row.better)),
            ("reference", text(|row| &row.reference)),
            ("arm", text(|row| &row.arm)),
            ("twin", flag(|row| row.twin)),
            ("headline", flag(|row| row.headline)),
            ("clear", float(|row| row.clear)),
            ("protected", float(|row| row.protected)),
            (
                "blocks",
                Column::Integer(rows.iter().map(|row| i64::try_from(row.blocks).ok()).collect()),
            ),
            ("ratio", float(|row| estimate_value(row.ratio))),
            ("ratio_low", float(|row| interval_end(row.ratio, 0))),
            ("ratio_high", float(|row| interval_end(row.ratio, 1))),
            ("difference", float(|row| estimate_value(row.difference))),
            ("difference_low", float(|row| interval_end(row.difference, 0))),
            ("difference_high", float(|row| interval_end(row.difference, 1))),
            ("verdict", text(|row| &row.verdict)),
            ("simulated", flag(|row| row.simulated)),
            ("client_bound", flag(|row| row.client_bound)),
        ];
        Self { columns }
    }

    /// The table with one line for each number of each sample, and of each run of an arm.
    pub(crate) fn from_samples(loaded: &LoadedRecord, sha256: &str) -> Self {
        let numbers = loaded.metric_values();
        let text = |of: fn(&confide_bench::MetricValue<'_>) -> Option<String>| {
            Column::Text(numbers.iter().map(of).collect())
        };
        let float = |of: fn(&confide_bench::MetricValue<'_>) -> Option<f64>| {
            Column::Float(numbers.iter().map(of).collect())
        };
        let integer = |of: fn(&confide_bench::MetricValue<'_>) -> Option<u32>| {
            Column::Integer(numbers.iter().map(|number| of(number).map(i64::from)).collect())
        };
        let flag = |of: fn(&confide_bench::MetricValue<'_>) -> bool| {
            Column::Flag(numbers.iter().map(of).collect())
        };
        let columns = vec![
            ("record_sha256", Column::Text(vec![Some(sha256.to_owned()); numbers.len()])),
            ("bench", text(|number| Some(number.bench.to_owned()))),
            ("case", text(|number| Some(number.case.to_owned()))),
            ("block", integer(|number| Some(number.block))),
            ("arm", text(|number| Some(number.arm.to_owned()))),
            ("twin", flag(|number| number.twin)),
            ("session", integer(|number| Some(number.session))),
            ("order", integer(|number| Some(number.order))),
            ("slice_started_s", float(|number| Some(number.slice_started_s))),
            ("warmup", flag(|number| number.warmup)),
            ("void", text(|number| number.void.map(str::to_owned))),
            ("sample", integer(|number| number.sample)),
            ("at_s", float(|number| number.at_s)),
            ("failed", flag(|number| number.failed)),
            ("metric", text(|number| Some(number.metric.to_owned()))),
            ("value", float(|number| Some(number.value))),
        ];
        Self { columns }
    }

    /// The table as comma-separated values with a head line; cells are quoted where they need it.
    pub(crate) fn to_csv(&self) -> String {
        let head: Vec<&str> = self.columns.iter().map(|(name, _)| *name).collect();
        let mut text = head.join(",") + "\n";
        for line in 0..self.columns.first().map_or(0, |(_, column)| column.len()) {
            let cells: Vec<String> =
                self.columns.iter().map(|(_, column)| quote_cell(column.cell_text(line))).collect();
            text.push_str(&cells.join(","));
            text.push('\n');
        }
        text
    }
}

impl Column {
    fn len(&self) -> usize {
        match self {
            Self::Text(values) => values.len(),
            Self::Float(values) => values.len(),
            Self::Integer(values) => values.len(),
            Self::Flag(values) => values.len(),
        }
    }

    fn cell_text(&self, line: usize) -> String {
        let cell = match self {
            Self::Text(values) => values[line].clone(),
            Self::Float(values) => values[line].map(|value| value.to_string()),
            Self::Integer(values) => values[line].map(|value| value.to_string()),
            Self::Flag(values) => Some(values[line].to_string()),
        };
        cell.unwrap_or_default()
    }
}

fn estimate_value(estimate: Option<IntervalEstimate>) -> Option<f64> {
    estimate.map(|estimate| estimate.value)
}

fn interval_end(estimate: Option<IntervalEstimate>, which: usize) -> Option<f64> {
    estimate?.interval.map(|ends| ends[which])
}

fn quote_cell(cell: String) -> String {
    if cell.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell
    }
}
