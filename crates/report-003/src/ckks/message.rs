//! Slots as an integer polynomial.

use std::fmt;

use zeroize::Zeroize;

/// Slots as an integer polynomial, scaled.
pub struct Message {
    pub(super) coefficients: Vec<i64>,
    pub(super) scale: f64,
}

impl Message {
    /// The scaled integer coefficients.
    pub fn coefficients(&self) -> &[i64] {
        &self.coefficients
    }

    /// The factor that slots were multiplied by.
    pub fn scale(&self) -> f64 {
        self.scale
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        self.coefficients.zeroize();
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Message({} coefficients)", self.coefficients.len())
    }
}
