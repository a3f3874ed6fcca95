//! Quantiles of counted values, printed only where the tail holds enough of them.

use std::collections::BTreeMap;

/// Samples that must lie beyond a quantile (METHODOLOGY: "p95 from 200").
pub const TAIL_SAMPLES: f64 = 10.0;

/// How often each value was seen. The unit is its owner's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    values: BTreeMap<u64, u64>,
    beyond: u64,
}

impl Counted {
    /// Adds `count` times `value`.
    pub fn add(&mut self, value: u64, count: u64) {
        let seen = self.values.entry(value).or_default();
        *seen = seen.saturating_add(count);
    }

    /// Adds values that are known only to be greater than all others.
    pub fn add_beyond(&mut self, count: u64) {
        self.beyond = self.beyond.saturating_add(count);
    }

    /// How many values.
    pub fn total(&self) -> u64 {
        self.values.values().fold(self.beyond, |sum, count| sum.saturating_add(*count))
    }

    /// The nearest-rank quantile `q`, 0 to 1: `None` where fewer than ten values lie beyond it, or
    /// where it is one of those that are only known to be great.
    pub fn quantile(&self, q: f64) -> Option<f64> {
        let total = self.total() as f64;
        // A thousandth of ten thousand is ten, whatever the last bit of 1 - q says.
        if total == 0.0 || total * (1.0 - q) + 1e-6 < TAIL_SAMPLES {
            return None;
        }
        let rank = (q * total).ceil().max(1.0);
        let mut seen = 0.0;
        for (value, count) in &self.values {
            seen += *count as f64;
            if seen >= rank {
                return Some(*value as f64);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_needs_ten_values_beyond_it() {
        let mut counted = Counted::default();
        counted.add(7, 9_999);
        assert_eq!(counted.quantile(0.999), None);
        counted.add(8, 1);
        assert_eq!(counted.quantile(0.999), Some(7.0));
        assert_eq!(counted.quantile(0.5), Some(7.0));
        assert_eq!(Counted::default().quantile(0.5), None);
    }

    #[test]
    fn a_quantile_among_values_that_are_only_known_to_be_great_is_not_told() {
        let mut counted = Counted::default();
        counted.add(7, 900);
        counted.add_beyond(100);
        assert_eq!(counted.quantile(0.5), Some(7.0));
        assert_eq!(counted.quantile(0.95), None);
    }
}
