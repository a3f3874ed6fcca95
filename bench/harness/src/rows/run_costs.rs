//! The costs behind a row: CPU time, memory, work per CPU second, disturbed slices.

use std::collections::BTreeMap;

use confide_estimate::{INTERVAL_BLOCKS_MIN, mean};

use super::{
    row::{Row, RowEstimate, RunCosts},
    runs::Run,
};
use crate::{
    format::format_value,
    host::cost::ProcessUsage,
    samples::Slice,
    suite::bench::{CostForm, Metric},
};

impl RunCosts {
    /// Describes the estimate without disturbed slices: `x1.10 [1.09, 1.11] of 17 blocks, with them
    /// x1.21 [1.05, 1.40] of 20`.
    pub(crate) fn describe_undisturbed_estimate(&self, row: &Row) -> Option<String> {
        let without = self.without_disturbed.as_ref()?;
        let fewer =
            format_estimate(row, without.ratio.as_ref(), &without.difference, without.blocks);
        let whole = format_estimate(row, row.ratio.as_ref(), &row.difference, row.blocks);
        Some(format!("{fewer} of {} blocks, with them {whole} of {}", without.blocks, row.blocks))
    }
}

/// Formats an estimate; as everywhere, few blocks have no interval.
fn format_estimate(
    row: &Row,
    ratio: Option<&RowEstimate>,
    difference: &RowEstimate,
    blocks: usize,
) -> String {
    let few = blocks < INTERVAL_BLOCKS_MIN;
    match ratio {
        Some(ratio) if row.show == CostForm::Ratio && few => format!("x{:.3}", ratio.value),
        Some(ratio) if row.show == CostForm::Ratio => {
            format!("x{:.3} [{:.3}, {:.3}]", ratio.value, ratio.low, ratio.high)
        }
        _ if few => format_value(&row.metric, difference.value),
        _ => {
            let ends = [difference.value, difference.low, difference.high];
            let [v, l, h] = ends.map(|x| format_value(&row.metric, x));
            format!("{v} [{l}, {h}]")
        }
    }
}

/// The CPU seconds below which a quotient of them says nothing.
const CPU_S_MIN: f64 = 1e-3;

