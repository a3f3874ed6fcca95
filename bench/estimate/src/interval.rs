//! A confidence interval.

/// Two ends and the level they were made for (0.95).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Confidence level, a fraction.
    pub level: f64,
}

impl Interval {
    /// True when `value` is not between the ends.
    pub fn excludes(&self, value: f64) -> bool {
        value < self.low || value > self.high
    }

    /// The same interval with both ends mapped by a rising function.
    pub fn map(self, rising: impl Fn(f64) -> f64) -> Self {
        Self { low: rising(self.low), high: rising(self.high), level: self.level }
    }

    /// Upper end minus lower end.
    pub fn width(&self) -> f64 {
        self.high - self.low
    }
}
