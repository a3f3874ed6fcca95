//! The figures of one side: one list of blocks per cluster, and what their rows say.

use std::collections::{BTreeMap, BTreeSet};

use confide_estimate::{mean, quantile};
use serde::Serialize;
use serde_json::Value;

use super::scope::{ComparedCase, FigureOrigin};
use crate::{
    loaded::LoadedRecord,
    rows::{
        row::{AaVerdict, Row, RowNote},
        runs::Runs,
    },
    suite::Suite,
};

/// The most differences of two machines that are named.
const DIFFERENCES_NAMED_MAX: usize = 16;
/// The most characters of a text of a machine; a longer one is cut.
const DIFFERENCE_CHARACTERS_MAX: usize = 60;

/// All records of one side, judged again, so that all have the notes of this version.
pub(super) struct SideFigures<'a> {
    records: Vec<JudgedRecord<'a>>,
}

struct JudgedRecord<'a> {
    loaded: &'a LoadedRecord,
    runs: Runs<'a>,
    rows: Vec<Row>,
}

/// Everything that one side has about one figure.
#[derive(Clone, Debug, Default)]
pub(crate) struct GatheredFigures {
    /// The values by cluster, then by block.
    pub(crate) values: Vec<Vec<f64>>,
    pub(crate) client_bound: bool,
    pub(crate) simulated: bool,
    /// The judgement of each record's A/A row.
    pub(crate) aa: Vec<Option<AaVerdict>>,
    /// The ratio of the A/A row with its 95 % ends, by record.
    twins: Vec<[f64; 3]>,
    pub(crate) notes: Vec<RowNote>,
    pub(crate) marks: Vec<String>,
    pub(crate) floor: Option<(String, f64)>,
}

/// The figure of one side of a compared row.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ComparedFigure {
    /// The mean over clusters of their means, geometric where all values are positive; absent if it was not measured.
    pub(crate) value: Option<f64>,
    pub(crate) blocks: usize,
    pub(crate) clusters: usize,
    /// The A/A ratio of each record, with its 95 % ends.
    pub(crate) twins: Vec<[f64; 3]>,
}

impl<'a> SideFigures<'a> {
    pub(super) fn new(suite: &Suite, side: &'a [LoadedRecord]) -> Self {
        let of = |loaded: &'a LoadedRecord| {
            let runs = Runs::new(&loaded.samples, &loaded.slices);
            JudgedRecord { loaded, runs, rows: loaded.analyse_with_suite(suite).rows }
        };
        Self { records: side.iter().map(of).collect() }
    }

    pub(super) fn gather_case(&self, one: &ComparedCase<'_>) -> GatheredFigures {
        let mut gathered = GatheredFigures::default();
        let mut clusters: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for (number, record) in self.records.iter().enumerate() {
            for run in record.runs.valid_runs(one.bench, one.case, one.arm, false) {
                let Some(value) = run.metric_value(one.metric) else { continue };
                let session = record.loaded.record.sessions.get(run.slice.session as usize);
                // Two records of one boot are one cluster; where no boot is told, each is its own.
                let boot = session.map(|session| session.boot.as_str());
                let known = boot.filter(|boot| !boot.is_empty() && *boot != "unknown");
                let key = known.map_or_else(|| format!("record {number}"), str::to_owned);
                clusters.entry(key).or_default().push(value);
                gathered.simulated |= run.slice.simulated;
            }
            gathered.add_rows(one, &record.rows);
        }
        gathered.values = clusters.into_values().collect();
        gathered
    }

    /// Returns the answers of one arm, by record and block.
    pub(super) fn answers_by_block(
        &self,
        one: &ComparedCase<'_>,
    ) -> Vec<BTreeMap<u32, Vec<Value>>> {
        let of = |record: &JudgedRecord<'_>| {
            let runs = record.runs.valid_runs(one.bench, one.case, one.arm, false);
            runs.into_iter().map(|run| (run.slice.place.block, run.answers())).collect()
        };
        self.records.iter().map(of).collect()
    }

    /// Computes the means over all records of the metrics that count work: bytes, tokens, counts.
    pub(super) fn mean_work_counts(&self, one: &ComparedCase<'_>) -> BTreeMap<String, f64> {
        let mut all: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for record in &self.records {
            for run in record.runs.valid_runs(one.bench, one.case, one.arm, false) {
                let of_samples = run.samples.iter().flat_map(|sample| &sample.metrics);
                for (name, value) in of_samples.chain(&run.slice.metrics) {
                    if is_work_count(name) {
                        all.entry(name.clone()).or_default().push(*value);
                    }
                }
            }
        }
        all.into_iter().filter_map(|(name, values)| Some((name, mean(&values)?))).collect()
    }
}

