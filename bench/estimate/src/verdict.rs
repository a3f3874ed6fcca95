//! Judgement of an interval by a margin that was set before the run.

use crate::{normal::normal_quantile, paired::Estimate, student::student_quantile};

/// The number of blocks below which an A/A pair is not judged: with fewer than 11, the signs of
/// honest twins agree in every block more often than once in a thousand.
pub const AA_BLOCKS_MIN: usize = 11;

/// The number of blocks below which no interval is printed and no verdict given. With fewer than 6
/// the signs of honest twins agree in every block more often than once in twenty; up to ten, one
/// odd block still sets an end of the interval.
pub const INTERVAL_BLOCKS_MIN: usize = 10;

/// The most blocks that are advised: beyond it the margin is too near the effect.
const BLOCKS_ADVISED_MAX: f64 = 10_000.0;

/// The largest difference that does not matter, set before the run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Margin {
    /// Ratios between 1 / (1 + m) and 1 + m lie within the margin.
    Relative(f64),
    /// Differences up to this many units of the metric lie within the margin; one-sided, for "adds
    /// at most".
    AtMost(f64),
}

/// The verdict about an interval: within its margin, outside it on one side or the other, or
/// undecided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The whole 95 % interval lies within the margin.
    WithinMargin,
    /// The whole interval lies above it.
    AboveMargin,
    /// The whole interval lies below it.
    BelowMargin,
    /// The interval crosses the margin.
    Undecided {
        /// The number of blocks that would decide, were the estimate exact; `None` for more than
        /// 10,000.
        blocks_wanted: Option<u64>,
    },
}

/// Computes the smallest true effect that a run of this many blocks tells from none in four of five repetitions,
/// from half the width of its 95 % interval and in the same unit: (t(0.975) + t(0.8)) standard errors, with
/// `blocks` − 1 degrees of freedom. `None` for fewer than two blocks.
pub fn minimum_detectable_effect(half_width: f64, blocks: usize) -> Option<f64> {
    let freedom = blocks.checked_sub(1).filter(|freedom| *freedom > 0)? as f64;
    Some(half_width * (1.0 + student_quantile(0.8, freedom) / student_quantile(0.975, freedom)))
}

impl Verdict {
    /// Judges a ratio against [`Margin::Relative`], a difference against [`Margin::AtMost`].
    pub fn from_estimate(estimate: &Estimate, margin: Margin) -> Self {
        let interval = &estimate.interval;
        let (low, high) = match margin {
            Margin::Relative(margin) => (1.0 / (1.0 + margin), 1.0 + margin),
            Margin::AtMost(limit) => (f64::NEG_INFINITY, limit),
        };
        if estimate.blocks < INTERVAL_BLOCKS_MIN {
            Self::Undecided { blocks_wanted: required_blocks(estimate, margin) }
        } else if interval.low > high {
            Self::AboveMargin
        } else if interval.high < low {
            Self::BelowMargin
        } else if interval.low >= low && interval.high <= high {
            Self::WithinMargin
        } else {
            Self::Undecided { blocks_wanted: required_blocks(estimate, margin) }
        }
    }
}

/// The judgement of the instrument by an A/A pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AaJudgement {
    /// No difference was found where there is none.
    Valid,
    /// The 95 % interval lies wholly outside the margin.
    OutsideMargin,
    /// The 99.9 % interval excludes 1.
    ExcludesOne,
    /// Fewer than [`AA_BLOCKS_MIN`] blocks: nothing can be said.
    TooFewBlocks,
}

impl AaJudgement {
    /// Judges the ratio of the two twins. `margin` is relative; 5 % of honest 95 % intervals
    /// exclude 1 by chance, hence the wider one.
    pub fn from_ratio(ratio: &Estimate, margin: f64) -> Self {
        let interval = &ratio.interval;
        if ratio.blocks < AA_BLOCKS_MIN {
            Self::TooFewBlocks
        } else if interval.low > 1.0 + margin || interval.high < 1.0 / (1.0 + margin) {
            Self::OutsideMargin
        } else if ratio.wide.excludes(1.0) {
            Self::ExcludesOne
        } else {
            Self::Valid
        }
    }

