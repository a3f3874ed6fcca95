//! A confidence interval.

/// A confidence interval: its two ends and its confidence level.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// The confidence level as a fraction, such as 0.95.
    pub level: f64,
}

impl Interval {
    /// True when `value` lies outside the ends.
    pub fn excludes(&self, value: f64) -> bool {
        value < self.low || value > self.high
    }

    /// Maps both ends by a rising function and keeps the level.
    pub fn map(self, rising: impl Fn(f64) -> f64) -> Self {
        Self { low: rising(self.low), high: rising(self.high), level: self.level }
    }

    /// Returns the upper end minus the lower end.
    pub fn width(&self) -> f64 {
        self.high - self.low
    }
}
