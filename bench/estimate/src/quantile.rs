//! Quantiles of plain samples, and their intervals.

use crate::{interval::Interval, student::binomial_cdf};

/// The number of samples that must lie in the smaller tail before a percentile is printed.
const TAIL_SAMPLES_MIN: f64 = 10.0;

/// Computes the quantile at `p` in 0..=1 by linear interpolation between order statistics:
/// definition 7 of Hyndman and Fan (1996), `h = (n - 1) p`. `None` for no values, for NaN, or for
/// `p` outside 0..=1.
pub fn quantile(values: &[f64], p: f64) -> Option<f64> {
    if values.is_empty() || !(0.0..=1.0).contains(&p) || values.iter().any(|v| v.is_nan()) {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    Some(sorted_quantile(&sorted, p))
}

/// Computes [`quantile`], but only where at least ten samples lie beyond it on its thinner side:
/// p50 from 20 samples, p95 from 200, p99 from 1,000.
pub fn supported_quantile(values: &[f64], p: f64) -> Option<f64> {
    let tail = values.len() as f64 * p.min(1.0 - p);
    // The product of 200 and 0.05 is a hair off 10.
    if tail + 1e-9 >= TAIL_SAMPLES_MIN { quantile(values, p) } else { None }
}

/// Computes the interval of a quantile between two order statistics. It covers the true quantile at
/// least as often as `level` says, whatever the distribution, because the number of samples below
/// it is binomial. `None` if the samples are too few for an upper or lower end.
pub fn quantile_interval(values: &[f64], p: f64, level: f64) -> Option<Interval> {
    if !(0.0..=1.0).contains(&p) || values.is_empty() || values.iter().any(|v| v.is_nan()) {
        return None;
    }
    let n = values.len() as u64;
    let tail = (1.0 - level) / 2.0;
    // The lower end is the greatest order statistic below which the quantile seldom lies.
    let mut low = (n as f64 * p) as u64;
    while low > 0 && binomial_cdf(low - 1, n, p) > tail {
        low -= 1;
    }
    let mut high = (n as f64 * p) as u64;
    while high < n && binomial_cdf(high, n, p) < 1.0 - tail {
        high += 1;
    }
    if low == 0 || high >= n {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    Some(Interval { low: sorted[low as usize - 1], high: sorted[high as usize], level })
}

/// Computes the quantile by definition 7 of values that are sorted and not empty.
pub(crate) fn sorted_quantile(sorted: &[f64], p: f64) -> f64 {
    let h = (sorted.len() - 1) as f64 * p.clamp(0.0, 1.0);
    let below = h.floor() as usize;
    let above = (below + 1).min(sorted.len() - 1);
    let weight = h - below as f64;
    sorted[below] + (sorted[above] - sorted[below]) * weight
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_interpolates_between_order_statistics() {
        let values = [4.0, 1.0, 3.0, 2.0];
        assert_eq!(quantile(&values, 0.0), Some(1.0));
        assert_eq!(quantile(&values, 0.5), Some(2.5));
        assert_eq!(quantile(&values, 1.0), Some(4.0));
        assert_eq!(quantile(&values, 0.25), Some(1.75));
    }

    #[test]
    fn a_quantile_of_nothing_or_of_nan_is_none() {
        assert_eq!(quantile(&[], 0.5), None);
        assert_eq!(quantile(&[1.0, f64::NAN], 0.5), None);
        assert_eq!(quantile(&[1.0], 1.5), None);
    }

    #[test]
    fn a_quantile_has_an_interval_only_where_its_tail_has_samples() {
        let many: Vec<f64> = (1..=1000).map(f64::from).collect();
        let interval = quantile_interval(&many, 0.99, 0.95).unwrap();
        assert!(interval.low < 990.0 && interval.high > 990.0 && interval.high <= 1000.0);
        assert_eq!(quantile_interval(&many[..300], 0.99, 0.95), None);
        assert_eq!(quantile_interval(&many[..5], 0.5, 0.95), None);
        assert!(quantile_interval(&many[..6], 0.5, 0.95).is_some());
    }

    #[test]
    fn a_percentile_needs_ten_samples_in_its_tail() {
        let many: Vec<f64> = (0..1000).map(f64::from).collect();
        assert!(supported_quantile(&many, 0.99).is_some());
        assert!(supported_quantile(&many[..999], 0.99).is_none());
        assert!(supported_quantile(&many[..200], 0.95).is_some());
        assert!(supported_quantile(&many[..199], 0.95).is_none());
        assert!(supported_quantile(&many[..20], 0.5).is_some());
        assert!(supported_quantile(&many[..19], 0.5).is_none());
    }
}
