//! The encoded form of slots: an integer polynomial.

use std::fmt;

use zeroize::Zeroize;

/// Slots that are encoded as a polynomial of scaled integers.
pub struct EncodedMessage {
    pub(super) coefficients: Vec<i64>,
    pub(super) scale: f64,
}

impl EncodedMessage {
    /// The scaled integer coefficients.
    pub fn coefficients(&self) -> &[i64] {
        &self.coefficients
    }

    /// The factor that slots were multiplied by.
    pub fn scale(&self) -> f64 {
        self.scale
    }
}

impl Drop for EncodedMessage {
    fn drop(&mut self) {
        self.coefficients.zeroize();
    }
}

impl fmt::Debug for EncodedMessage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "EncodedMessage({} coefficients)", self.coefficients.len())
    }
}
