//! Residues to real numbers, without big integers.

use crate::{Modulus, Ring, Shoup};

/// Centred values from residues modulo one to three primes.
///
/// Garner's mixed radix with balanced digits: x = d0 + p0·(d1 + p1·d2), |d| <= p/2, primes from
/// the least to the greatest, so that a digit is always below the next prime and never needs a
/// reduction. Digits are exact; their sum in f64 is right to a few units of the last place, as no
/// term can cancel more than half of a greater one.
pub(super) struct Recombination {
    /// Limb and prime, from the least prime.
    steps: Vec<Step>,
}

struct Step {
    limb: usize,
    modulus: Modulus,
    /// 1/p of each earlier step, modulo this prime.
    inverses: Vec<Shoup>,
}

impl Recombination {
    /// For a ring of at most three limbs; limbs beyond are not looked at.
    pub(super) fn new(ring: &Ring) -> Recombination {
        let mut moduli: Vec<_> = ring.moduli().enumerate().take(3).collect();
        moduli.sort_by_key(|(_, modulus)| modulus.value());
        let step = |(index, &(limb, modulus)): (usize, &(usize, Modulus))| {
            let inverse = |p: Modulus| modulus.shoup(modulus.inverse(modulus.reduce(p.value())));
            let inverses = moduli[..index].iter().map(|(_, p)| inverse(*p)).collect();
            Step { limb, modulus, inverses }
        };
        Recombination { steps: moduli.iter().enumerate().map(step).collect() }
    }

    /// `[limb][n]` residues to n reals in (−Q/2, Q/2).
    pub(super) fn centred(&self, values: &[u64], n: usize) -> Vec<f64> {
        let limb = |step: &Step| &values[step.limb * n..][..n];
        match self.steps.as_slice() {
            [] => Vec::new(),
            [a] => limb(a).iter().map(|&x| a.modulus.centred(x) as f64).collect(),
            [a, b] => {
                let p0 = a.modulus.value() as f64;
                let pairs = limb(a).iter().zip(limb(b));
                let sum = |(&x, &y)| {
                    let d0 = a.modulus.centred(x);
                    b.digit(y, [d0]) as f64 * p0 + d0 as f64
                };
                pairs.map(sum).collect()
            }
            [a, b, c, ..] => {
                let (p0, p1) = (a.modulus.value() as f64, b.modulus.value() as f64);
                let triples = limb(a).iter().zip(limb(b)).zip(limb(c));
                let sum = |((&x, &y), &z)| {
                    let d0 = a.modulus.centred(x);
                    let d1 = b.digit(y, [d0]);
                    let d2 = c.digit(z, [d0, d1]);
                    (d2 as f64 * p1 + d1 as f64) * p0 + d0 as f64
                };
                triples.map(sum).collect()
            }
        }
    }
}

impl Step {
    /// (((x − d0)/p0 − d1)/p1 …), centred.
    #[inline(always)]
    fn digit<const K: usize>(&self, x: u64, digits: [i64; K]) -> i64 {
        let q = self.modulus;
        let mut rest = x;
        for (digit, &inverse) in digits.into_iter().zip(&self.inverses) {
            // Between 0 and 3q: |digit| is at most half of an earlier prime, which is less than q.
            rest = q.mul_shoup_lazy((rest + q.value()).wrapping_add_signed(-digit), inverse);
        }
        q.centred(crate::modulus::once(rest, q.value()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ckks::Parameters;

    #[test]
    fn centred_values_come_back_from_every_count_of_limbs() {
        let (primes, _) = Parameters::dangerous_of_degree(1024).primes();
        for count in 1..=3 {
            let ring = Ring::new(1024, &primes[..count]).unwrap();
            let product: i128 = primes[..count.min(2)].iter().map(|&p| i128::from(p)).product();
            let mut wanted: Vec<i128> = [0, 1, 2, 3, 1 << 30, (1 << 53) + 1, product / 2].into();
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
            let found = Recombination::new(&ring).centred(&limbs, 1024);
            for (x, wanted) in found.iter().zip(&wanted) {
                let error = (x - *wanted as f64).abs();
                assert!(error <= (*wanted as f64).abs() * 4e-16, "{count}: {x} for {wanted}");
            }
        }
    }
}
