//! Noise on the answers of the masked scheme.

use confide_rlwe::Rng;

use crate::terms::noise_headroom;

/// Adds rounded Gaussian noise of standard deviation `sigma`, in units of the integers, to words mod
/// 2^k. It is clamped at the headroom of the norm limit, eight standard deviations.
///
/// Benefit: answers are no longer exact equations. A key holder that requests each unit vector times
/// `x` learns each entry of A up to `sigma / x`, while exact answers reveal it completely; with `m`
/// times as many answers, up to `sigma / (x·√m)`. Cost: an honest answer has the error `sigma`. With
/// `x` at 2^15 and vectors of norm 2^16, the adapter is learned with about twice the relative error of
/// every answer, so noise that hides an adapter also spoils its answers. It extends a budget but does
/// not replace one, and it is not differential privacy.
pub(super) fn add_noise(words: &mut [u64], sigma: f64, mask: u64, rng: &mut Rng) {
    if sigma == 0.0 {
        return;
    }
    let most = noise_headroom(sigma) as f64;
    for word in words {
        let noise = (draw_normal(rng) * sigma).round().clamp(-most, most) as i64;
        *word = word.wrapping_add(noise as u64) & mask;
    }
}

/// Draws a standard normal number by the method of Box and Muller.
fn draw_normal(rng: &mut Rng) -> f64 {
    // In (0, 1], so that its logarithm is finite.
    let unit = |word: u64| ((word >> 11) as f64 + 1.0) / (1u64 << 53) as f64;
    let radius = (-2.0 * unit(rng.next_u64()).ln()).sqrt();
    radius * (std::f64::consts::TAU * unit(rng.next_u64())).cos()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terms::sign_extend;

    #[test]
    fn noise_has_its_standard_deviation_and_no_mean() {
        let (sigma, mask, count) = (100.0, (1 << 33) - 1, 100_000);
        let mut words = vec![0; count];
        add_noise(&mut words, sigma, mask, &mut Rng::from_seed([3; 32]));
        let values: Vec<f64> = words.iter().map(|word| sign_extend(*word, 33) as f64).collect();
        let mean = values.iter().sum::<f64>() / count as f64;
        let variance = values.iter().map(|value| value * value).sum::<f64>() / count as f64;
        assert!(mean.abs() < 2.0 && (variance.sqrt() - sigma).abs() < 1.0, "{mean} {variance}");
        assert!(values.iter().all(|value| value.abs() <= noise_headroom(sigma) as f64));
    }

    #[test]
    fn no_noise_leaves_words_as_they_are() {
        let mut words = [1, 2];
        add_noise(&mut words, 0.0, 3, &mut Rng::from_seed([3; 32]));
        assert_eq!(words, [1, 2]);
    }
}
