//! Errors that published benchmarks made, each as a run whose wrong answer is known: the instrument
//! has to refuse it, to label it or to get it right.

use confide_estimate::{Random, supported_quantile};

use super::{
    finding::Finding,
    synthetic::{
        METRIC, Noise, SyntheticSuite, make_loaded_record, make_sample, make_slice, make_slices,
        token_count_answer,
    },
};
use crate::{
    arm::ArmRun,
    blocks::void_wrong_answers,
    compare::{
        Comparison, ComparisonResult as Compared, compare, refusal::RefusalReason,
        scope::CompareOptions,
    },
    error::BenchError,
    loaded::LoadedRecord,
    plan::Effort,
    rows::{
        analyse_run,
        row::{Row, RowNote, RowVerdict},
        text::{format_cost, format_verdict},
    },
    samples::{Sample, SamplePlace, Slice},
};

/// Tries every trap: known mistakes of measurement that must be noticed.
///
/// # Errors
/// When a synthetic suite cannot be read.
pub fn try_traps() -> Result<Vec<Finding>, BenchError> {
    Ok(vec![
        try_coordinated_omission()?,
        try_littles_law()?,
        try_percentile_without_a_tail()?,
        try_drift_over_time()?,
        try_unequal_work_within()?,
        try_unequal_work_between()?,
        try_client_bound()?,
        try_cache_served()?,
        try_superlinear()?,
        try_unlike_hardware()?,
        try_too_few_blocks()?,
    ])
}

fn analyse_rows(
    shape: &SyntheticSuite,
    samples: &[Sample],
    slices: &[Slice],
) -> Result<Vec<Row>, BenchError> {
    Ok(analyse_run(&shape.parse()?, Effort::Full, samples, slices).rows)
}

fn compare_two(a: &LoadedRecord, b: &LoadedRecord) -> Comparison {
    compare(std::slice::from_ref(a), std::slice::from_ref(b), &CompareOptions::default())
}

/// Runs one arm and its twin in `count` blocks, each run with the samples that `samples` makes for
/// its place.
fn make_sampled_runs(
    count: u32,
    mut samples: impl FnMut(&SamplePlace) -> Vec<Sample>,
) -> (Vec<Sample>, Vec<Slice>) {
    let (mut all, mut slices) = (Vec::new(), Vec::new());
    for (block, twin) in (0..count).flat_map(|block| [(block, false), (block, true)]) {
        let run = Slice { metrics: [].into(), ..make_slice("a", twin, block, METRIC, 0.0) };
        all.extend(samples(&run.place));
        slices.push(run);
    }
    (all, slices)
}

/// Runs one arm and its twin in blocks that each give one value.
fn make_valued_runs(blocks: u32, mut value: impl FnMut(u32) -> f64) -> Vec<Slice> {
    let arms = (0..blocks).flat_map(|block| [(block, false), (block, true)]);
    arms.map(|(block, twin)| make_slice("a", twin, block, METRIC, value(block))).collect()
}

fn has_note(rows: &[Row], wanted: fn(&RowNote) -> bool) -> bool {
    rows.iter().any(|row| row.notes.iter().any(wanted))
}

/// Returns a suite of one arm.
fn one_arm_suite() -> SyntheticSuite {
    SyntheticSuite { arms: vec!["a"], ..SyntheticSuite::default() }
}

/// A server that takes 1 ms a request, one after the other, and stalls for 2 s once.
mod stalled {
    pub(super) const REQUESTS: u32 = 1_000;
    pub(super) const EVERY_S: f64 = 0.01;
    pub(super) const SERVICE_S: f64 = 0.001;
    pub(super) const STALL_S: f64 = 2.0;
    pub(super) const STALLED: u32 = 300;
}

/// Lists the requests of one run: the instant each was scheduled and its latency in ms, from that
/// instant.
fn stalled_server_samples(place: &SamplePlace, open: bool) -> Vec<Sample> {
    use stalled::{EVERY_S, REQUESTS, SERVICE_S, STALL_S, STALLED};
    let mut free_s: f64 = 0.0;
    let request = |index: u32| {
        let at_s = if open { f64::from(index) * EVERY_S } else { free_s };
        let started_s = at_s.max(free_s);
        free_s = started_s + SERVICE_S + if index == STALLED { STALL_S } else { 0.0 };
        let latency_ms = (free_s - at_s) * 1e3;
        Sample { at_s: Some(at_s), ..make_sample(place, index, "total_ms", latency_ms) }
    };
    (0..REQUESTS).map(request).collect()
}

