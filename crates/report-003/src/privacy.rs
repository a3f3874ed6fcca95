//! Differential privacy for vectors that a client sends: clipping, then Gaussian noise, with an
//! account of the privacy loss of all releases.
//!
//! The account is in zero-concentrated differential privacy (Bun and Steinke, 2016): a Gaussian of
//! deviation `sigma` on a vector of sensitivity `d` costs `rho = d^2 / (2 sigma^2)` (proposition
//! 1.6); releases add up (lemma 1.7, adaptive ones included); and `rho` is `(epsilon, delta)`-private
//! for `epsilon = rho + 2 sqrt(rho ln(1/delta))` (proposition 1.3). Neighbours are any two texts of
//! the same length: every released vector may differ, by at most twice the clip each.
//!
//! It is off by default: noise that hides a token from the server also hides it from the model.

/// A mechanism that clips a vector and adds Gaussian noise, and the number of its releases.
#[derive(Clone, Debug, PartialEq)]
pub struct GaussianMechanism {
    clip: f64,
    delta: f64,
    rho_per_release: f64,
    released: u64,
}

/// The privacy loss of a mechanism.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PrivacyLoss {
    /// The number of vectors released.
    pub released: u64,
    /// The epsilon of all releases together.
    pub epsilon: f64,
    /// The delta of all releases together.
    pub delta: f64,
}

/// A parameter of a mechanism is not finite or is outside its range.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("{name}: wanted {wanted}, got {got}")]
pub struct InvalidPrivacyParameter {
    name: &'static str,
    wanted: &'static str,
    got: f64,
}

/// The number of steps of the grid in one clip. Vectors and noise are rounded to the grid, so that
/// the released sum is an integer: the last bits of a floating-point sum would reveal the vector
/// (Mironov, 2012).
const GRID_STEPS: f64 = 1_048_576.0;

impl GaussianMechanism {
    /// Makes a mechanism for vectors of length at most `clip`, so that each release alone is
    /// `(epsilon_per_release, delta)`-private.
    ///
    /// # Errors
    /// If a parameter is not finite or is outside its range.
    pub fn new(
        epsilon_per_release: f64,
        delta: f64,
        clip: f64,
    ) -> Result<Self, InvalidPrivacyParameter> {
        let positive = |name, got: f64| match got.is_finite() && got > 0.0 {
            true => Ok(()),
            false => Err(InvalidPrivacyParameter { name, wanted: "a number above 0", got }),
        };
        positive("epsilon", epsilon_per_release)?;
        positive("clip", clip)?;
        if !(delta > 0.0 && delta < 1.0) {
            return Err(InvalidPrivacyParameter {
                name: "delta",
                wanted: "a number between 0 and 1",
                got: delta,
            });
        }
        // The inverse of proposition 1.3.
        let log = (1.0 / delta).ln();
        let root = (log + epsilon_per_release).sqrt() - log.sqrt();
        Ok(Self { clip, delta, rho_per_release: root * root, released: 0 })
    }

    /// The standard deviation of the noise on each of `elements` elements.
    pub fn sigma(&self, elements: usize) -> f64 {
        // Rounding moves each element by half a step at most, in both of two neighbours.
        let sensitivity = 2.0 * self.clip + (elements as f64).sqrt() * self.grid_step();
        sensitivity / (2.0 * self.rho_per_release).sqrt()
    }

    /// Clips a vector and adds the noise. `random` fills its argument with unpredictable random
    /// bytes. A vector with an element that is not finite is replaced by noise only.
    pub fn release(&mut self, row: &mut [f32], random: &mut dyn FnMut(&mut [u8])) {
        let length = row.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt();
        let shrink = match length.is_finite() {
            true if length > self.clip => self.clip / length,
            true => 1.0,
            false => 0.0,
        };
        let (step, sigma) = (self.grid_step(), self.sigma(row.len()));
        for value in row {
            let kept = if shrink == 0.0 { 0.0 } else { f64::from(*value) * shrink };
            let steps = (kept / step).round() + (sigma / step * draw_normal(random)).round();
            *value = (steps * step) as f32;
        }
        self.released += 1;
    }

    /// The privacy loss of all releases so far.
    pub fn privacy_loss(&self) -> PrivacyLoss {
        self.privacy_loss_after(self.released)
    }

    /// The privacy loss of `released` releases.
    pub fn privacy_loss_after(&self, released: u64) -> PrivacyLoss {
        let rho = self.rho_per_release * released as f64;
        let epsilon = rho + 2.0 * (rho * (1.0 / self.delta).ln()).sqrt();
        PrivacyLoss { released, epsilon, delta: self.delta }
    }

