//! The BCa bootstrap of a mean, and of the difference of two independent means.

use crate::{
    error::EstimateError,
    interval::Interval,
    moments::{mean_of_nonempty, sum_of_squared_deviations},
    normal::{normal_cdf, normal_quantile},
    quantile::sorted_quantile,
    random::Random,
    student::student_quantile,
};

/// The number of resamples behind every interval that is printed.
pub const RESAMPLES: usize = 10_000;

/// The bias-corrected and accelerated bootstrap (Efron, 1987) of a mean, one value per block, or of
/// the difference of two: the same choices as `scipy.stats.bootstrap(method="BCa")`, against which
/// it is tested (mid-rank bias, jackknife acceleration, linear interpolation of the replicates).
#[derive(Clone, Debug)]
pub struct Bca {
    estimate: f64,
    bias: f64,
    acceleration: f64,
    replicates: Vec<f64>,
    /// Standard error of the estimate.
    error: f64,
    /// The degrees of freedom of that standard error.
    degrees: f64,
    /// `error` divided by the bootstrap's own standard error.
    inflation: f64,
}

impl Bca {
    /// Bootstraps the mean of `values` with indices drawn from `seed`.
    ///
    /// # Errors
    /// When there are fewer than two values, one is not finite, or `resamples` is 0.
    pub fn of_mean(values: &[f64], resamples: usize, seed: u64) -> Result<Self, EstimateError> {
        check_values(values)?;
        let mut random = Random::new(seed);
        let replicates = (0..resamples).map(|_| resample_mean(values, &mut random)).collect();
        Self::from_replicates(&[values], replicates)
    }

    /// Bootstraps the mean of `values` with the given indices, one row per resample.
    ///
    /// # Errors
    /// When there are fewer than two values, one is not finite, there is no row, or an index is out of range.
    pub fn mean_with_indices(
        values: &[f64],
        indices: &[Vec<usize>],
    ) -> Result<Self, EstimateError> {
        check_values(values)?;
        let means = replicate_means(values, indices)?;
        Self::from_replicates(&[values], means)
    }

    /// Bootstraps mean(arm) - mean(reference), each resampled on its own: nothing is paired.
    ///
    /// # Errors
    /// When an arm has fewer than two values, one is not finite, or `resamples` is 0.
    pub fn of_difference(
        reference: &[f64],
        arm: &[f64],
        resamples: usize,
        seed: u64,
    ) -> Result<Self, EstimateError> {
        check_values(reference)?;
        check_values(arm)?;
        let mut random = Random::new(seed);
        let mut one = || resample_mean(arm, &mut random) - resample_mean(reference, &mut random);
        let replicates = (0..resamples).map(|_| one()).collect();
        Self::from_replicates(&[reference, arm], replicates)
    }

    /// Bootstraps mean(arm) - mean(reference) with the given indices, one row per resample and arm.
    ///
    /// # Errors
    /// When an arm has fewer than two values, one is not finite, there is no row, or an index is out of range.
    pub fn difference_with_indices(
        reference: &[f64],
        reference_indices: &[Vec<usize>],
        arm: &[f64],
        arm_indices: &[Vec<usize>],
    ) -> Result<Self, EstimateError> {
        check_values(reference)?;
        check_values(arm)?;
        let before = replicate_means(reference, reference_indices)?;
        let after = replicate_means(arm, arm_indices)?;
        let replicates = before.iter().zip(&after).map(|(x, y)| y - x).collect();
        Self::from_replicates(&[reference, arm], replicates)
    }

    /// Summarises replicates of the mean of one sample, or of the second sample's mean minus the
    /// first's.
    fn from_replicates(
        samples: &[&[f64]],
        mut replicates: Vec<f64>,
    ) -> Result<Self, EstimateError> {
        if replicates.is_empty() {
            return Err(EstimateError::NoResamples);
        }
        let estimate = match samples {
            [one] => mean_of_nonempty(one),
            [reference, arm, ..] => mean_of_nonempty(arm) - mean_of_nonempty(reference),
            [] => return Err(EstimateError::TooFewBlocks { got: 0 }),
        };
        replicates.sort_unstable_by(f64::total_cmp);
        let bias = bias(&replicates, estimate);
        let [error, degrees, inflation] = standard_error_terms(samples);
        let acceleration = acceleration(samples);
        Ok(Self { estimate, bias, acceleration, replicates, error, degrees, inflation })
    }

