//! Correlation of blocks with their neighbours in time, and intervals that allow for it.

use crate::{
    bootstrap::replicate_means, error::EstimateError, interval::Interval,
    moments::mean_of_nonempty, quantile::sorted_quantile, random::Random,
};

/// Computes the correlation of each value with the one before it (lag 1); `None` for fewer than
/// three values or for equal ones. Beyond about 2 / sqrt(n) it is not chance, and an interval that
/// takes blocks for independent is too narrow.
pub fn autocorrelation(values: &[f64]) -> Option<f64> {
    if values.len() < 3 {
        return None;
    }
    let centre = mean_of_nonempty(values);
    let off: Vec<f64> = values.iter().map(|value| value - centre).collect();
    let squares: f64 = off.iter().map(|u| u * u).sum();
    let neighbours: f64 = off.windows(2).map(|pair| pair[0] * pair[1]).sum();
    let correlation = neighbours / squares;
    correlation.is_finite().then_some(correlation)
}

/// Computes the interval of a mean by the circular block bootstrap (Politis and Romano, 1992):
/// stretches of `length` neighbours are resampled, the end joined to the beginning, and the ends
/// are percentiles. The choices are those of `arch.bootstrap.CircularBlockBootstrap`, against which
/// it is tested.
///
/// # Errors
/// When there are fewer than two values, one is not finite, or `resamples` is 0.
pub fn circular_block_interval(
    values: &[f64],
    length: usize,
    resamples: usize,
    seed: u64,
    level: f64,
) -> Result<Interval, EstimateError> {
    let n = values.len();
    let length = length.clamp(1, n.max(1));
    let mut random = Random::new(seed);
    let mut row = || {
        let mut row = Vec::with_capacity(n + length);
        while row.len() < n {
            let first = random.next_below(n as u64) as usize;
            row.extend((first..first + length).map(|index| index % n));
        }
        row.truncate(n);
        row
    };
    let rows: Vec<Vec<usize>> = (0..resamples).map(|_| row()).collect();
    bootstrap_percentile_interval(values, &rows, level)
}

/// Computes the percentile ends of the means of the given resamples.
///
/// # Errors
/// When there are fewer than two values, or no resample, or an index is out of range.
pub fn bootstrap_percentile_interval(
    values: &[f64],
    indices: &[Vec<usize>],
    level: f64,
) -> Result<Interval, EstimateError> {
    if values.len() < 2 {
        return Err(EstimateError::TooFewBlocks { got: values.len() });
    }
    if indices.is_empty() {
        return Err(EstimateError::NoResamples);
    }
    let mut means = replicate_means(values, indices)?;
    means.sort_unstable_by(f64::total_cmp);
    let end = |p: f64| sorted_quantile(&means, p);
    Ok(Interval { low: end(0.5 - level / 2.0), high: end(0.5 + level / 2.0), level })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_wave_is_correlated_with_itself_and_a_flip_is_the_opposite() {
        let wave: Vec<f64> = (0..40).map(|i| f64::from(i % 20 / 10)).collect();
        assert!(autocorrelation(&wave).unwrap() > 0.7);
        let flip: Vec<f64> = (0..40).map(|i| f64::from(i % 2)).collect();
        assert!(autocorrelation(&flip).unwrap() < -0.9);
        assert_eq!(autocorrelation(&[1.0; 9]), None);
        assert_eq!(autocorrelation(&[1.0, 2.0]), None);
    }

    #[test]
    fn stretches_widen_the_interval_of_a_slow_wave() {
        let wave: Vec<f64> = (0..40).map(|i| f64::from(i % 20 / 10)).collect();
        let of = |length| circular_block_interval(&wave, length, 2000, 1, 0.95).unwrap().width();
        assert!(of(7) > 1.5 * of(1));
        assert!(circular_block_interval(&[1.0], 1, 10, 1, 0.95).is_err());
    }
}