    fn grid_step(&self) -> f64 {
        self.clip / GRID_STEPS
    }
}

/// Draws a normal variate (Box and Muller, 1958) from 53-bit uniforms. Its tail ends at 8.5
/// deviations, beyond which there is less than 2^-53 of the mass: far less than any useful delta.
fn draw_normal(random: &mut dyn FnMut(&mut [u8])) -> f64 {
    let mut bytes = [0; 16];
    random(&mut bytes);
    let [first, second] = [&bytes[..8], &bytes[8..]].map(|half| {
        let whole = half.iter().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte));
        ((whole >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    });
    (-2.0 * first.ln()).sqrt() * (std::f64::consts::TAU * second).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SplitMix64: a test needs the same numbers each time, not secret ones.
    fn dice() -> impl FnMut(&mut [u8]) {
        let mut state = 7u64;
        move |bytes| {
            for chunk in bytes.chunks_mut(8) {
                state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                let mut mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
                chunk.copy_from_slice(&(mixed ^ mixed >> 31).to_le_bytes()[..chunk.len()]);
            }
        }
    }

    #[test]
    fn one_release_costs_what_was_asked_and_more_add_up() {
        let mut mechanism = GaussianMechanism::new(1.0, 1e-6, 1.0).expect("a budget");
        assert_eq!(mechanism.privacy_loss().epsilon, 0.0);
        mechanism.release(&mut [0.0; 8], &mut dice());
        assert!((mechanism.privacy_loss().epsilon - 1.0).abs() < 1e-9);
        for _ in 1..64 {
            mechanism.release(&mut [0.0; 8], &mut dice());
        }
        // rho of one is 0.017466; 64 of them are 1.11784, and 2 sqrt(1.11784 ln 10^6) is 7.8597.
        let spent = mechanism.privacy_loss();
        assert_eq!(spent.released, 64);
        assert!((spent.epsilon - 8.98).abs() < 0.05, "{spent:?}");
    }

    #[test]
    fn the_noise_has_the_deviation_of_its_account() {
        let mut mechanism = GaussianMechanism::new(4.0, 1e-5, 2.0).expect("a budget");
        let mut row = vec![0.0; 40_000];
        let sigma = mechanism.sigma(row.len());
        mechanism.release(&mut row, &mut dice());
        let mean = row.iter().map(|v| f64::from(*v)).sum::<f64>() / row.len() as f64;
        let square = row.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / row.len() as f64;
        assert!(mean.abs() < 0.03 * sigma, "{mean}");
        assert!((square.sqrt() / sigma - 1.0).abs() < 0.02, "{} and {sigma}", square.sqrt());
    }

    #[test]
    fn a_long_vector_is_clipped_and_one_without_numbers_is_not_sent() {
        // A budget so large that the noise is far below the clip.
        let mut mechanism = GaussianMechanism::new(1e9, 1e-6, 1.0).expect("a budget");
        let mut row = [300.0, 400.0];
        mechanism.release(&mut row, &mut dice());
        assert!((row[0] - 0.6).abs() < 0.01 && (row[1] - 0.8).abs() < 0.01, "{row:?}");
        for odd in [f32::NAN, f32::INFINITY] {
            let mut row = [odd, 1.0];
            mechanism.release(&mut row, &mut dice());
            assert!(row.iter().all(|value| value.abs() < 0.01), "{row:?}");
        }
    }

    #[test]
    fn what_is_released_lies_on_the_grid() {
        let mut mechanism = GaussianMechanism::new(1e6, 1e-6, 1.0).expect("a budget");
        let mut row = [0.123_456_79, -0.3, 0.001];
        mechanism.release(&mut row, &mut dice());
        for value in row {
            let steps = f64::from(value) * GRID_STEPS;
            assert!((steps - steps.round()).abs() < 0.05, "{value}");
        }
    }

    #[test]
    fn budgets_that_are_none_are_refused() {
        for (epsilon, delta, clip) in [
            (0.0, 1e-6, 1.0),
            (-1.0, 1e-6, 1.0),
            (f64::NAN, 1e-6, 1.0),
            (1.0, 0.0, 1.0),
            (1.0, 1.0, 1.0),
            (1.0, 1e-6, 0.0),
            (1.0, 1e-6, f64::INFINITY),
        ] {
            assert!(GaussianMechanism::new(epsilon, delta, clip).is_err());
        }
    }
}
