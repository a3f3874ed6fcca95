//! The steps of a plan that are still to be run, and how long they may take.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use crate::{
    plan::{Effort, block_count, cases, random_order},
    record::SuiteSelection,
    suite::bench::Bench,
};

/// A block of a bench: its number, and its cases that are still to be run, in their order.
pub(crate) type BlockStep = (u32, Vec<usize>);

/// Blocks that are done: bench, case, number.
pub(crate) type DoneBlocks = BTreeSet<(String, String, u32)>;

/// Returns the measured blocks of this bench in this run, however few or many were asked for of the
/// others.
pub(crate) fn planned_block_count(
    bench: &Bench,
    effort: Effort,
    asked: Option<u32>,
    part: &SuiteSelection,
) -> u32 {
    let left_out = !part.benches.is_empty() && !part.benches.contains(&bench.name);
    match block_count(bench, effort, None) {
        _ if left_out => 0,
        0 => 0,
        _ => block_count(bench, effort, asked),
    }
}

/// Lists the steps of a bench that are not done. A bench that goes on in a new session warms up
/// again.
pub(crate) fn remaining_steps(
    bench: &Bench,
    effort: Effort,
    seed: u64,
    measured: u32,
    done: &DoneBlocks,
) -> Vec<BlockStep> {
    if measured == 0 {
        return Vec::new();
    }
    let cases = cases(bench, effort);
    let of = |block: u32, wanted: &dyn Fn(&str) -> bool| -> BlockStep {
        let order = random_order(seed, &[&bench.name, "cases"], block, cases.len());
        (block, order.into_iter().filter(|case| wanted(&cases[*case].key)).collect())
    };
    let open = |block: u32| {
        of(block, &|case| !done.contains(&(bench.name.clone(), case.to_owned(), block)))
    };
    let left: Vec<BlockStep> = (bench.warmup..bench.warmup + measured)
        .map(open)
        .filter(|(_, cases)| !cases.is_empty())
        .collect();
    if left.is_empty() {
        return left;
    }
    let mut steps: Vec<BlockStep> = (0..bench.warmup).map(|block| of(block, &|_| true)).collect();
    steps.extend(left);
    steps
}

/// Counts the slices of these steps.
pub(crate) fn count_slices(bench: &Bench, steps: &[BlockStep]) -> u64 {
    let runs: usize = steps.iter().map(|(_, cases)| cases.len()).sum();
    runs as u64 * (bench.arms.len() as u64 + 1)
}

/// The share of a bench in the budget of time.
pub(crate) struct TimeShare {
    started: Instant,
    limit: Option<Duration>,
    first: Duration,
    blocks: u32,
}

/// The number of blocks below which there is no estimate at all.
const BLOCKS_MIN: u32 = 2;

impl TimeShare {
    /// Takes this part of what is `left` of the budget. `first` is what the bench's first block
    /// will take, with its warm-up, where that is known.
    pub(crate) fn new(left: Option<Duration>, part: f64, first: Option<Duration>) -> Self {
        let part = if part.is_finite() { part.clamp(0.0, 1.0) } else { 1.0 };
        let limit = left.map(|left| left.mul_f64(part));
        Self { started: Instant::now(), limit, first: first.unwrap_or_default(), blocks: 0 }
    }

    /// Counts a block as done.
    pub(crate) fn count_block(&mut self) {
        self.blocks += 1;
    }

    /// Returns the mean time of the blocks so far; `None` before the first.
    pub(crate) fn mean_block_time(&self) -> Option<Duration> {
        self.started.elapsed().checked_div(self.blocks)
    }

    /// True where the next block would not end in time, with `measured` of them done in all.
    pub(crate) fn is_used_up(&self, measured: u32) -> bool {
        let Some(limit) = self.limit.filter(|_| measured >= BLOCKS_MIN) else { return false };
        self.started.elapsed() + self.mean_block_time().unwrap_or(self.first) > limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::{Suite, tests::SMALL};

    fn bench() -> Bench {
        Suite::parse("small", SMALL).unwrap().benches.remove(0)
    }

    #[test]
    fn a_fresh_run_has_every_block_of_every_case() {
        let bench = bench();
        let steps = remaining_steps(&bench, Effort::Quick, 7, 3, &DoneBlocks::new());
        assert_eq!(steps.len() as u32, bench.warmup + 3);
        assert!(steps.iter().all(|(_, cases)| cases.len() == 2));
    }

    #[test]
    fn what_is_done_is_left_out_and_the_warm_up_comes_again() {
        let bench = bench();
        let keys: Vec<String> =
            cases(&bench, Effort::Quick).into_iter().map(|case| case.key).collect();
        let mut done = DoneBlocks::new();
        for block in 0..bench.warmup + 1 {
            done.extend(keys.iter().map(|key| (bench.name.clone(), key.clone(), block)));
        }
        done.insert((bench.name.clone(), keys[0].clone(), bench.warmup + 1));
        let left = remaining_steps(&bench, Effort::Quick, 7, 3, &done);
        let blocks: Vec<u32> = left.iter().map(|(block, _)| *block).collect();
        let warm_up = 0..bench.warmup;
        assert_eq!(blocks, warm_up.chain([bench.warmup + 1, bench.warmup + 2]).collect::<Vec<_>>());
        assert_eq!(left[bench.warmup as usize].1, [1]);
        for block in 0..bench.warmup + 3 {
            done.extend(keys.iter().map(|key| (bench.name.clone(), key.clone(), block)));
        }
        assert!(remaining_steps(&bench, Effort::Quick, 7, 3, &done).is_empty());
    }

    #[test]
    fn a_bench_outside_the_part_has_no_blocks() {
        let part = SuiteSelection { benches: vec!["another".into()], budget_s: None };
        assert_eq!(planned_block_count(&bench(), Effort::Quick, Some(9), &part), 0);
        assert_eq!(
            planned_block_count(&bench(), Effort::Quick, Some(9), &SuiteSelection::default()),
            9
        );
    }

    #[test]
    fn a_used_up_share_still_gives_two_blocks() {
        let share = TimeShare::new(Some(Duration::ZERO), 0.5, None);
        assert!(!share.is_used_up(1));
        assert!(share.is_used_up(2));
        assert!(!TimeShare::new(None, 0.5, None).is_used_up(2));
    }

    #[test]
    fn a_bench_does_not_go_on_where_its_next_block_would_not_fit() {
        let [hour, day] = [3600, 86_400].map(Duration::from_secs);
        assert!(!TimeShare::new(Some(day), 0.5, Some(hour)).is_used_up(2));
        assert!(TimeShare::new(Some(hour), 0.5, Some(hour)).is_used_up(2));
        // The first two blocks run whatever they take.
        assert!(!TimeShare::new(Some(hour), 0.5, Some(day)).is_used_up(1));
        // The weights of nothing give 0 / 0, which leaves the whole budget.
        assert!(!TimeShare::new(Some(day), f64::NAN, Some(hour)).is_used_up(2));
    }
}
