//! The reasons for which two records, or two figures, are not compared.

use serde::Serialize;

use super::{
    figures::{GatheredFigures, SideFigures},
    scope::{CompareOptions, ComparedCase},
};
use crate::{
    loaded::LoadedRecord,
    record::Record,
    rows::{
        notes::is_cache_served,
        row::{AaVerdict, RowNote},
    },
    suite::{NamedCommand, Suite, bench::Bench},
    validity::Validity,
};

/// The relative difference beyond which counts of work mean other work.
const WORK_WITHIN: f64 = 0.01;

/// The kinds of refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RefusalReason {
    /// A side has no record.
    NoRecord,
    /// A record is on both sides, or twice on one.
    SameRecord,
    /// The suites differ in name or text.
    DifferentSuite,
    /// A bench has another definition (an id of MODELS.md) or statistic.
    DifferentDefinition,
    /// A bench has other params, requests or answers.
    DifferentParams,
    /// One side is a closed loop and the other an open load: the closed loop's latency repeats its
    /// rate (Little's law).
    DifferentLoad,
    /// The seeds differ, so the work does too.
    DifferentSeed,
    /// The versions of what was measured, or of the instrument, differ.
    DifferentVersion,
    /// The A/A rows of a record found differences where there are none.
    Invalid,
    /// A record stopped before its plan was done.
    Partial,
    /// The machines differ, so a ratio would not be an overhead.
    DifferentHardware,
    /// Only one side measured the figure.
    Missing,
    /// The A/A row of the figure failed.
    AaFailed,
    /// Answers, tokens or sizes differ, so the work was not the same.
    UnequalWork,
    /// The client used more than 80 % of its CPU: it was measured, not the server.
    ClientBound,
    /// The figure is a percentile whose tail holds fewer than ten samples.
    WithoutTail,
    /// The open load waited for its answers.
    NotOpen,
    /// A cache answered the reads.
    CacheServed,
    /// One side is simulated, the other is not.
    Simulated,
    /// Both sides are closed loops whose latency is users / rate: the rate is the figure.
    LittlesLaw,
}

/// One refusal with what it is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refusal {
    /// The kind of refusal.
    pub reason: RefusalReason,
    /// What differs, and on which side.
    pub detail: String,
}

impl Refusal {
    pub(super) fn new(reason: RefusalReason, detail: impl Into<String>) -> Self {
        Self { reason, detail: detail.into() }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = serde_json::to_value(self.reason).unwrap_or_default();
        write!(f, "{}: {}", name.as_str().unwrap_or_default(), self.detail)
    }
}

/// Returns the reasons for which nothing can be compared.
pub(super) fn refuse_records(
    a: &[LoadedRecord],
    b: &[LoadedRecord],
    options: &CompareOptions,
) -> Vec<Refusal> {
    let (Some(first), false) = (a.first(), b.is_empty()) else {
        let side = if a.is_empty() { "A" } else { "B" };
        return vec![Refusal::new(RefusalReason::NoRecord, format!("side {side} has no record"))];
    };
    let mut refused = Vec::new();
    let sides = a.iter().map(|loaded| ("A", loaded)).chain(b.iter().map(|loaded| ("B", loaded)));
    let all: Vec<(&str, &LoadedRecord)> = sides.collect();
    for (index, (side, loaded)) in all.iter().enumerate() {
        let record = &loaded.record;
        if let Validity::Invalid { reasons } = &record.validity {
            let detail = format!("a record of {side}: {}", reasons.join("; "));
            refused.push(Refusal::new(RefusalReason::Invalid, detail));
        }
        if let Some(partial) = &record.partial {
            refused.push(Refusal::new(
                RefusalReason::Partial,
                format!("a record of {side}: {partial}"),
            ));
        }
        if all[..index].iter().any(|(_, other)| is_same_run(other, loaded)) {
            let detail = format!("a record of {side} is given twice");
            refused.push(Refusal::new(RefusalReason::SameRecord, detail));
        }
    }
    for (side, loaded) in all.iter().skip(1) {
        refuse_different_settings(first, side, loaded, options, &mut refused);
    }
    refused.dedup();
    refused
}

/// True for two records of one run.
pub(crate) fn is_same_run(one: &LoadedRecord, two: &LoadedRecord) -> bool {
    one.record.started_unix_s == two.record.started_unix_s
        && one.record.suite.sha256 == two.record.suite.sha256
        && one.slices == two.slices
}

/// Compares the settings of one record with those of the first record of A.
fn refuse_different_settings(
    first: &LoadedRecord,
    side: &str,
    other: &LoadedRecord,
    options: &CompareOptions,
    refused: &mut Vec<Refusal>,
) {
    let (one, two) = (&first.record, &other.record);
    refused.extend(refuse_different_suites(one, two, side));
    if one.suite.name != two.suite.name {
        let detail = format!(
            "A ran {} ({:.12}), a record of {side} {} ({:.12})",
            one.suite.name, one.suite.sha256, two.suite.name, two.suite.sha256
        );
        refused.push(Refusal::new(RefusalReason::DifferentSuite, detail));
    }
    if one.seed != two.seed {
        let detail = format!("{} on A, {} on {side}", one.seed, two.seed);
        refused.push(Refusal::new(RefusalReason::DifferentSeed, detail));
    }
    if !options.dangerous_across_versions {
        refused.extend(refuse_different_versions(first, side, other));
    }
}

