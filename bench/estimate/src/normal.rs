//! The standard normal distribution.

use std::f64::consts::{PI, SQRT_2};

/// P(Z <= z).
pub fn normal_cdf(z: f64) -> f64 {
    0.5 * libm::erfc(-z / SQRT_2)
}

/// The z with P(Z <= z) = p; infinite at 0 and 1, NaN outside.
///
/// Acklam's rational approximation (relative error below 1.2e-9), then one Halley step with the
/// exact distribution, which brings it to the precision of `f64`.
pub fn normal_quantile(p: f64) -> f64 {
    if !(0.0..=1.0).contains(&p) {
        return f64::NAN;
    }
    if p == 0.0 {
        return f64::NEG_INFINITY;
    }
    if p == 1.0 {
        return f64::INFINITY;
    }
    let z = acklam(p);
    let error = normal_cdf(z) - p;
    let step = error * (2.0 * PI).sqrt() * (z * z / 2.0).exp();
    z - step / (1.0 + z * step / 2.0)
}

fn acklam(p: f64) -> f64 {
    const LOW: f64 = 0.02425;
    if p < LOW {
        return tail((-2.0 * p.ln()).sqrt());
    }
    if p > 1.0 - LOW {
        return -tail((-2.0 * (1.0 - p).ln()).sqrt());
    }
    const A: [f64; 6] = [
        -3.969_683_028_665_376e1,
        2.209_460_984_245_205e2,
        -2.759_285_104_469_687e2,
        1.383_577_518_672_69e2,
        -3.066_479_806_614_716e1,
        2.506_628_277_459_239,
    ];
    const B: [f64; 6] = [
        -5.447_609_879_822_406e1,
        1.615_858_368_580_409e2,
        -1.556_989_798_598_866e2,
        6.680_131_188_771_972e1,
        -1.328_068_155_288_572e1,
        1.0,
    ];
    let q = p - 0.5;
    polynomial(&A, q * q) * q / polynomial(&B, q * q)
}

fn tail(q: f64) -> f64 {
    const C: [f64; 6] = [
        -7.784_894_002_430_293e-3,
        -3.223_964_580_411_365e-1,
        -2.400_758_277_161_838,
        -2.549_732_539_343_734,
        4.374_664_141_464_968,
        2.938_163_982_698_783,
    ];
    const D: [f64; 5] = [
        7.784_695_709_041_462e-3,
        3.224_671_290_700_398e-1,
        2.445_134_137_142_996,
        3.754_408_661_907_416,
        1.0,
    ];
    polynomial(&C, q) / polynomial(&D, q)
}

/// Horner, highest power first.
fn polynomial(coefficients: &[f64], x: f64) -> f64 {
    coefficients.iter().fold(0.0, |sum, c| sum * x + c)
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