impl GatheredFigures {
    fn add_rows(&mut self, one: &ComparedCase<'_>, rows: &[Row]) {
        let here = |row: &&Row| {
            row.bench == one.bench.name && row.case == one.case.key && row.metric == one.metric.name
        };
        let first = one.bench.arms.first().map(String::as_str);
        let is_first = first == Some(one.arm);
        let twin = rows.iter().filter(here).find(|row| row.twin);
        let of_arm = |row: &&Row| !row.twin && row.arm == one.arm && Some(&*row.reference) == first;
        let mine = if is_first { twin } else { rows.iter().filter(here).find(of_arm) };
        self.aa.push(twin.and_then(|row| row.aa));
        if let Some(ends) = twin.and_then(|row| row.ratio) {
            self.twins.push([ends.value, ends.low, ends.high]);
        }
        let Some(row) = mine else { return };
        self.client_bound |= row.client_bound;
        // The other notes are about the ratio of arms within one machine.
        let of_figure = |note: &&RowNote| {
            matches!(
                note,
                RowNote::LittlesLaw { .. } | RowNote::ThinTail { .. } | RowNote::NotOpen { .. }
            )
        };
        for note in row.notes.iter().filter(of_figure) {
            if !self.notes.contains(note) {
                self.notes.push(note.clone());
            }
        }
        for mark in &row.marks {
            if !self.marks.contains(mark) {
                self.marks.push(mark.clone());
            }
        }
        if let Some(floor) = &row.floor {
            // Of several records the last stands for all: floors are shown, never judged.
            self.floor = Some((floor.name.clone(), floor.value));
        }
    }

    pub(crate) fn block_count(&self) -> usize {
        self.values.iter().map(Vec::len).sum()
    }

    pub(super) fn to_compared_figure(&self) -> ComparedFigure {
        let clusters = self.values.len();
        let value = (clusters > 0).then(|| central_value(&self.values));
        ComparedFigure { value, blocks: self.block_count(), clusters, twins: self.twins.clone() }
    }
}

/// Computes the mean over clusters of their means, so that every cluster weighs the same.
pub(super) fn mean_of_means(clusters: &[Vec<f64>], of: impl Fn(f64) -> f64) -> f64 {
    let means = clusters.iter().map(|blocks| {
        blocks.iter().map(|value| of(*value)).sum::<f64>() / blocks.len().max(1) as f64
    });
    means.sum::<f64>() / clusters.len().max(1) as f64
}

/// Computes the centre of one side: geometric where all values are positive, as ratios are, else arithmetic.
pub(super) fn central_value(clusters: &[Vec<f64>]) -> f64 {
    if clusters.iter().flatten().all(|value| *value > 0.0) {
        mean_of_means(clusters, f64::ln).exp()
    } else {
        mean_of_means(clusters, |value| value)
    }
}

/// True for metrics that say how much was done, not how fast.
fn is_work_count(name: &str) -> bool {
    ["_bytes", "_tokens", "_count", "_cycles"].iter().any(|end| name.ends_with(end))
        || name == "tokens"
}

/// Describes where a record's figures are from.
pub(super) fn figure_origin(loaded: &LoadedRecord) -> FigureOrigin {
    let record = &loaded.record;
    let calibrations = loaded.slices.iter().map(|slice| slice.quiet.calibration_us);
    let calibrations: Vec<f64> = calibrations.filter(|us| *us > 0.0).collect();
    FigureOrigin {
        record: loaded.path.display().to_string(),
        suite: record.suite.name.clone(),
        started_unix_s: record.started_unix_s,
        processor: record.machine.describe_processor(),
        commit: record.commit.clone(),
        cpus: record.machine.cpus_online,
        kernel: record.machine.kernel.clone(),
        validity: record.validity.clone(),
        remarks: record.remarks.clone(),
        calibration_us: quantile(&calibrations, 0.5),
    }
}

/// Lists the facts that differ between the machines of the first record of either side.
pub(super) fn machine_differences(a: &[LoadedRecord], b: &[LoadedRecord]) -> Vec<String> {
    let facts = |side: &[LoadedRecord]| {
        let machine = &side.first()?.record.machine;
        let mut facts = BTreeMap::new();
        collect_json_leaves("", &serde_json::to_value(machine).ok()?, &mut facts);
        Some(facts)
    };
    let (Some(a), Some(b)) = (facts(a), facts(b)) else { return Vec::new() };
    let shown = |side: &BTreeMap<String, String>, name: &str| {
        side.get(name).map_or_else(|| "absent".to_owned(), |text| shorten(text))
    };
    let names: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    let different = names.into_iter().filter(|name| a.get(*name) != b.get(*name));
    let mut said: Vec<String> = different
        .map(|name| format!("{name}: {} on A, {} on B", shown(&a, name), shown(&b, name)))
        .collect();
    let more = said.len().saturating_sub(DIFFERENCES_NAMED_MAX);
    if more > 0 {
        said.truncate(DIFFERENCES_NAMED_MAX);
        said.push(format!("and {more} more"));
    }
    said
}

fn shorten(text: &str) -> String {
    let short: String = text.chars().take(DIFFERENCE_CHARACTERS_MAX).collect();
    if short.len() < text.len() { format!("{short}…") } else { short }
}

/// Collects every leaf of a JSON value by its path.
fn collect_json_leaves(path: &str, value: &Value, found: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let below = format!("{path}.{name}");
                collect_json_leaves(below.trim_start_matches('.'), value, found);
            }
        }
        Value::Array(items) => {
            let shown: Vec<String> = items.iter().map(json_to_text).collect();
            found.insert(path.to_owned(), shown.join(", "));
        }
        Value::Null => {}
        other => {
            found.insert(path.to_owned(), json_to_text(other));
        }
    }
}

fn json_to_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