fn try_coordinated_omission() -> Result<Finding, BenchError> {
    let shape = SyntheticSuite { load: "open", metric: "total_ms", ..one_arm_suite() };
    let log = |open: bool| make_sampled_runs(12, |place| stalled_server_samples(place, open));
    let p99 = |samples: &[Sample]| {
        let values: Vec<f64> = samples.iter().map(|sample| sample.metrics["total_ms"]).collect();
        supported_quantile(&values, 0.99).unwrap_or_default()
    };
    let labelled = |rows: &[Row]| has_note(rows, |note| matches!(note, RowNote::NotOpen { .. }));
    let ((open, of_open), (waiting, of_waiting)) = (log(true), log(false));
    let open_rows = analyse_rows(&shape, &open, &of_open)?;
    let waiting_rows = analyse_rows(&shape, &waiting, &of_waiting)?;
    let (scheduled, omitted) = (p99(&open), p99(&waiting));
    Ok(Finding::new(
        "coordinated omission",
        scheduled > 1_000.0 && omitted < 2.0 && labelled(&waiting_rows) && !labelled(&open_rows),
        format!(
            "a stall of 2 s: p99 {scheduled:.0} ms from the scheduled instant, {omitted:.1} ms in a \
             log that waited for its answers, which is labelled *not open*"
        ),
    ))
}

fn try_littles_law() -> Result<Finding, BenchError> {
    let of = |params: &'static str, users: f64| {
        let shape = SyntheticSuite { params, ..one_arm_suite() };
        let record = |started| {
            make_record(&shape, started, |slice| {
                let latency_s = slice.metrics[METRIC] / 1e3;
                slice.metrics.insert("rate_per_s".into(), users / latency_s);
            })
        };
        Ok::<_, BenchError>([record(1)?, record(2)?])
    };
    let ([a, b], [one, two]) = (of("concurrency = 16", 16.0)?, of("concurrency = 1", 1.0)?);
    let labelled = |loaded: &LoadedRecord| {
        has_note(&loaded.record.rows, |note| matches!(note, RowNote::LittlesLaw { .. }))
    };
    let refused = compare_two(&a, &b).row_refusal_reasons() == [RefusalReason::LittlesLaw];
    let shown = compare_two(&one, &two).has_compared_rows();
    Ok(Finding::new(
        "Little's law",
        labelled(&a) && refused && !labelled(&one) && shown,
        "latency = 16 users / rate is labelled and not compared; that of one user is compared",
    ))
}

fn try_percentile_without_a_tail() -> Result<Finding, BenchError> {
    let shape = SyntheticSuite { stat: "p95", ..one_arm_suite() };
    let of = |requests: u32| {
        let mut random = Random::new(8);
        let (samples, slices) = make_sampled_runs(12, |place| {
            let values = (0..requests).map(|index| (index, Noise::Spiked.draw_factor(&mut random)));
            values.map(|(index, value)| make_sample(place, index, METRIC, value)).collect()
        });
        analyse_rows(&shape, &samples, &slices)
    };
    let (thin, thick) = (of(40)?, of(400)?);
    let none = thin
        .iter()
        .all(|row| row.outcome == RowVerdict::NotEvaluated && format_cost(row) == "no percentile");
    let some = thick.iter().all(|row| row.outcome != RowVerdict::NotEvaluated);
    let p99 = supported_quantile(&[1.0; 900], 0.99).is_none();
    Ok(Finding::new(
        "a percentile without a tail",
        !thin.is_empty() && none && some && p99,
        "p95 of 40 samples a run is not given, that of 400 is; p99 of 900 samples is not printed",
    ))
}

