//! Measures of location by rank, which one outlier cannot move, and tests by rank.

use crate::{normal::normal_cdf, quantile::quantile};

/// The most values for which pairs are formed: 2,000 values have two million Walsh averages.
const VALUES_MAX: usize = 2_000;

/// The most values for which the signed-rank distribution is counted exactly; beyond it the normal
/// approximation is used.
const EXACT_MAX: usize = 60;

/// Computes the estimator of Hodges and Lehmann (1963): the median of the means of all pairs of
/// values, each value with itself too. Next to a mean it shows the effect of outliers. `None` for
/// no values, or for more than 2,000.
pub fn hodges_lehmann(values: &[f64]) -> Option<f64> {
    if values.len() > VALUES_MAX {
        return None;
    }
    let mut walsh = Vec::with_capacity(values.len() * (values.len() + 1) / 2);
    for (index, x) in values.iter().enumerate() {
        walsh.extend(values[index..].iter().map(|y| 0.5 * (x + y)));
    }
    quantile(&walsh, 0.5)
}

/// Computes the p-value of Wilcoxon's signed-rank test, two-sided: the chance of ranks as uneven as
/// these among values that are symmetric about 0. Zeros are left out. It is exact without ties up
/// to 60 values, else the normal approximation with its correction for ties, as in
/// `scipy.stats.wilcoxon`, against which it is tested. `None` if all values are zero.
pub fn signed_rank_p(values: &[f64]) -> Option<f64> {
    let mut sized: Vec<(f64, bool)> =
        values.iter().filter(|v| **v != 0.0).map(|v| (v.abs(), *v > 0.0)).collect();
    if sized.is_empty() || sized.iter().any(|(size, _)| !size.is_finite()) {
        return None;
    }
    sized.sort_unstable_by(|x, y| x.0.total_cmp(&y.0));
    let n = sized.len();
    let (mut positive, mut tied, mut start) = (0.0, 0.0, 0);
    while start < n {
        let same = sized[start..].iter().take_while(|(size, _)| *size == sized[start].0).count();
        let rank = start as f64 + (same as f64 + 1.0) / 2.0;
        positive += rank * sized[start..start + same].iter().filter(|(_, up)| *up).count() as f64;
        tied += (same * same * same - same) as f64;
        start += same;
    }
    let all = (n * (n + 1)) as f64 / 2.0;
    let least = positive.min(all - positive);
    if tied == 0.0 && n <= EXACT_MAX {
        return Some(exact_signed_rank_p(n, least as usize));
    }
    let n = n as f64;
    let variance = n * (n + 1.0) * (2.0 * n + 1.0) / 24.0 - tied / 48.0;
    let z = (least - all / 2.0) / variance.sqrt();
    Some((2.0 * normal_cdf(z)).min(1.0))
}

/// Computes twice the share of the 2^n choices of ranks 1..=n whose sum is at most `least`.
fn exact_signed_rank_p(n: usize, least: usize) -> f64 {
    let mut ways = vec![0.0; least + 1];
    ways[0] = 1.0;
    for rank in 1..=n {
        for sum in (rank..=least).rev() {
            ways[sum] += ways[sum - rank];
        }
    }
    let share: f64 = ways.iter().sum::<f64>() / 2f64.powi(n as i32);
    (2.0 * share).min(1.0)
}

/// Applies Holm's correction (1979): returns each p-value as it counts when all of them are tried
/// together, in the order given.
pub fn holm(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_unstable_by(|&x, &y| p[x].total_cmp(&p[y]));
    let mut adjusted = vec![1.0; p.len()];
    let mut most: f64 = 0.0;
    for (tried, index) in order.into_iter().enumerate() {
        most = most.max(p[index] * (p.len() - tried) as f64).min(1.0);
        adjusted[index] = most;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_outlier_moves_the_mean_and_not_this() {
        let mut values = vec![1.0, 2.0, 3.0, 4.0, 5.0];
        assert_eq!(hodges_lehmann(&values), Some(3.0));
        values[4] = 500.0;
        assert!(hodges_lehmann(&values).unwrap() < 4.0);
        assert_eq!(hodges_lehmann(&[]), None);
    }

    #[test]
    fn six_values_of_one_sign_are_one_in_thirty_two() {
        let p = signed_rank_p(&[0.1, 0.2, 0.3, 0.4, 0.5, 0.6]).unwrap();
        assert!((p - 2.0 / 64.0).abs() < 1e-15);
        assert_eq!(signed_rank_p(&[0.0, 0.0]), None);
        assert_eq!(signed_rank_p(&[-1.0, 1.5, 0.2, -0.3]), Some(1.0));
    }

    #[test]
    fn holm_multiplies_the_least_by_all_and_never_falls() {
        assert_eq!(holm(&[0.01, 0.04, 0.03]), [0.03, 0.06, 0.06]);
        assert_eq!(holm(&[0.9, 0.5]), [1.0, 1.0]);
        assert!(holm(&[]).is_empty());
    }
}