/// Compares what two suites measure. A text that differs elsewhere, in a comment or a margin, changes nothing that was
/// measured.
pub(crate) fn refuse_different_suites(one: &Record, two: &Record, side: &str) -> Vec<Refusal> {
    if one.suite.text == two.suite.text {
        return Vec::new();
    }
    let (x, y) = match (one.parse_suite(), two.parse_suite()) {
        (Ok(x), Ok(y)) => (x, y),
        (Err(error), _) | (_, Err(error)) => {
            return vec![Refusal::new(RefusalReason::DifferentSuite, error.to_string())];
        }
    };
    let both = x.benches.iter().filter_map(|bench| Some((bench, y.bench(&bench.name)?)));
    let benches = both.flat_map(|(bench, same)| refuse_different_benches(bench, same, side));
    benches.chain(refuse_different_setup(&x, &y, side)).collect()
}

/// Compares what runs around the arms: preparations, services and the values that commands take.
fn refuse_different_setup(one: &Suite, two: &Suite, side: &str) -> Option<Refusal> {
    fn describe_setup(suite: &Suite) -> [Vec<String>; 3] {
        let commands = |commands: &[NamedCommand]| {
            commands.iter().map(|one| format!("{} {:?}", one.name, one.command)).collect()
        };
        let vars = suite.vars.iter().map(|(name, value)| format!("{name} {value:?}")).collect();
        [commands(&suite.prepares), commands(&suite.services), vars]
    }
    let (x, y) = (describe_setup(one), describe_setup(two));
    let what = ["preparations", "services", "variables"];
    let different = what.iter().zip(x.iter().zip(&y)).find(|(_, (x, y))| x != y)?;
    let detail = format!("the suite has other {} on {side}", different.0);
    Some(Refusal::new(RefusalReason::DifferentSuite, detail))
}

fn refuse_different_benches(one: &Bench, two: &Bench, side: &str) -> Vec<Refusal> {
    let mut refused = Vec::new();
    let name = &one.name;
    if one.model != two.model {
        let detail = format!("{name} is {} on A, {} on {side}", one.model, two.model);
        refused.push(Refusal::new(RefusalReason::DifferentDefinition, detail));
    }
    for metric in &one.metrics {
        let Some(other) = two.metrics.iter().find(|other| other.name == metric.name) else {
            continue;
        };
        if (metric.stat, metric.better) != (other.stat, other.better) {
            let detail = format!("{name}: {} has another statistic on {side}", metric.name);
            refused.push(Refusal::new(RefusalReason::DifferentDefinition, detail));
        }
    }
    if one.load != two.load {
        let detail = format!("{name}: one is a closed loop, the other open");
        refused.push(Refusal::new(RefusalReason::DifferentLoad, detail));
    }
    let work = |bench: &Bench| {
        let grids = (bench.grid.clone(), bench.quick_grid.clone());
        let requests = (bench.requests, bench.requests_times.clone());
        let around = (bench.warmup, bench.restart_every, bench.client, bench.vars.clone());
        (bench.params.clone(), grids, requests, around)
    };
    if work(one) != work(two) || one.expect != two.expect {
        let detail = format!("{name}: different params, requests or answers on {side}");
        refused.push(Refusal::new(RefusalReason::DifferentParams, detail));
    }
    refused
}

/// Compares the commands of every arm, and the versions of those that name themselves other than the instrument does:
/// a peer of another version is another arm. Our own code's version is what a comparison is about.
fn refuse_different_versions(
    first: &LoadedRecord,
    side: &str,
    other: &LoadedRecord,
) -> Vec<Refusal> {
    let (one, two) = (&first.record, &other.record);
    let mut refused = Vec::new();
    let mut say = |what: &str, x: &str, y: &str| {
        if x != y {
            let detail = format!("{what} {x} on A, {y} on {side}");
            refused.push(Refusal::new(RefusalReason::DifferentVersion, detail));
        }
    };
    let suites = one.parse_suite().ok().zip(two.parse_suite().ok());
    for arm in one.arms.iter().filter(|arm| !arm.twin && arm.given_up.is_none()) {
        let same = two.find_arm(&arm.bench, &arm.name, false);
        if let Some(same) = same.filter(|same| same.given_up.is_none()) {
            let what = format!("{}, arm {}:", arm.bench, arm.name);
            if arm.version != one.version || same.version != two.version {
                say(&what, &arm.version, &same.version);
            }
            let commands =
                suites.as_ref().and_then(|(x, y)| x.arm(&arm.name).zip(y.arm(&arm.name)));
            if let Some((x, y)) = commands {
                say(&what, &x.command.join(" "), &y.command.join(" "));
            }
        }
    }
    refused
}

