//! Distributions over the generator's words.

use crate::{modulus::Modulus, rng::Rng, simd};

/// The parameter of the centred binomial distribution: |e| <= 21, sigma 3.24 (the error width of the
/// HomomorphicEncryption.org standard is 3.19).
pub(crate) const ERROR_BOUND: u64 = 21;

impl Rng {
    /// Draws uniform values below the modulus. Words are truncated to its width, and those that are
    /// not below it are skipped. The time depends on the words, so the values must be public.
    pub fn fill_uniform(&mut self, modulus: Modulus, values: &mut [u64]) {
        let mask = u64::MAX >> (64 - modulus.bits());
        let mut filled = 0;
        while filled < values.len() {
            self.draw_words(values.len() - filled, |words| {
                for word in words {
                    let value = word & mask;
                    values[filled] = value;
                    filled += usize::from(value < modulus.value());
                }
            });
        }
    }

    /// Draws uniform values below 2^bits, `bits` from 1 to 64, in constant time.
    pub fn fill_bits(&mut self, bits: u32, values: &mut [u64]) {
        self.fill_from_words(values, |word| word >> (64 - bits.clamp(1, 64)));
    }

    /// Draws a value below `bound`, in constant time. Its distance from uniform is below 2^−64, so
    /// no test can distinguish them.
    pub fn next_below(&mut self, bound: u64) -> u64 {
        scale_to_bound([self.next_u64(), self.next_u64()], bound)
    }

    /// Draws ternary values, −1, 0 and 1 each with probability 1/3 (within 2^−62), in constant
    /// time.
    pub fn fill_ternary(&mut self, values: &mut [i64]) {
        self.fill_from_words(values, |word| ((u128::from(word) * 3) >> 64) as i64 - 1);
    }

    /// Draws centred binomial values: the difference of two sums of 21 bits, in constant time.
    pub fn fill_errors(&mut self, values: &mut [i64]) {
        self.fill_from_words(values, binomial_error);
    }

    fn fill_from_words<T>(&mut self, values: &mut [T], each: impl Fn(u64) -> T + Copy) {
        let mut at = 0;
        self.draw_words(values.len(), |words| {
            let run = &mut values[at..][..words.len()];
            at += words.len();
            simd::run_vectorised(|| {
                run.iter_mut().zip(words).for_each(|(value, &word)| *value = each(word));
            });
        });
    }
}

/// The upper 64 of the 192 bits of a 128-bit word times the bound.
#[inline(always)]
pub(crate) fn scale_to_bound([low, high]: [u64; 2], bound: u64) -> u64 {
    let low = u128::from(low) * u128::from(bound);
    let high = u128::from(high) * u128::from(bound);
    ((high + (low >> 64)) >> 64) as u64
}

/// A centred binomial value from the lower 42 bits of a word.
#[inline(always)]
fn binomial_error(word: u64) -> i64 {
    const HALF: u64 = (1 << ERROR_BOUND) - 1;
    i64::from((word & HALF).count_ones()) - i64::from(((word >> 21) & HALF).count_ones())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The chi-square statistic of counts against probabilities.
    fn chi_square(counts: &[u64], probabilities: &[f64]) -> f64 {
        let total = counts.iter().sum::<u64>() as f64;
        let term = |(&count, p): (&u64, f64)| (count as f64 - total * p).powi(2) / (total * p);
        counts.iter().zip(probabilities.iter().copied()).map(term).sum()
    }

    /// A limit far beyond the 99.99 % quantile of `degrees` degrees of freedom (Wilson and
    /// Hilferty).
    fn limit(degrees: f64) -> f64 {
        let h = 2.0 / (9.0 * degrees);
        degrees * (1.0 - h + 3.9 * h.sqrt()).powi(3)
    }

    #[test]
    fn ternary_values_are_thirds() {
        let mut values = vec![9; 60_000];
        Rng::from_seed([11; 32]).fill_ternary(&mut values);
        let counts = [-1, 0, 1].map(|v| values.iter().filter(|&&x| x == v).count() as u64);
        assert_eq!(counts.iter().sum::<u64>(), 60_000);
        assert!(chi_square(&counts, &[1.0 / 3.0; 3]) < limit(2.0), "{counts:?}");
    }

    #[test]
    fn errors_are_centred_binomial() {
        let mut values = vec![99; 200_000];
        Rng::from_seed([12; 32]).fill_errors(&mut values);
        assert!(values.iter().all(|e| e.unsigned_abs() <= ERROR_BOUND));
        // P(e = d) = C(42, 21 + d) / 2^42; the tails beyond ±9 are one class each.
        let mut row = vec![1.0f64];
        for i in 0..42 {
            row.push(row[i] * (42 - i) as f64 / (i + 1) as f64);
        }
        let p = |d: i64| row[(21 + d) as usize] / 2f64.powi(42);
        let mut counts = vec![0; 21];
        let mut probabilities = vec![0.0; 21];
        for d in -21..=21i64 {
            probabilities[(d.clamp(-10, 10) + 10) as usize] += p(d);
        }
        for e in &values {
            counts[(e.clamp(&-10, &10) + 10) as usize] += 1;
        }
        assert!(chi_square(&counts, &probabilities) < limit(20.0), "{counts:?}");
        let variance = values.iter().map(|e| (e * e) as f64).sum::<f64>() / 200_000.0;
        assert!((variance - 10.5).abs() < 0.2, "{variance}");
    }

    #[test]
    fn uniform_values_are_reduced_and_flat() {
        for q in [12289, (1 << 50) - 27, (1 << 61) - 1] {
            let modulus = Modulus::new(q).unwrap();
            let mut values = vec![u64::MAX; 64_000];
            Rng::from_seed([13; 32]).fill_uniform(modulus, &mut values);
            assert!(values.iter().all(|&x| x < q));
            let mut counts = vec![0; 64];
            for x in &values {
                counts[(u128::from(*x) * 64 / u128::from(q)) as usize] += 1;
            }
            assert!(chi_square(&counts, &[1.0 / 64.0; 64]) < limit(63.0), "{q}: {counts:?}");
        }
    }

    #[test]
    fn bits_and_values_below_a_bound_are_flat() {
        let mut rng = Rng::from_seed([14; 32]);
        let mut values = vec![0; 64_000];
        rng.fill_bits(33, &mut values);
        assert!(values.iter().all(|x| x >> 33 == 0));
        let mut counts = vec![0; 64];
        values.iter().for_each(|x| counts[(x >> 27) as usize] += 1);
        assert!(chi_square(&counts, &[1.0 / 64.0; 64]) < limit(63.0), "{counts:?}");
        let mut counts = vec![0; 10];
        (0..20_000).for_each(|_| counts[rng.next_below(10) as usize] += 1);
        assert!(chi_square(&counts, &[0.1; 10]) < limit(9.0), "{counts:?}");
        let bound = (1 << 63) + 12345;
        assert!((0..1000).all(|_| rng.next_below(bound) < bound));
    }
}
