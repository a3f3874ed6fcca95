//! Conversion of residues to real numbers, without big integers.

use confide_rlwe::{Modulus, Ring};

/// Computes centred values from residues modulo one to three primes; all but the first are below
/// 2^50.
///
/// This is Garner's mixed radix with balanced digits: x = d0 + p0·(d1 + p1·d2), |d| <= p/2. Digits
/// are exact. Their sum in f64 is correct to a few units in the last place, because no term can
/// cancel more than half of a greater one. Quotients are computed in f64, with an error of at most
/// little more than one half, and remainders in 64-bit integers, of which only the low word matters. A
/// compiler can vectorise all these operations.
pub(super) struct CrtRecombination {
    first: Modulus,
    /// The constants of each later prime's digit.
    steps: Vec<GarnerStep>,
}

#[derive(Clone, Copy)]
struct GarnerStep {
    q: i64,
    inverse_q: f64,
    /// 1/p0 and, in the second step, 1/p1, modulo q.
    factors: [GarnerFactor; 2],
}

#[derive(Clone, Copy, Default)]
struct GarnerFactor {
    value: i64,
    /// value / q.
    ratio: f64,
}

impl CrtRecombination {
    /// Prepares a ring of one to three limbs; further limbs are ignored.
    pub(super) fn new(ring: &Ring) -> CrtRecombination {
        let moduli: Vec<Modulus> = ring.moduli().take(3).collect();
        let step = |(index, &modulus): (usize, &Modulus)| {
            debug_assert!(modulus.bits() <= 50, "a quotient must be exact in f64");
            let q = modulus.value() as f64;
            let mut factors = [GarnerFactor::default(); 2];
            for (factor, p) in factors.iter_mut().zip(&moduli[..index]) {
                let value = modulus.inverse(modulus.reduce(p.value()));
                *factor = GarnerFactor { value: value as i64, ratio: value as f64 / q };
            }
            GarnerStep { q: modulus.value() as i64, inverse_q: 1.0 / q, factors }
        };
        let steps = moduli.iter().enumerate().skip(1).map(step).collect();
        CrtRecombination { first: moduli[0], steps }
    }

    /// Recombines `[limb][n]` residues to n reals in (−Q/2, Q/2). In the outer thousandth of that
    /// range the result may be off by Q, because quotients near one half are rounded in f64.
    #[inline(always)]
    pub(super) fn to_centred(&self, values: &[u64], n: usize) -> Vec<f64> {
        let limb = |index: usize| &values[index * n..][..n];
        let (first, p0) = (self.first, self.first.value() as f64);
        // The loops must be in this body: a loop inside an iterator adapter would not be compiled
        // for the caller's vectors.
        let mut sums = vec![0.0; n];
        match *self.steps.as_slice() {
            [] => {
                for (sum, &x) in sums.iter_mut().zip(limb(0)) {
                    *sum = first.to_centred(x) as f64;
                }
            }
            [b] => {
                for ((sum, &x), &y) in sums.iter_mut().zip(limb(0)).zip(limb(1)) {
                    let d0 = first.to_centred(x);
                    *sum = to_f64(b.multiply_centred(b.subtract_digit(y, d0), 0)) * p0 + d0 as f64;
                }
            }
            [b, c, ..] => {
                let p1 = b.q as f64;
                let limbs = limb(0).iter().zip(limb(1)).zip(limb(2));
                for (sum, ((&x, &y), &z)) in sums.iter_mut().zip(limbs) {
                    let d0 = first.to_centred(x);
                    let d1 = b.multiply_centred(b.subtract_digit(y, d0), 0);
                    let d2 =
                        c.multiply_centred(c.multiply_centred(c.subtract_digit(z, d0), 0) - d1, 1);
                    *sum = (to_f64(d2) * p1 + to_f64(d1)) * p0 + d0 as f64;
                }
            }
        }
        sums
    }
}

impl GarnerStep {
    /// x − digit modulo q, of magnitude below 2q; the digit has at most 61 bits.
    #[inline(always)]
    fn subtract_digit(&self, x: u64, digit: i64) -> i64 {
        let quotient = nearest_integer(digit as f64 * self.inverse_q);
        x as i64 - (digit - quotient * self.q)
    }

    /// x times a factor modulo q, centred, for |x| below 4q.
    #[inline(always)]
    fn multiply_centred(&self, x: i64, factor: usize) -> i64 {
        let GarnerFactor { value, ratio } = self.factors[factor];
        let quotient = nearest_integer(to_f64(x) * ratio);
        x.wrapping_mul(value).wrapping_sub(quotient.wrapping_mul(self.q))
    }
}

/// 1.5·2^52. The sum of this and a number of magnitude below 2^51 has the nearest integer in its
/// lower bits.
const SHIFT: f64 = 6_755_399_441_055_744.0;

#[inline(always)]
pub(super) fn nearest_integer(x: f64) -> i64 {
    (x + SHIFT).to_bits().wrapping_sub(SHIFT.to_bits()) as i64
}

/// The inverse of [`nearest_integer`], for magnitudes below 2^51.
#[inline(always)]
fn to_f64(x: i64) -> f64 {
    f64::from_bits(SHIFT.to_bits().wrapping_add_signed(x)) - SHIFT
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ckks::Parameters;

    #[test]
    fn integers_go_to_f64_and_back() {
        for x in [0, 1, -1, 12345, -(1 << 50), (1 << 51) - 1, -(1 << 51) + 1] {
            assert_eq!((to_f64(x), nearest_integer(x as f64)), (x as f64, x));
        }
        assert_eq!((nearest_integer(2.4), nearest_integer(-2.6), nearest_integer(0.5)), (2, -3, 0));
    }

    #[test]
    fn centred_values_come_back_from_every_count_of_limbs() {
        let (primes, _) = Parameters::dangerous_of_degree(1024).primes();
        for count in 1..=3 {
            let ring = Ring::new(1024, &primes[..count]).unwrap();
            let product: i128 = primes[..count.min(2)].iter().map(|&p| i128::from(p)).product();
            let mut wanted: Vec<i128> = [0, 1, 2, 3, 1 << 30, (1 << 53) + 1].into();
            wanted.push(product / 2 - (product >> 9));
            if count > 1 {
                wanted.extend([(1 << 79) + 12345, (1 << 97) - 77, 1 << 60, 1 << 41]);
            }
            if count > 2 {
                wanted.extend([i128::MAX / 4, (1 << 110) + 3]);
            }
            wanted.extend(wanted.clone().iter().map(|x| -x));
            wanted.resize(1024, 5);
            let limbs = ring.moduli().flat_map(|q| {
                let reduce = move |x: &i128| x.rem_euclid(i128::from(q.value())) as u64;
                wanted.iter().map(reduce).collect::<Vec<_>>()
            });
            let limbs: Vec<u64> = limbs.collect();
            let found = CrtRecombination::new(&ring).to_centred(&limbs, 1024);
            for (x, wanted) in found.iter().zip(&wanted) {
                let error = (x - *wanted as f64).abs();
                assert!(error <= (*wanted as f64).abs() * 4e-16, "{count}: {x} for {wanted}");
            }
        }
    }
}
