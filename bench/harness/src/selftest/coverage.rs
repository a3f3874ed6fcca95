//! Thousands of simulated runs through the code that makes rows: how often an interval covers the
//! truth, and whether an injected delay is found as what it is.

use std::num::NonZeroUsize;

use confide_estimate::Random;

use super::{
    finding::Finding,
    synthetic::{Noise, SyntheticSuite, make_slices},
};
use crate::{
    error::BenchError,
    plan::Effort,
    rows::{
        RunAnalysis, analyse_run,
        row::{AaVerdict, RowEstimate, RowVerdict},
    },
    suite::Suite,
};

/// The numbers of blocks that suites have.
const BLOCKS: [u32; 4] = [12, 20, 30, 40];
/// The delays that are injected, as shares.
const DELAYS: [f64; 3] = [0.005, 0.02, 0.05];
/// The number of blocks of the runs with a delay.
const DELAYED_BLOCKS: u32 = 20;
/// The margin of those runs.
const MARGIN: f64 = 0.02;
/// The share of 95 % intervals that must cover the truth.
const COVERED: std::ops::RangeInclusive<f64> = 0.93..=0.97;
/// The share of 99.9 % intervals that may miss the truth.
const WIDE_MISSED_MAX: f64 = 0.003;
/// The share of honest rows that may be judged invalid: outside the margin, or beyond 99.9 %.
const JUDGED_INVALID_MAX: f64 = 0.03;

/// Simulates A/A runs and delays, `runs` for each number of blocks and each delay. Takes all CPUs.
///
/// # Errors
/// When a synthetic suite cannot be read.
pub fn simulate_coverage(runs: u32, seed: u64) -> Result<Vec<Finding>, BenchError> {
    let mut findings = Vec::new();
    let mut all = Vec::new();
    for count in BLOCKS {
        let twins = simulate_twins(count, runs, seed)?;
        let covered = share_of(&twins, |row| row.covers);
        findings.push(Finding::new(
            format!("A/A, {count} blocks"),
            COVERED.contains(&covered) && twins.len() == runs as usize,
            format!(
                "in {:.2} % of {} runs the 95 % interval contains the ratio 1 (wanted 93 to 97 %)",
                covered * 100.0,
                twins.len()
            ),
        ));
        all.extend(twins);
    }
    let (missed, runs_made) = (share_of(&all, |row| !row.covers_wide), all.len());
    findings.push(Finding::new(
        "A/A, all blocks",
        missed <= WIDE_MISSED_MAX,
        format!("the 99.9 % interval excludes 1 in {:.3} % of {runs_made} runs", missed * 100.0),
    ));
    let invalid = share_of(&all, |row| row.invalid);
    findings.push(Finding::new(
        "A/A, honest twins",
        invalid <= JUDGED_INVALID_MAX,
        format!("judged invalid in {:.2} % of {runs_made} runs", invalid * 100.0),
    ));
    for delay in DELAYS {
        findings.push(simulate_delay(delay, runs, seed)?);
    }
    Ok(findings)
}

/// The judgement of one simulated row.
#[derive(Clone, Copy, Debug)]
struct SimulatedRow {
    covers: bool,
    covers_wide: bool,
    invalid: bool,
    outcome: RowVerdict,
}

impl SimulatedRow {
    fn new(ends: &RowEstimate, truth: f64, aa: Option<AaVerdict>, outcome: RowVerdict) -> Self {
        Self {
            covers: ends.low <= truth && truth <= ends.high,
            covers_wide: ends.low_999 <= truth && truth <= ends.high_999,
            invalid: matches!(aa, Some(AaVerdict::OutsideMargin | AaVerdict::ExcludesOne)),
            outcome,
        }
    }
}

/// Computes the share of the rows that are as `is_wanted` says. No rows give NaN, which passes no
/// check.
fn share_of(rows: &[SimulatedRow], is_wanted: impl Fn(&SimulatedRow) -> bool) -> f64 {
    rows.iter().filter(|row| is_wanted(row)).count() as f64 / rows.len() as f64
}

