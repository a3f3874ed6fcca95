//! Student's distribution and the binomial one, through the incomplete beta function.

use libm::lgamma;

use crate::normal::normal_quantile;

/// Terms of the continued fraction; it converges in some tens of them.
const TERMS_MAX: u32 = 300;

/// The t with P(T <= t) = p for `degrees` of freedom, which need not be whole.
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

/// P(T <= t) for `degrees` of freedom.
pub fn student_cdf(t: f64, degrees: f64) -> f64 {
    let tail = 0.5 * incomplete_beta(0.5 * degrees, 0.5, degrees / (degrees + t * t));
    if t > 0.0 { 1.0 - tail } else { tail }
}

/// P(X <= k) of X successes in `n` trials of chance `p`.
pub fn binomial_cdf(k: u64, n: u64, p: f64) -> f64 {
    if k >= n {
        return 1.0;
    }
    incomplete_beta((n - k) as f64, k as f64 + 1.0, 1.0 - p)
}

/// The regularised incomplete beta function (DLMF 8.17): its continued fraction, on the side of the
/// mean on which that converges fast.
fn incomplete_beta(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(b, a, 1.0 - x);
    }
    let front = a * x.ln() + b * libm::log1p(-x) + lgamma(a + b) - lgamma(a) - lgamma(b);
    front.exp() / (a * fraction(a, b, x))
}

/// DLMF 8.17.22 from the top down (the modified method of Lentz).
fn fraction(a: f64, b: f64, x: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let away = |value: f64| if value.abs() < TINY { TINY } else { value };
    let (mut value, mut upper, mut lower) = (1.0, 1.0, 0.0);
    for term in 1..=TERMS_MAX {
        let m = f64::from(term / 2);
        let coefficient = if term % 2 == 0 {
            m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m))
        } else {
            -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0))
        };
        lower = 1.0 / away(1.0 + coefficient * lower);
        upper = away(1.0 + coefficient / upper);
        let step = upper * lower;
        value *= step;
        if (step - 1.0).abs() < 1e-15 {
            break;
        }
    }
    value
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