    /// True for the two judgements that make a run invalid.
    pub fn is_invalid(self) -> bool {
        matches!(self, Self::OutsideMargin | Self::ExcludesOne)
    }
}

/// Computes how many of `rows` honest A/A rows may lie outside the margin before their number is a
/// sign: the least c that Binomial(rows, 0.05) exceeds at most once in twenty. It is 0 for 1 row
/// and 2 for 10.
pub fn max_outside_by_chance(rows: usize) -> usize {
    const SHARE: f64 = 0.05;
    let mut term = (1.0 - SHARE).powi(i32::try_from(rows).unwrap_or(i32::MAX));
    let mut up_to = term;
    let mut count = 0;
    // The slack is for 1 - 0.95, which is a hair more than 0.05.
    while 1.0 - up_to > SHARE + 1e-12 && count < rows {
        term *= (rows - count) as f64 / (count + 1) as f64 * SHARE / (1.0 - SHARE);
        up_to += term;
        count += 1;
    }
    count
}

/// Computes the least n for which 1.96 sd / sqrt(n) is below the distance to the nearest edge of
/// the margin.
fn required_blocks(estimate: &Estimate, margin: Margin) -> Option<u64> {
    let distance = match margin {
        Margin::Relative(margin) => (estimate.value.ln().abs() - margin.ln_1p()).abs(),
        Margin::AtMost(limit) => (estimate.value - limit).abs(),
    };
    let wanted = (normal_quantile(0.975) * estimate.block_sd / distance).powi(2).ceil();
    let wanted = wanted.max(estimate.blocks as f64 + 1.0).max(INTERVAL_BLOCKS_MIN as f64);
    (wanted <= BLOCKS_ADVISED_MAX).then_some(wanted as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Interval, PairedBlocks, Random};

    #[test]
    fn four_of_five_runs_find_the_smallest_effect_and_fewer_find_half_of_it() {
        let found = |share: f64| {
            let mut random = Random::new(7);
            let runs = 400;
            let hits = (0..runs).filter(|_| {
                let noise: Vec<f64> = (0..20).map(|_| random.normal()).collect();
                let mean = noise.iter().sum::<f64>() / 20.0;
                let sd = (noise.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 19.0).sqrt();
                let half = student_quantile(0.975, 19.0) * sd / 20f64.sqrt();
                // The effect is that of a typical run: its standard deviation is 1.
                let typical = student_quantile(0.975, 19.0) / 20f64.sqrt();
                mean + share * minimum_detectable_effect(typical, 20).unwrap() > half
            });
            hits.count() as f64 / f64::from(runs)
        };
        assert!((0.74..0.87).contains(&found(1.0)), "{}", found(1.0));
        assert!(found(0.5) < 0.4);
        assert_eq!(minimum_detectable_effect(1.0, 1), None);
    }

    #[test]
    fn an_interval_inside_the_margin_is_within() {
        assert_eq!(
            Verdict::from_estimate(&ratio(0.995, 1.015), Margin::Relative(0.02)),
            Verdict::WithinMargin
        );
    }

    #[test]
    fn an_interval_beyond_the_margin_is_above_or_below() {
        assert_eq!(
            Verdict::from_estimate(&ratio(1.03, 1.07), Margin::Relative(0.02)),
            Verdict::AboveMargin
        );
        assert_eq!(
            Verdict::from_estimate(&ratio(0.9, 0.95), Margin::Relative(0.02)),
            Verdict::BelowMargin
        );
    }

    #[test]
    fn an_interval_across_the_margin_is_undecided_and_says_how_many_blocks() {
        let verdict = Verdict::from_estimate(&ratio(1.0, 1.03), Margin::Relative(0.02));
        let Verdict::Undecided { blocks_wanted: Some(blocks) } = verdict else {
            panic!("{verdict:?}")
        };
        assert!(blocks > 20);
        let on_the_edge = Verdict::from_estimate(&ratio(1.01, 1.0301), Margin::Relative(0.02));
        assert_eq!(on_the_edge, Verdict::Undecided { blocks_wanted: None });
    }

    #[test]
    fn at_most_is_one_sided() {
        let estimate = |low, high| Estimate { value: (low + high) / 2.0, ..ratio(low, high) };
        assert_eq!(
            Verdict::from_estimate(&estimate(-9.0, 4.9), Margin::AtMost(5.0)),
            Verdict::WithinMargin
        );
        assert_eq!(
            Verdict::from_estimate(&estimate(5.1, 6.0), Margin::AtMost(5.0)),
            Verdict::AboveMargin
        );
    }

    #[test]
    fn an_aa_pair_is_judged_by_margin_and_by_the_wide_interval() {
        let mut far = ratio(1.03, 1.05);
        assert_eq!(AaJudgement::from_ratio(&far, 0.02), AaJudgement::OutsideMargin);
        far.interval = Interval { low: 1.002, high: 1.01, level: 0.95 };
        far.wide = Interval { low: 1.001, high: 1.012, level: 0.999 };
        assert_eq!(AaJudgement::from_ratio(&far, 0.02), AaJudgement::ExcludesOne);
        far.wide = Interval { low: 0.999, high: 1.012, level: 0.999 };
        assert_eq!(AaJudgement::from_ratio(&far, 0.02), AaJudgement::Valid);
        far.blocks = 10;
        assert_eq!(AaJudgement::from_ratio(&far, 0.02), AaJudgement::TooFewBlocks);
    }

    #[test]
    fn among_many_honest_rows_some_lie_outside_by_chance() {
        let allowed: Vec<usize> = [0, 1, 2, 8, 10, 20, 60].map(max_outside_by_chance).to_vec();
        assert_eq!(allowed, [0, 0, 1, 2, 2, 3, 6]);
    }

    #[test]
    fn fewer_than_ten_blocks_decide_nothing() {
        let few = Estimate { blocks: 9, ..ratio(1.03, 1.05) };
        let verdict = Verdict::from_estimate(&few, Margin::Relative(0.02));
        assert!(matches!(verdict, Verdict::Undecided { blocks_wanted: Some(10..) }), "{verdict:?}");
        assert_eq!(AaJudgement::from_ratio(&few, 0.02), AaJudgement::TooFewBlocks);
    }

    #[test]
    fn a_known_delay_of_5_percent_is_found_and_one_of_0_percent_is_not() {
        let mut random = Random::new(42);
        let mut noise = || 1.0 + 0.02 * (random.uniform() - 0.5);
        let reference: Vec<f64> = (0..20).map(|_| 40.0 * noise()).collect();
        let same: Vec<f64> = (0..20).map(|_| 40.0 * noise()).collect();
        let slow: Vec<f64> = (0..20).map(|_| 42.0 * noise()).collect();
        let of = |arm: &[f64]| PairedBlocks::new(&reference, arm, 1).unwrap().ratio().unwrap();
        assert_eq!(
            Verdict::from_estimate(&of(&slow), Margin::Relative(0.02)),
            Verdict::AboveMargin
        );
        assert!(!of(&slow).interval.excludes(1.05));
        assert_eq!(
            Verdict::from_estimate(&of(&same), Margin::Relative(0.02)),
            Verdict::WithinMargin
        );
        assert_eq!(AaJudgement::from_ratio(&of(&same), 0.02), AaJudgement::Valid);
        assert_eq!(AaJudgement::from_ratio(&of(&slow), 0.02), AaJudgement::OutsideMargin);
    }

    fn ratio(low: f64, high: f64) -> Estimate {
        let interval = Interval { low, high, level: 0.95 };
        let value = (low * high).sqrt();
        Estimate { value, interval, wide: interval, block_sd: 0.03, blocks: 20 }
    }
}