fn simulate_twins(count: u32, runs: u32, seed: u64) -> Result<Vec<SimulatedRow>, BenchError> {
    let suite = SyntheticSuite { arms: vec!["a"], ..SyntheticSuite::default() }.parse()?;
    let arms = [("a", false, 0.0), ("a", true, 0.0)];
    Ok(simulate_rows(&suite, &arms, count, runs, seed, |judged| {
        let row = judged.rows.iter().find(|row| row.twin)?;
        Some(SimulatedRow::new(row.ratio.as_ref()?, 1.0, row.aa, row.outcome))
    }))
}

fn simulate_delay(delay: f64, runs: u32, seed: u64) -> Result<Finding, BenchError> {
    let suite = SyntheticSuite::default().parse()?;
    let arms = [("a", false, 0.0), ("b", false, delay)];
    // Each delay has noise of its own: three rows are three experiments.
    let seed = seed ^ delay.to_bits();
    let found = simulate_rows(&suite, &arms, DELAYED_BLOCKS, runs, seed, |judged| {
        let row = judged.rows.iter().find(|row| row.arm == "b")?;
        Some(SimulatedRow::new(row.ratio.as_ref()?, 1.0 + delay, None, row.outcome))
    });
    let covered = share_of(&found, |row| row.covers);
    let above = share_of(&found, |row| row.outcome == RowVerdict::AboveMargin);
    let within = share_of(&found, |row| row.outcome == RowVerdict::WithinMargin);
    // Of a delay below the margin at most 5 % may be called above it, and the other way round.
    let wrong = if delay > MARGIN { within } else { above };
    Ok(Finding::new(
        format!("a delay of {} %, {DELAYED_BLOCKS} blocks", delay * 100.0),
        COVERED.contains(&covered) && wrong <= 0.05,
        format!(
            "covered by the 95 % interval in {:.2} % of {} runs; judged above the margin of 2 % in \
             {:.1} %, within it in {:.1} %",
            covered * 100.0,
            found.len(),
            above * 100.0,
            within * 100.0
        ),
    ))
}

/// Makes up runs with each kind of noise in turn and reads one row of each, on all CPUs.
fn simulate_rows(
    suite: &Suite,
    arms: &[(&str, bool, f64)],
    count: u32,
    runs: u32,
    seed: u64,
    read: impl Fn(&RunAnalysis) -> Option<SimulatedRow> + Sync,
) -> Vec<SimulatedRow> {
    let threads = std::thread::available_parallelism().map_or(1, NonZeroUsize::get) as u32;
    let one = |number: u32| {
        let noise = Noise::ALL[number as usize % Noise::ALL.len()];
        let mut random = Random::new(seed ^ (u64::from(count) << 40) ^ u64::from(number));
        let slices = make_slices(arms, count, noise, &mut random);
        read(&analyse_run(suite, Effort::Full, &[], &slices))
    };
    std::thread::scope(|scope| {
        let parts: Vec<_> = (0..threads)
            .map(|first| {
                let numbers = (first..runs).step_by(threads as usize);
                let one = &one;
                scope.spawn(move || numbers.filter_map(one).collect::<Vec<SimulatedRow>>())
            })
            .collect();
        // A part that panicked leaves its runs out, and coverage then fails on their number.
        parts.into_iter().flat_map(|part| part.join().unwrap_or_default()).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_hundred_runs_cover_about_as_often_as_they_should() {
        for (count, seed) in [(12, 1), (30, 2)] {
            let runs = simulate_twins(count, 300, seed).unwrap();
            assert_eq!(runs.len(), 300);
            let covered = runs.iter().filter(|one| one.covers).count();
            assert!((270..300).contains(&covered), "{covered} of 300");
        }
        assert!(simulate_delay(0.05, 60, 3).unwrap().says.contains("60 runs"));
    }
}