    /// Returns the mean of the values, or the difference of the two means.
    pub fn estimate(&self) -> f64 {
        self.estimate
    }

    /// Returns z0: how far the replicates' median is from the estimate, as a normal quantile.
    pub fn bias(&self) -> f64 {
        self.bias
    }

    /// Returns a, the acceleration from the third moment of the jackknife; 0 when all values are
    /// equal.
    pub fn acceleration(&self) -> f64 {
        self.acceleration
    }

    /// Returns the interval at `level` (0.95, 0.999) as scipy computes it. With few blocks it is
    /// too short.
    pub fn interval(&self, level: f64) -> Interval {
        self.interval_at(normal_quantile(0.5 - level / 2.0), level)
    }

    /// Returns the interval that is printed: BCa widened for few blocks (Hesterberg, 2015, section
    /// 4.4: Student's quantile replaces the normal one, times the ratio of the unbiased standard
    /// error to the bootstrap's), and never inside Student's own interval (Welch's for two samples)
    /// at either end.
    ///
    /// Of few blocks the plain interval is too short: where it says 95 % it covers 91 % at 12 normal
    /// blocks and 88 % at 20 with heavy tails, whose third moment is mostly noise. Student's alone
    /// covers 91 % where blocks are skewed in truth. The outer of the two covers 93 to 97 % in all of
    /// these from 12 blocks on.
    pub fn expanded_interval(&self, level: f64) -> Interval {
        let t = student_quantile(0.5 - level / 2.0, self.degrees);
        let bca = self.interval_at(t * self.inflation, level);
        let half = -t * self.error;
        Interval {
            low: bca.low.min(self.estimate - half),
            high: bca.high.max(self.estimate + half),
            level,
        }
    }

    /// Returns the interval whose uncorrected ends lie at `z` and `-z` standard errors; `z` is
    /// negative.
    fn interval_at(&self, z: f64, level: f64) -> Interval {
        let end = |z: f64| {
            let shifted = self.bias + z;
            let p = normal_cdf(self.bias + shifted / (1.0 - self.acceleration * shifted));
            sorted_quantile(&self.replicates, p)
        };
        Interval { low: end(z), high: end(-z), level }
    }
}

fn check_values(values: &[f64]) -> Result<(), EstimateError> {
    if values.len() < 2 {
        return Err(EstimateError::TooFewBlocks { got: values.len() });
    }
    match values.iter().position(|value| !value.is_finite()) {
        Some(index) => Err(EstimateError::NotFinite { index }),
        None => Ok(()),
    }
}

fn resample_mean(values: &[f64], random: &mut Random) -> f64 {
    let len = values.len() as u64;
    let sum: f64 = (0..len).map(|_| values[random.next_below(len) as usize]).sum();
    sum / len as f64
}

pub(crate) fn replicate_means(
    values: &[f64],
    rows: &[Vec<usize>],
) -> Result<Vec<f64>, EstimateError> {
    let value = |&index: &usize| {
        let len = values.len();
        values.get(index).copied().ok_or(EstimateError::IndexOutOfRange { index, len })
    };
    rows.iter()
        .map(|row| {
            let picked: Vec<f64> = row.iter().map(value).collect::<Result<_, _>>()?;
            Ok(mean_of_nonempty(&picked))
        })
        .collect()
}

/// Computes the mid-rank share of the replicates below the estimate, as a normal quantile. A share
/// of 0 or 1 would be infinite, so half a replicate stands for none.
fn bias(sorted: &[f64], estimate: f64) -> f64 {
    // A resample that is a permutation of the values has their mean up to rounding: a tie.
    let slack = 1e-13 * sorted.iter().fold(0.0, |most: f64, value| most.max(value.abs()));
    let below = sorted.partition_point(|&value| value < estimate - slack);
    let up_to = sorted.partition_point(|&value| value <= estimate + slack);
    let count = sorted.len() as f64;
    let share = (below + up_to) as f64 / (2.0 * count);
    normal_quantile(share.clamp(0.5 / count, 1.0 - 0.5 / count))
}

