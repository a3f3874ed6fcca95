//! Judgement of whether a series settles, by change points of least squares.

use crate::quantile::quantile;

/// The shortest stretch between two changes, in values.
const STRETCH_MIN: usize = 3;

/// The penalty for a change, in variances of the noise times ln n. As Barrett et al. (OOPSLA 2017)
/// set it, plain noise has a change in about one series of a hundred.
const PENALTY: f64 = 15.0;

/// Whether a series settles, and from where on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Steadiness {
    /// From this position on nothing changes, and the rest is at least half of the series; what
    /// comes before it is warm-up.
    From(usize),
    /// The last change lies in the second half: no steady state was reached.
    Never {
        /// The position of the last change.
        last_change: usize,
    },
    /// The series has fewer than twelve values, too few to tell.
    TooShort,
}

/// Judges a series in time order.
///
/// The rule: change points are those that minimise the squared distances from the means of their
/// stretches plus a penalty of 15 ln(n) variances for each; the variance of the noise is taken from
/// the differences of neighbours, so that a drift does not hide itself. The series is steady from its
/// last change on, if that leaves half of it.
pub fn assess_steadiness(values: &[f64]) -> Steadiness {
    if values.len() < 4 * STRETCH_MIN || values.iter().any(|value| !value.is_finite()) {
        return Steadiness::TooShort;
    }
    let penalty = PENALTY * (values.len() as f64).ln() * noise_variance(values);
    match find_change_points(values, penalty).last() {
        None => Steadiness::From(0),
        Some(&last) if 2 * last <= values.len() => Steadiness::From(last),
        Some(&last_change) => Steadiness::Never { last_change },
    }
}

/// Finds the positions at which the mean changes, in rising order: those that minimise the squared
/// distances from the means of stretches of at least three values plus `penalty` per change
/// (optimal partitioning, Jackson et al., 2005; PELT finds the same with less work).
pub fn find_change_points(values: &[f64], penalty: f64) -> Vec<usize> {
    let n = values.len();
    let (mut sums, mut squares) = (vec![0.0; n + 1], vec![0.0; n + 1]);
    // Values are taken relative to the first: the squares of large numbers would swallow
    // differences.
    let base = values.first().copied().unwrap_or_default();
    for (index, value) in values.iter().map(|value| value - base).enumerate() {
        sums[index + 1] = sums[index] + value;
        squares[index + 1] = squares[index] + value * value;
    }
    let cost = |from: usize, to: usize| {
        let sum: f64 = sums[to] - sums[from];
        squares[to] - squares[from] - sum * sum / (to - from) as f64
    };
    let mut best = vec![f64::INFINITY; n + 1];
    let mut before = vec![0; n + 1];
    best[0] = -penalty;
    for to in STRETCH_MIN..=n {
        for from in (0..=to - STRETCH_MIN).filter(|from| *from == 0 || *from >= STRETCH_MIN) {
            let total = best[from] + cost(from, to) + penalty;
            if total < best[to] {
                (best[to], before[to]) = (total, from);
            }
        }
    }
    let mut found = Vec::new();
    let mut at = before[n];
    while at > 0 {
        found.push(at);
        at = before[at];
    }
    found.reverse();
    found
}

/// Estimates the variance of the noise from the median difference of neighbours, which a change of
/// level hardly moves.
fn noise_variance(values: &[f64]) -> f64 {
    let steps: Vec<f64> = values.windows(2).map(|pair| (pair[1] - pair[0]).abs()).collect();
    let median = quantile(&steps, 0.5).unwrap_or_default();
    // The median of |x - y| is 0.6745 sqrt(2) standard deviations of normal noise.
    (median / 0.953_872_5).powi(2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;

    #[test]
    fn a_warm_up_is_found_and_a_late_change_is_no_steady_state() {
        let mut random = Random::new(4);
        let mut series = |change: usize| -> Vec<f64> {
            (0..40).map(|i| if i < change { 12.0 } else { 10.0 } + 0.2 * random.normal()).collect()
        };
        assert_eq!(assess_steadiness(&series(0)), Steadiness::From(0));
        assert_eq!(assess_steadiness(&series(8)), Steadiness::From(8));
        assert_eq!(assess_steadiness(&series(30)), Steadiness::Never { last_change: 30 });
        assert_eq!(assess_steadiness(&series(0)[..11]), Steadiness::TooShort);
    }

    #[test]
    fn honest_noise_seldom_changes() {
        let mut random = Random::new(9);
        let found = (0..1000)
            .filter(|_| {
                let values: Vec<f64> = (0..30).map(|_| random.normal()).collect();
                assess_steadiness(&values) != Steadiness::From(0)
            })
            .count();
        assert!(found <= 30, "{found} of 1000");
    }

    #[test]
    fn equal_values_never_change() {
        assert_eq!(assess_steadiness(&[5.0; 20]), Steadiness::From(0));
        assert!(find_change_points(&[], 1.0).is_empty());
        assert!(find_change_points(&[1.0, 2.0], 1.0).is_empty());
    }
}