/// Runs the same arm twice on a machine that slows by a tenth: one after the other, and
/// interleaved.
fn try_drift_over_time() -> Result<Finding, BenchError> {
    let mut random = Random::new(13);
    let mut at = |share: f64| 10.0 * (1.0 + 0.1 * share) * Noise::Quiet.draw_factor(&mut random);
    let mut half = |from: f64| make_valued_runs(20, |block| at(from + f64::from(block) / 40.0));
    let first = make_loaded_record(&one_arm_suite(), 1, Vec::new(), half(0.0))?;
    let second = make_loaded_record(&one_arm_suite(), 2, Vec::new(), half(0.5))?;
    let sequential = compare_two(&first, &second);
    let Some(Compared::Confounded { ratio: Some(apart), .. }) =
        sequential.rows.first().map(|row| row.result.clone())
    else {
        return Ok(Finding::new("drift over time", false, sequential.text()));
    };
    let slices = make_valued_runs(40, |block| at(f64::from(block) / 40.0));
    let rows = analyse_rows(&one_arm_suite(), &[], &slices)?;
    let ratio = rows.first().and_then(|row| row.ratio);
    let interleaved = ratio.map_or(f64::NAN, |ends| ends.value);
    let covers = ratio.is_some_and(|ends| ends.low <= 1.0 && ends.high >= 1.0);
    Ok(Finding::new(
        "drift over time",
        apart > 1.03 && covers,
        format!(
            "one after the other x{apart:.3}, printed as confounded and without an interval; \
             interleaved x{interleaved:.3}, whose interval covers 1"
        ),
    ))
}

fn try_unequal_work_within() -> Result<Finding, BenchError> {
    let suite = SyntheticSuite::default().parse()?;
    let (Some(bench), none) = (suite.benches.first(), Default::default()) else {
        return Ok(Finding::new("unequal work", false, "the made-up suite has no bench"));
    };
    let ran = |arm: &str, count: u32| {
        let mut slice = make_slice(arm, false, 0, METRIC, 1.0);
        slice.answer = token_count_answer(count);
        Some(ArmRun { samples: Vec::new(), slice })
    };
    let mut block = [ran("a", 200), ran("b", 180)];
    void_wrong_answers(bench, &none, &mut block);
    let void = block[1].as_ref().and_then(|ran| ran.slice.void.clone());
    let passed = void.as_ref().is_some_and(|reason| reason.contains("differs"));
    Ok(Finding::new(
        "unequal work in a block",
        passed,
        format!("180 tokens next to 200: {}", void.map_or("counted".into(), |_| "void".to_owned())),
    ))
}

/// Creates a record of one arm, each slice changed.
fn make_record(
    shape: &SyntheticSuite,
    started: u64,
    change: impl Fn(&mut Slice),
) -> Result<LoadedRecord, BenchError> {
    let mut random = Random::new(started);
    let arms = [("a", false, 0.0), ("a", true, 0.0)];
    let mut slices = make_slices(&arms, 20, Noise::Quiet, &mut random);
    slices.iter_mut().for_each(change);
    make_loaded_record(shape, started, Vec::new(), slices)
}

fn try_unequal_work_between() -> Result<Finding, BenchError> {
    let shape = one_arm_suite();
    let of = |started, bytes: f64| {
        make_record(&shape, started, |slice| {
            slice.metrics.insert("proof_bytes".into(), bytes);
        })
    };
    let refused = compare_two(&of(1, 25_123_323.0)?, &of(2, 8_344_531.0)?).row_refusal_reasons();
    Ok(Finding::new(
        "unequal work on two machines",
        refused == [RefusalReason::UnequalWork],
        "a proof three times as large belongs to another program: not compared",
    ))
}

fn try_client_bound() -> Result<Finding, BenchError> {
    let shape = SyntheticSuite { client: "load", ..one_arm_suite() };
    let busy = make_record(&shape, 1, |slice| slice.client_cpu = Some(0.97))?;
    let idle = make_record(&shape, 2, |slice| slice.client_cpu = Some(0.4))?;
    let labelled = busy.record.rows.iter().all(|row| format_verdict(row).contains("client-bound"));
    let refused = compare_two(&idle, &busy).row_refusal_reasons();
    Ok(Finding::new(
        "a client-bound row",
        labelled && refused == [RefusalReason::ClientBound] && !busy.record.rows.is_empty(),
        "a client at 97 % of its CPU is labelled, and not compared with another machine",
    ))
}