/// Computes the acceleration from the jackknife: leaving a value out moves the mean by (mean -
/// value) / (n - 1).
fn acceleration(samples: &[&[f64]]) -> f64 {
    let (mut squares, mut cubes) = (0.0, 0.0);
    for (position, values) in samples.iter().enumerate() {
        let (n, mean) = (values.len() as f64, mean_of_nonempty(values));
        // The reference arm of a difference is subtracted.
        let sign = if samples.len() > 1 && position == 0 { -1.0 } else { 1.0 };
        for value in *values {
            let u = sign * (value - mean) / n;
            squares += u * u;
            cubes += u * u * u;
        }
    }
    let denominator = 6.0 * squares.powf(1.5);
    if denominator > 0.0 { cubes / denominator } else { 0.0 }
}

/// Computes the standard error, Welch's degrees of freedom (n - 1 for one sample), and the ratio to
/// the bootstrap's standard error, whose variances divide by n.
fn standard_error_terms(samples: &[&[f64]]) -> [f64; 3] {
    let (mut unbiased, mut biased, mut welch) = (0.0, 0.0, 0.0);
    let mut least = f64::INFINITY;
    for values in samples {
        let (n, squares) = (values.len() as f64, sum_of_squared_deviations(values));
        let of_mean = squares / (n - 1.0) / n;
        unbiased += of_mean;
        biased += squares / n / n;
        welch += of_mean * of_mean / (n - 1.0);
        least = least.min(n);
    }
    if welch > 0.0 {
        [unbiased.sqrt(), unbiased * unbiased / welch, (unbiased / biased).sqrt()]
    } else {
        [0.0, least - 1.0, (least / (least - 1.0)).sqrt()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_give_a_point() {
        let bca = Bca::of_mean(&[0.25; 12], RESAMPLES, 1).unwrap();
        let interval = bca.interval(0.999);
        assert_eq!((interval.low, interval.high), (0.25, 0.25));
        assert_eq!(bca.acceleration(), 0.0);
        let both = Bca::of_difference(&[1.0; 3], &[1.5; 4], 100, 1).unwrap();
        assert_eq!(both.expanded_interval(0.95).low, 0.5);
    }

    #[test]
    fn the_expanded_interval_holds_the_plain_one() {
        let values = [0.1, 0.3, -0.2, 0.05, 0.4, 0.0, 0.2, 0.15, -0.1, 0.3, 0.22, 0.07];
        let bca = Bca::of_mean(&values, RESAMPLES, 1).unwrap();
        let (plain, wide) = (bca.interval(0.95), bca.expanded_interval(0.95));
        assert!(wide.low < plain.low && wide.high > plain.high);
        assert!((bca.degrees - 11.0).abs() < 1e-9);
    }

    #[test]
    fn one_block_or_none_has_no_interval() {
        assert_eq!(Bca::of_mean(&[1.0], 10, 1).err(), Some(EstimateError::TooFewBlocks { got: 1 }));
        assert_eq!(Bca::of_mean(&[], 10, 1).err(), Some(EstimateError::TooFewBlocks { got: 0 }));
        let one = Bca::of_difference(&[1.0, 2.0], &[1.0], 10, 1);
        assert_eq!(one.err(), Some(EstimateError::TooFewBlocks { got: 1 }));
    }

    #[test]
    fn values_that_are_not_finite_are_refused() {
        let error = Bca::of_mean(&[1.0, f64::NAN, 2.0], 10, 1).err();
        assert_eq!(error, Some(EstimateError::NotFinite { index: 1 }));
    }

    #[test]
    fn an_index_past_the_values_is_refused() {
        let error = Bca::mean_with_indices(&[1.0, 2.0], &[vec![0, 2]]).err();
        assert_eq!(error, Some(EstimateError::IndexOutOfRange { index: 2, len: 2 }));
        assert_eq!(
            Bca::mean_with_indices(&[1.0, 2.0], &[]).err(),
            Some(EstimateError::NoResamples)
        );
    }

    #[test]
    fn replicates_all_on_one_side_still_give_finite_ends() {
        let bca = Bca::mean_with_indices(&[1.0, 2.0], &vec![vec![1, 1]; 20]).unwrap();
        let interval = bca.interval(0.95);
        assert!(interval.low.is_finite() && interval.high.is_finite());
    }

    #[test]
    fn the_same_seed_gives_the_same_interval() {
        let values = [0.1, 0.3, -0.2, 0.05, 0.4, 0.0];
        let one = Bca::of_mean(&values, RESAMPLES, 9).unwrap().interval(0.95);
        let two = Bca::of_mean(&values, RESAMPLES, 9).unwrap().interval(0.95);
        assert_eq!(one, two);
    }
}
