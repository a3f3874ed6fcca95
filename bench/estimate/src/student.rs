//! Student's distribution and the binomial one, through the incomplete beta function. The quantile
//! of `statrs` is not used, because it is wrong at 1e7 degrees of freedom and does not end at 1e8.

use statrs::function::beta::checked_beta_reg;

use crate::{
    interval::Interval,
    moments::{mean_of_nonempty, sum_of_squared_deviations},
    normal::normal_quantile,
};

/// Returns the t with P(T <= t) = p for `degrees` of freedom, which need not be whole.
///
/// Infinite at 0 and 1, NaN outside and for degrees that are not positive.
pub fn student_quantile(p: f64, degrees: f64) -> f64 {
    if !(0.0..=1.0).contains(&p) || degrees.is_nan() || degrees <= 0.0 {
        return f64::NAN;
    }
    if p == 0.0 || p == 1.0 || degrees.is_infinite() {
        return normal_quantile(p);
    }
    if p < 0.5 {
        return -student_quantile(1.0 - p, degrees);
    }
    // Student's tails are the heavier ones: the normal quantile lies below.
    let mut low = normal_quantile(p);
    let mut high = 2.0 * low + 1.0;
    while student_cdf(high, degrees) < p && high < 1e12 {
        high *= 2.0;
    }
    while high - low > 1e-13 * high.max(1e-3) {
        let middle = 0.5 * (low + high);
        if middle <= low || middle >= high {
            break;
        }
        if student_cdf(middle, degrees) < p { low = middle } else { high = middle }
    }
    0.5 * (low + high)
}

/// Returns P(T <= t) for `degrees` of freedom.
fn student_cdf(t: f64, degrees: f64) -> f64 {
    let tail = 0.5 * incomplete_beta(0.5 * degrees, 0.5, degrees / (degrees + t * t));
    if t > 0.0 { 1.0 - tail } else { tail }
}

/// Returns P(X <= k) of X successes in `n` trials of chance `p`.
pub fn binomial_cdf(k: u64, n: u64, p: f64) -> f64 {
    if k >= n {
        return 1.0;
    }
    incomplete_beta((n - k) as f64, k as f64 + 1.0, 1.0 - p)
}

/// Computes the regularised incomplete beta function; NaN where it is not defined.
fn incomplete_beta(a: f64, b: f64, x: f64) -> f64 {
    checked_beta_reg(a, b, x).unwrap_or(f64::NAN)
}

/// Computes Student's interval of mean(arm) - mean(reference) with unequal variances (Welch, 1947).
pub fn welch_interval(reference: &[f64], arm: &[f64], level: f64) -> Interval {
    let of_mean = |values: &[f64]| {
        let n = values.len() as f64;
        sum_of_squared_deviations(values) / (n - 1.0) / n
    };
    let (x, y) = (of_mean(reference), of_mean(arm));
    let terms = x * x / (reference.len() as f64 - 1.0) + y * y / (arm.len() as f64 - 1.0);
    let degrees = if terms > 0.0 { (x + y) * (x + y) / terms } else { f64::INFINITY };
    let centre = mean_of_nonempty(arm) - mean_of_nonempty(reference);
    let half = student_quantile(0.5 + level / 2.0, degrees) * (x + y).sqrt();
    Interval { low: centre - half, high: centre + half, level }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn students_quantiles_are_scipys() {
        // scipy.stats.t.ppf
        for (p, degrees, wanted) in [
            (0.9995, 11.0, 4.436_979_338_234_493),
            (0.975, 1.0, 12.706_204_736_174_694),
            (0.975, 2.5, 3.574_654_842_003_682),
            (0.975, 39.0, 2.022_690_920_036_762),
            (0.025, 9.0, -2.262_157_162_798_205),
        ] {
            let got: f64 = student_quantile(p, degrees);
            assert!((got - wanted).abs() < 1e-11 * wanted.abs(), "{got} for {wanted}");
        }
    }

    #[test]
    fn the_ends_are_infinite_and_outside_is_nan() {
        assert_eq!(student_quantile(1.0, 5.0), f64::INFINITY);
        assert!(student_quantile(0.5, 5.0).abs() < 1e-12);
        assert!(student_quantile(1.1, 5.0).is_nan() && student_quantile(0.9, 0.0).is_nan());
    }

    #[test]
    fn the_binomial_distribution_sums_its_terms() {
        let (n, p) = (20u64, 0.3f64);
        let (mut term, mut sum) = (0.7f64.powi(20), 0.0);
        for k in 0..=n {
            sum += term;
            assert!((binomial_cdf(k, n, p) - sum).abs() < 1e-12, "{k}");
            term *= (n - k) as f64 / (k + 1) as f64 * p / (1.0 - p);
        }
    }
}
