//! Comparison of two arms over the same blocks.

use crate::{
    bootstrap::{Bca, RESAMPLES},
    error::EstimateError,
    interval::Interval,
    moments::{mean_of_nonempty, standard_deviation},
    student::{student_quantile, welch_interval},
};

/// An estimate with its 95 % and 99.9 % intervals.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The estimate: the ratio, or the difference.
    pub value: f64,
    /// Its 95 % interval, widened for few blocks.
    pub interval: Interval,
    /// Its 99.9 % interval, widened for few blocks.
    pub wide: Interval,
    /// The standard deviation over blocks: of log ratios for a ratio, of differences for a
    /// difference.
    pub block_sd: f64,
    /// The number of blocks.
    pub blocks: usize,
}

/// The blocks of a reference arm and of another arm, in the same order.
#[derive(Clone, Debug)]
pub struct PairedBlocks<'a> {
    reference: &'a [f64],
    arm: &'a [f64],
    seed: u64,
}

impl<'a> PairedBlocks<'a> {
    /// Pairs two arms block by block; `seed` is the bootstrap's.
    ///
    /// # Errors
    /// When the arms do not have the same number of blocks.
    pub fn new(reference: &'a [f64], arm: &'a [f64], seed: u64) -> Result<Self, EstimateError> {
        if reference.len() != arm.len() {
            let (reference, arm) = (reference.len(), arm.len());
            return Err(EstimateError::Unpaired { reference, arm });
        }
        Ok(Self { reference, arm, seed })
    }

    /// Estimates the geometric mean of the per-block ratios arm / reference.
    ///
    /// # Errors
    /// When there are fewer than two blocks, or a value is not finite or not above zero.
    pub fn ratio(&self) -> Result<Estimate, EstimateError> {
        let of_logs = self.estimate(&self.log_ratios()?)?;
        Ok(Estimate {
            value: of_logs.value.exp(),
            interval: of_logs.interval.map(f64::exp),
            wide: of_logs.wide.map(f64::exp),
            ..of_logs
        })
    }

    /// Computes the logarithms of the per-block ratios arm / reference.
    ///
    /// # Errors
    /// When a value is not above zero.
    pub fn log_ratios(&self) -> Result<Vec<f64>, EstimateError> {
        let pairs = self.reference.iter().zip(self.arm).enumerate();
        let log = |(index, (reference, arm)): (usize, (&f64, &f64))| {
            let positive = *reference > 0.0 && *arm > 0.0;
            if positive {
                Ok((arm / reference).ln())
            } else {
                Err(EstimateError::NotPositive { index })
            }
        };
        pairs.map(log).collect()
    }

    /// Computes the widths of the 95 % interval of the log ratio, with pairing and without:
    /// Student's and Welch's of the same values, so that nothing but the pairing differs. `None`
    /// where a ratio is not defined.
    pub fn paired_and_unpaired_widths(&self) -> Option<[f64; 2]> {
        let n = self.arm.len();
        let logs = |values: &[f64]| values.iter().map(|value| value.ln()).collect::<Vec<f64>>();
        let paired = self.log_ratios().ok().filter(|logs| logs.len() > 1)?;
        let error = standard_deviation(&paired) / (n as f64).sqrt();
        let width = 2.0 * student_quantile(0.975, n as f64 - 1.0) * error;
        let unpaired = welch_interval(&logs(self.reference), &logs(self.arm), 0.95).width();
        Some([width, unpaired]).filter(|widths| widths.iter().all(|width| width.is_finite()))
    }

    /// Estimates the arithmetic mean of the per-block differences arm - reference.
    ///
    /// # Errors
    /// When there are fewer than two blocks, or a value is not finite.
    pub fn difference(&self) -> Result<Estimate, EstimateError> {
        let differences: Vec<f64> =
            self.reference.iter().zip(self.arm).map(|(reference, arm)| arm - reference).collect();
        self.estimate(&differences)
    }

    /// Computes the Pearson correlation of the two arms' logarithms over blocks, which shows what
    /// pairing gains. `None` if it is not defined.
    pub fn log_correlation(&self) -> Option<f64> {
        let logs = |values: &[f64]| -> Option<Vec<f64>> {
            values.iter().map(|&value| (value > 0.0).then(|| value.ln())).collect()
        };
        let (x, y) = (logs(self.reference)?, logs(self.arm)?);
        let (mx, my) = (mean_of_nonempty(&x), mean_of_nonempty(&y));
        let sum = |f: &dyn Fn(f64, f64) -> f64| -> f64 {
            x.iter().zip(&y).map(|(a, b)| f(a - mx, b - my)).sum()
        };
        let (xy, xx, yy) = (sum(&|a, b| a * b), sum(&|a, _| a * a), sum(&|_, b| b * b));
        let correlation = xy / (xx * yy).sqrt();
        correlation.is_finite().then_some(correlation)
    }