/// Sums up the slices that a row is made of.
pub(super) fn summarise_costs(metric: &Metric, both: [&[&Run<'_>]; 2]) -> Option<Box<RunCosts>> {
    let slices = || both.iter().flat_map(|runs| runs.iter().map(|run| run.slice));
    let mut disturbances = BTreeMap::new();
    for disturbed in slices().flat_map(|slice| &slice.disturbed) {
        *disturbances.entry(disturbed.by).or_default() += 1;
    }
    let harness = || slices().filter_map(|slice| slice.cost.as_ref()).map(|cost| &cost.harness);
    let beside = RunCosts {
        cpu_s: both.map(|runs| mean_over_runs(runs, |run| run.slice.arm_cpu_s())),
        services_cpu_s: both.map(|runs| mean_over_runs(runs, |run| run.slice.services_cpu_s)),
        cores: both.map(|runs| mean_over_runs(runs, cores_busy)),
        memory_mib: both.map(|runs| peak_mib(runs, |slice| Some(slice.cost.as_ref()?.arm))),
        services_memory_mib: both.map(|runs| peak_mib(runs, |slice| slice.cost.as_ref()?.services)),
        per_cpu_s: both.map(|runs| mean_over_runs(runs, |run| work_per_cpu_s(metric, run))),
        harness_cpu_s: mean(&harness().filter_map(|usage| usage.cpu_s).collect::<Vec<_>>()),
        harness_memory_mib: harness().filter_map(|usage| usage.peak_bytes).max().map(bytes_to_mib),
        slices: slices().count(),
        disturbed: slices().filter(|slice| !slice.disturbed.is_empty()).count(),
        disturbances,
        without_disturbed: None,
    };
    let known = beside.cpu_s.iter().chain(&beside.services_cpu_s).any(Option::is_some);
    (known || beside.disturbed > 0).then(|| Box::new(beside))
}

impl Slice {
    /// Returns the CPU seconds of the arm with all processes below it; for an older record, what
    /// the arm said.
    fn arm_cpu_s(&self) -> Option<f64> {
        self.cost.as_ref().and_then(|cost| cost.arm.cpu_s).or(self.cpu_s)
    }

    /// Returns the CPU seconds of arm and services; a service that is not there used nothing.
    fn arm_and_services_cpu_s(&self) -> Option<f64> {
        Some(self.arm_cpu_s()? + self.services_cpu_s.unwrap_or(0.0))
    }
}

fn mean_over_runs(runs: &[&Run<'_>], value: impl Fn(&Run<'_>) -> Option<f64>) -> Option<f64> {
    mean(&runs.iter().filter_map(|run| value(run)).collect::<Vec<_>>())
}

fn cores_busy(run: &Run<'_>) -> Option<f64> {
    // CPU time is counted from the run's line to its end; an arm's own clock may cover less.
    let wall_s = run.slice.cost.as_ref().map_or(run.slice.wall_s, |cost| cost.wall_s);
    (wall_s > 0.0).then(|| Some(run.slice.arm_and_services_cpu_s()? / wall_s)).flatten()
}

fn peak_mib(runs: &[&Run<'_>], usage: impl Fn(&Slice) -> Option<ProcessUsage>) -> Option<f64> {
    runs.iter().filter_map(|run| usage(run.slice)?.peak_bytes).max().map(bytes_to_mib)
}

fn bytes_to_mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Computes the work for each CPU second: a rate of work, times the seconds, divided by the CPU
/// seconds.
fn work_per_cpu_s(metric: &Metric, run: &Run<'_>) -> Option<f64> {
    if !metric.name.ends_with("_per_s") {
        return None;
    }
    let cpu_s = run.slice.arm_and_services_cpu_s().filter(|cpu_s| *cpu_s > CPU_S_MIN)?;
    Some(run.metric_value(metric)? * run.slice.wall_s / cpu_s)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        disturbed::{DetectedDisturbance, Disturbance},
        host::cost::SliceUsage,
        plan::{Effort, cases},
        record::Record,
        rows::analyse_run,
        samples::SamplePlace,
        suite::{Suite, tests::SMALL},
    };

    /// 20 blocks of two arms and a twin; arm `b` takes 10 % longer, and in the blocks that are
    /// disturbed twice as long.
    fn slices(disturbed: std::ops::Range<u32>) -> Vec<Slice> {
        let mut random = confide_estimate::Random::new(3);
        let mut slices = Vec::new();
        for block in 1..21 {
            for (arm, twin, factor) in [("a", false, 1.0), ("b", false, 1.1), ("a", true, 1.0)] {
                let hit = arm == "b" && disturbed.contains(&block);
                let value = 10.0 * factor * if hit { 2.0 } else { 1.0 } + 0.01 * random.uniform();
                let usage = ProcessUsage {
                    cpu_s: Some(0.5 * factor),
                    peak_bytes: Some(u64::from(block) << 20),
                    ..ProcessUsage::default()
                };
                let mark = DetectedDisturbance { by: Disturbance::Steal, value: 0.2, limit: 0.01 };
                slices.push(Slice {
                    place: SamplePlace {
                        bench: "one".into(),
                        case: r#"{"kind":"x","size":1}"#.into(),
                        block,
                        arm: arm.into(),
                        twin,
                    },
                    wall_s: 1.0,
                    metrics: [("work_ms".to_owned(), value), ("rate_per_s".to_owned(), 8.0)].into(),
                    services_cpu_s: Some(0.25),
                    cost: Some(Box::new(SliceUsage {
                        wall_s: 2.0,
                        arm: usage,
                        ..SliceUsage::default()
                    })),
                    disturbed: if hit { vec![mark] } else { Vec::new() },
                    ..Slice::default()
                });
            }
        }
        slices
    }

    fn judge_slices(slices: &[Slice]) -> Record {
        let rate = "[[bench.metric]]\nname = \"rate_per_s\"\nlabel = \"rate\"\nbetter = \"higher\"";
        let suite = Suite::parse("small", &format!("{SMALL}\n{rate}\n")).unwrap();
        let mut slices = slices.to_vec();
        let case = &cases(&suite.benches[0], Effort::Quick)[0];
        slices.iter_mut().for_each(|slice| slice.place.case.clone_from(&case.key));
        Record::from_analysis(analyse_run(&suite, Effort::Quick, &[], &slices))
    }

    fn row<'a>(record: &'a Record, metric: &str) -> &'a Row {
        let of = |row: &&Row| row.arm == "b" && row.metric == metric;
        record.rows.iter().find(of).unwrap()
    }

    #[test]
    fn cost_and_memory_of_both_arms_stand_beside_a_row() {
        let record = judge_slices(&slices(0..0));
        let beside = row(&record, "work_ms").beside.as_ref().unwrap();
        let near = |values: [Option<f64>; 2], wanted: [f64; 2]| {
            values.iter().zip(wanted).all(|(value, wanted)| (value.unwrap() - wanted).abs() < 1e-9)
        };
        assert!(near(beside.cpu_s, [0.5, 0.55]), "{beside:?}");
        assert!(near(beside.cores, [0.375, 0.4]), "{beside:?}");
        assert!(near(beside.memory_mib, [20.0, 20.0]), "{beside:?}");
        assert_eq!(beside.per_cpu_s, [None, None]);
        assert_eq!((beside.slices, beside.disturbed), (40, 0));
        let rate = row(&record, "rate_per_s").beside.as_ref().unwrap();
        assert!(near(rate.per_cpu_s, [8.0 / 0.75, 8.0 / 0.8]), "{rate:?}");
        let table = crate::render_record_text(&record);
        assert!(table.contains("cost of a run") && table.contains("0 of 40"), "{table}");
    }

    #[test]
    fn disturbed_slices_are_kept_and_the_estimate_without_them_stands_beside() {
        let record = judge_slices(&slices(3..6));
        let row = row(&record, "work_ms");
        assert_eq!(row.blocks, 20);
        assert!(row.ratio.unwrap().value > 1.15, "{row:?}");
        let beside = row.beside.as_ref().unwrap();
        assert_eq!(beside.disturbed, 3);
        assert_eq!(beside.disturbances[&Disturbance::Steal], 3);
        let without = beside.without_disturbed.as_ref().unwrap();
        assert_eq!(without.blocks, 17);
        assert!((without.ratio.unwrap().value - 1.1).abs() < 0.01, "{without:?}");
        let table = crate::render_record_text(&record);
        assert!(table.contains("3 of 40") && table.contains("without disturbed slices"), "{table}");
        assert!(table.contains("stolen CPU time (up to 3 slices)"), "{table}");
    }

    #[test]
    fn where_every_slice_was_disturbed_there_is_no_estimate_without_them() {
        let record = judge_slices(&slices(0..100));
        let beside = row(&record, "work_ms").beside.as_ref().unwrap();
        assert_eq!((beside.disturbed, &beside.without_disturbed), (20, &None));
    }

    #[test]
    fn a_record_that_tells_nothing_has_nothing_beside_its_rows() {
        let mut slices = slices(0..0);
        for slice in &mut slices {
            (slice.cost, slice.services_cpu_s) = (None, None);
        }
        assert!(judge_slices(&slices).rows.iter().all(|row| row.beside.is_none()));
    }
}