/// Says in which versions the sides of a comparison differ, where that is no reason to refuse it.
pub(super) fn describe_version_differences(a: &[LoadedRecord], b: &[LoadedRecord]) -> Vec<String> {
    let (Some(one), Some(two)) = (a.first(), b.first()) else { return Vec::new() };
    let (one, two) = (&one.record, &two.record);
    let mut says = Vec::new();
    if (&one.version, &one.commit) != (&two.version, &two.commit) {
        says.push(format!(
            "same suite and arms, across commits: confide {} at {} on A, {} at {} on B",
            one.version, one.commit, two.version, two.commit
        ));
    }
    if one.suite.text != two.suite.text && one.suite.name == two.suite.name {
        says.push("the suite's text differs, but nothing that was measured does".to_owned());
    }
    says
}

/// Refuses machines whose processors differ in model, instructions or number; an unknown model differs from all.
pub(super) fn refuse_different_hardware(a: &[LoadedRecord], b: &[LoadedRecord]) -> Option<Refusal> {
    let told = |loaded: &LoadedRecord| {
        let machine = &loaded.record.machine;
        let model = machine.cpu_model.trim();
        let known = !model.is_empty() && model != "unknown";
        (known.then(|| machine.describe_processor()), machine.cpus_online)
    };
    let first = told(a.first()?);
    let shown = |(model, cpus): &(Option<String>, u64)| {
        format!("{} with {cpus} CPUs", model.as_deref().unwrap_or("an unknown processor"))
    };
    if first.0.is_none() {
        let detail = "the record of A does not name its processor".to_owned();
        return Some(Refusal::new(RefusalReason::DifferentHardware, detail));
    }
    let other = a.iter().chain(b).map(told).find(|other| *other != first)?;
    let detail = format!("confounded: machine; {} against {}", shown(&first), shown(&other));
    Some(Refusal::new(RefusalReason::DifferentHardware, detail))
}

/// Returns the reasons for which one row is not compared.
pub(super) fn refuse_row(one: &ComparedCase<'_>, [a, b]: [&GatheredFigures; 2]) -> Vec<Refusal> {
    let mut refused = Vec::new();
    for (side, gathered) in [("A", a), ("B", b)] {
        let mut refuse = |reason, detail: String| {
            refused.push(Refusal::new(reason, format!("{detail} on {side}")));
        };
        if gathered.values.is_empty() {
            refuse(RefusalReason::Missing, format!("{} was not measured", one.arm));
            continue;
        }
        if gathered
            .aa
            .iter()
            .any(|aa| matches!(aa, Some(AaVerdict::OutsideMargin | AaVerdict::ExcludesOne)))
        {
            refuse(RefusalReason::AaFailed, "its A/A row failed".into());
        }
        if gathered.client_bound {
            refuse(RefusalReason::ClientBound, "the client used more than 80 % of its CPU".into());
        }
        for note in &gathered.notes {
            match note {
                RowNote::ThinTail { .. } => refuse(RefusalReason::WithoutTail, note.long_text()),
                RowNote::NotOpen { .. } => refuse(RefusalReason::NotOpen, note.long_text()),
                RowNote::LittlesLaw { .. } => refuse(RefusalReason::LittlesLaw, note.long_text()),
                _ => {}
            }
        }
        if let Some(mark) = gathered.marks.iter().find(|mark| is_cache_served(mark)) {
            refuse(RefusalReason::CacheServed, mark.clone());
        }
    }
    if refused.is_empty() && a.simulated != b.simulated {
        let side = if a.simulated { "A" } else { "B" };
        let detail = format!("{side} is simulated, the other is not");
        refused.push(Refusal::new(RefusalReason::Simulated, detail));
    }
    refused
}

/// Compares the answers block by block, then the counts of work.
pub(super) fn refuse_unequal_work(
    one: &ComparedCase<'_>,
    [a, b]: [&SideFigures<'_>; 2],
) -> Option<Refusal> {
    let (of_a, of_b) = (a.answers_by_block(one), b.answers_by_block(one));
    let first = of_a.first()?;
    for other in of_a.iter().skip(1).chain(&of_b) {
        for (block, answers) in other {
            let Some(wanted) = first.get(block).filter(|wanted| *wanted != answers) else {
                continue;
            };
            let shown = |answers: &[serde_json::Value]| -> String {
                serde_json::Value::Array(answers.to_vec()).to_string().chars().take(80).collect()
            };
            let detail = format!("block {block}: {} and {}", shown(wanted), shown(answers));
            return Some(Refusal::new(RefusalReason::UnequalWork, detail));
        }
    }
    let (of_a, of_b) = (a.mean_work_counts(one), b.mean_work_counts(one));
    of_a.iter().find_map(|(name, x)| {
        let y = of_b.get(name)?;
        let unlike = (x - y).abs() > WORK_WITHIN * x.abs().max(y.abs());
        // What is compared may differ; what says how much was done may not.
        let detail = format!("{name} is {x:.0} on A, {y:.0} on B");
        (unlike && *name != one.metric.name)
            .then(|| Refusal::new(RefusalReason::UnequalWork, detail))
    })
}