    fn estimate(&self, values: &[f64]) -> Result<Estimate, EstimateError> {
        let bca = Bca::of_mean(values, RESAMPLES, self.seed)?;
        Ok(Estimate {
            value: bca.estimate(),
            interval: bca.expanded_interval(0.95),
            wide: bca.expanded_interval(0.999),
            block_sd: standard_deviation(values),
            blocks: values.len(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;

    #[test]
    fn a_ratio_is_the_geometric_mean_of_block_ratios() {
        let paired = PairedBlocks::new(&[1.0, 2.0, 4.0], &[2.0, 2.0, 16.0], 1).unwrap();
        let ratio = paired.ratio().unwrap();
        assert!((ratio.value - 2.0).abs() < 1e-12);
        assert!(!ratio.interval.excludes(2.0));
    }

    #[test]
    fn a_difference_is_the_mean_of_block_differences() {
        let paired = PairedBlocks::new(&[1.0, 2.0, 4.0], &[2.0, 2.0, 6.0], 1).unwrap();
        assert!((paired.difference().unwrap().value - 1.0).abs() < 1e-12);
    }

    #[test]
    fn unequal_lengths_and_zeros_are_refused() {
        assert_eq!(
            PairedBlocks::new(&[1.0], &[1.0, 2.0], 1).err(),
            Some(EstimateError::Unpaired { reference: 1, arm: 2 })
        );
        let zero = PairedBlocks::new(&[1.0, 0.0], &[1.0, 2.0], 1).unwrap();
        assert_eq!(zero.ratio().err(), Some(EstimateError::NotPositive { index: 1 }));
        assert!(zero.difference().is_ok());
        assert_eq!(zero.log_correlation(), None);
    }

    #[test]
    fn drift_common_to_both_arms_leaves_the_ratio_narrow() {
        let mut random = Random::new(5);
        let reference: Vec<f64> = (0..20).map(|i| 10.0 + f64::from(i) + random.uniform()).collect();
        let arm: Vec<f64> =
            reference.iter().map(|v| v * (1.05 + 0.002 * random.uniform())).collect();
        let paired = PairedBlocks::new(&reference, &arm, 1).unwrap();
        let ratio = paired.ratio().unwrap();
        assert!(ratio.interval.low > 1.049 && ratio.interval.high < 1.053);
        assert!(paired.log_correlation().unwrap() > 0.99);
    }

    #[test]
    fn pairing_narrows_what_drifts_and_not_what_does_not() {
        let mut random = Random::new(8);
        let drift: Vec<f64> = (0..20).map(|_| 10.0 * (0.2 * random.normal()).exp()).collect();
        let mut noisy = |base: &[f64]| -> Vec<f64> {
            base.iter().map(|value| value * (0.02 * random.normal()).exp()).collect()
        };
        let (x, y) = (noisy(&drift), noisy(&drift));
        let [paired, unpaired] =
            PairedBlocks::new(&x, &y, 1).unwrap().paired_and_unpaired_widths().unwrap();
        assert!(paired < 0.3 * unpaired);
        let (x, y) = (noisy(&[10.0; 20]), noisy(&[10.0; 20]));
        let [paired, unpaired] =
            PairedBlocks::new(&x, &y, 1).unwrap().paired_and_unpaired_widths().unwrap();
        assert!(paired > 0.8 * unpaired);
        assert_eq!(
            PairedBlocks::new(&[1.0], &[1.0], 1).unwrap().paired_and_unpaired_widths(),
            None
        );
        assert_eq!(
            PairedBlocks::new(&[1.0, 0.0], &[1.0, 2.0], 1).unwrap().paired_and_unpaired_widths(),
            None
        );
    }

    #[test]
    fn the_95_percent_interval_of_honest_twins_covers_1_as_often_as_it_says() {
        let mut random = Random::new(2026);
        let trials = 1000;
        let noises: [fn(&mut Random) -> f64; 2] = [Random::normal, |random| {
            (0.8 * random.normal()).exp() - (0.8 * random.normal()).exp()
        }];
        for (blocks, noise) in [12, 20, 40].into_iter().flat_map(|n| noises.map(|f| (n, f))) {
            let mut missed = 0;
            for trial in 0..trials {
                let logs: Vec<f64> = (0..blocks).map(|_| noise(&mut random)).collect();
                let bca = Bca::of_mean(&logs, 1000, trial).unwrap();
                missed += u32::from(bca.expanded_interval(0.95).excludes(0.0));
            }
            // 5 % of 1,000 are 50, and their number has a standard deviation of 7.
            assert!((25..=70).contains(&missed), "{blocks} blocks: {missed} of {trials}");
        }
    }
}
