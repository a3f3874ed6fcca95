//! Quantiles of counted values, printed only where the tail holds enough of them.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::error::ReadError;

/// Samples that must lie beyond a quantile (METHODOLOGY: "p95 from 200").
pub const TAIL_SAMPLES: f64 = 10.0;

/// How often each value was seen, in the unit of its owner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    values: BTreeMap<u64, u64>,
    beyond: u64,
}

impl Histogram {
    /// Adds `count` times `value`.
    fn add(&mut self, value: u64, count: u64) {
        let seen = self.values.entry(value).or_default();
        *seen = seen.saturating_add(count);
    }

    /// Adds the bins of a JSON object from value to count; returns how many values they hold.
    ///
    /// # Errors
    /// When it is not an object, or a value or count is not a whole number.
    pub fn add_bins(&mut self, bins: &Value) -> Result<u64, ReadError> {
        let missing = || ReadError::Missing { what: "histogram".to_owned() };
        let mut total = 0_u64;
        for (value, count) in bins.as_object().ok_or_else(missing)? {
            let wrong =
                || ReadError::NoNumber { what: "a bin".into(), got: format!("{value}: {count}") };
            let number = count.as_u64().ok_or_else(wrong)?;
            self.add(value.parse().map_err(|_| wrong())?, number);
            total = total.saturating_add(number);
        }
        Ok(total)
    }

    /// Adds values that are known only to be greater than all others.
    pub fn add_overflow(&mut self, count: u64) {
        self.beyond = self.beyond.saturating_add(count);
    }

    /// The number of values, those beyond all others included.
    pub fn total(&self) -> u64 {
        self.values.values().fold(self.beyond, |sum, count| sum.saturating_add(*count))
    }

    /// The nearest-rank quantile `q`, 0 to 1: `None` if fewer than ten values lie beyond it, or
    /// where it is one of those that are only known to be greater than all others.
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
        let mut histogram = Histogram::default();
        histogram.add(7, 9_999);
        assert_eq!(histogram.quantile(0.999), None);
        histogram.add(8, 1);
        assert_eq!(histogram.quantile(0.999), Some(7.0));
        assert_eq!(histogram.quantile(0.5), Some(7.0));
        assert_eq!(Histogram::default().quantile(0.5), None);
    }

    #[test]
    fn a_quantile_among_values_that_are_only_known_to_be_great_is_not_told() {
        let mut histogram = Histogram::default();
        histogram.add(7, 900);
        histogram.add_overflow(100);
        assert_eq!(histogram.quantile(0.5), Some(7.0));
        assert_eq!(histogram.quantile(0.95), None);
    }
}
