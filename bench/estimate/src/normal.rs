//! The standard normal distribution.

use std::f64::consts::SQRT_2;

use statrs::distribution::{ContinuousCDF, Normal};

/// Returns P(Z <= z). The function of `statrs` is off by up to 2e-11, because of its error
/// function.
pub(crate) fn normal_cdf(z: f64) -> f64 {
    0.5 * libm::erfc(-z / SQRT_2)
}

/// Returns the z with P(Z <= z) = p: infinite at 0 and 1, NaN outside.
pub fn normal_quantile(p: f64) -> f64 {
    if (0.0..=1.0).contains(&p) { Normal::standard().inverse_cdf(p) } else { f64::NAN }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_quantiles_come_out() {
        assert!((normal_quantile(0.975) - 1.959_963_984_540_054).abs() < 1e-13);
        assert!((normal_quantile(0.9995) - 3.290_526_731_491_894).abs() < 1e-11);
        assert!((normal_quantile(0.5)).abs() < 1e-15);
        assert!((normal_quantile(1e-6) + 4.753_424_308_822_899).abs() < 1e-11);
    }

    #[test]
    fn the_quantile_inverts_the_distribution() {
        for i in 1..1000 {
            let p = f64::from(i) / 1000.0;
            assert!((normal_cdf(normal_quantile(p)) - p).abs() < 1e-13, "{p}");
        }
    }

    #[test]
    fn the_ends_are_infinite_and_outside_is_nan() {
        assert_eq!(normal_quantile(0.0), f64::NEG_INFINITY);
        assert_eq!(normal_quantile(1.0), f64::INFINITY);
        assert!(normal_quantile(-0.1).is_nan());
        assert!(normal_quantile(f64::NAN).is_nan());
    }
}