fn try_cache_served() -> Result<Finding, BenchError> {
    let shape = SyntheticSuite { metric: "read_mib_per_s", better: "higher", ..one_arm_suite() };
    let of = |started, mark: Option<&str>, rate: f64| {
        make_record(&shape, started, |slice| {
            slice.metrics.insert("read_mib_per_s".into(), rate);
            slice.marks = mark.iter().map(|mark| (*mark).to_owned()).collect();
        })
    };
    let cached = of(1, Some("direct, but the device did not see the reads"), 36_200.0)?;
    let disk = of(2, None, 526.0)?;
    let labelled = cached.record.rows.iter().all(|row| format_verdict(row).contains("did not see"));
    let refused = compare_two(&disk, &cached).row_refusal_reasons();
    Ok(Finding::new(
        "a read that a cache served",
        labelled && refused == [RefusalReason::CacheServed],
        "reads at 36.2 GiB/s that the device did not see are labelled, and not compared with a disk",
    ))
}

/// Tries a compressor that takes another algorithm from two threads on, as that of 7-Zip does.
fn try_superlinear() -> Result<Finding, BenchError> {
    let shape = SyntheticSuite {
        arms: vec!["t1", "t2", "t4"],
        metric: "rating_per_thread_mips",
        better: "higher",
        more: "also_against = \"t2\"",
        ..SyntheticSuite::default()
    };
    let mut random = Random::new(21);
    let mut slices = Vec::new();
    for block in 0..20 {
        for (arm, twin, rate) in
            [("t1", false, 2.8), ("t1", true, 2.8), ("t2", false, 3.26), ("t4", false, 2.9)]
        {
            let value = 1_000.0 * rate * Noise::Quiet.draw_factor(&mut random);
            slices.push(make_slice(arm, twin, block, "rating_per_thread_mips", value));
        }
    }
    let rows = analyse_rows(&shape, &[], &slices)?;
    let of = |arm: &str, reference: &str| {
        rows.iter().find(|row| row.arm == arm && row.reference == reference && !row.twin)
    };
    let labelled = of("t2", "t1").is_some_and(|row| format_verdict(row).contains("superlinear"));
    let second = of("t4", "t2");
    let loses = second.and_then(|row| row.ratio).is_some_and(|ends| ends.low > 1.05);
    let plain = second.is_some_and(|row| !format_verdict(row).contains("superlinear"));
    Ok(Finding::new(
        "superlinear scaling",
        labelled && loses && plain,
        "a higher rating per thread with two threads than with one is labelled; compared with two, four are slower",
    ))
}

fn try_unlike_hardware() -> Result<Finding, BenchError> {
    let shape = one_arm_suite();
    let a = make_record(&shape, 1, |_| {})?;
    let mut b = make_record(&shape, 2, |_| {})?;
    b.record.machine.cpu_model = "another made-up processor".into();
    let comparison = compare_two(&a, &b);
    let refused = comparison.row_refusal_reasons() == [RefusalReason::DifferentHardware];
    Ok(Finding::new(
        "two processors called an overhead",
        refused && !comparison.has_compared_rows(),
        "two columns, no ratio",
    ))
}

fn try_too_few_blocks() -> Result<Finding, BenchError> {
    let shape = one_arm_suite();
    let mut random = Random::new(3);
    let slices = make_slices(&[("a", false, 0.0), ("a", true, 0.3)], 9, Noise::Quiet, &mut random);
    let rows = analyse_rows(&shape, &[], &slices)?;
    let shown: Vec<String> =
        rows.iter().map(|row| format!("{}, {}", format_cost(row), format_verdict(row))).collect();
    let passed = rows.iter().all(|row| {
        format_cost(row).contains("no interval: 9")
            && format_verdict(row).contains("undecided: 9 blocks")
    });
    Ok(Finding::new("nine blocks", passed && !rows.is_empty(), shown.join("; ")))
}

#[cfg(test)]
mod tests {
    use confide_estimate::quantile;

    use super::*;

    #[test]
    fn the_instrument_falls_into_no_trap() {
        for finding in try_traps().unwrap() {
            assert!(finding.passed, "{}", finding.line());
        }
    }

    #[test]
    fn a_log_that_waits_hides_the_stall_in_one_request() {
        let place = SamplePlace::default();
        let of = |open| {
            let run = stalled_server_samples(&place, open);
            let slow = run.iter().filter(|s| s.metrics["total_ms"] > 10.0).count();
            let all: Vec<f64> = run.iter().map(|s| s.metrics["total_ms"]).collect();
            (slow, quantile(&all, 0.5).unwrap())
        };
        assert_eq!(of(false).0, 1);
        assert!(of(true).0 > 200);
        assert!((of(true).1 - 1.0).abs() < 1e-6);
    }
}
