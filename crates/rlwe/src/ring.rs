//! Rings: a degree and primes, with a transform for each prime.

use std::{fmt, sync::Arc};

use crate::{
    error::RlweError,
    modulus::{Modulus, ShoupFactor},
    ntt::NttTable,
    simd,
};

/// The greatest number of limbs: 16 words of 61 bits exceed every modulus of the security tables.
pub(crate) const LIMBS_MAX: usize = 16;

/// Z_q\[X\]/(X^n + 1) with q the product of different primes, the limbs (RNS form).
pub struct Ring {
    n: usize,
    limbs: Vec<Limb>,
    lower: Option<Arc<Ring>>,
}

/// One prime of a ring, with its transform.
#[derive(Debug)]
pub struct Limb {
    /// The prime, as a modulus.
    pub modulus: Modulus,
    /// The transform modulo this prime.
    pub table: NttTable,
    /// The inverse of the ring's last prime modulo this one, to switch down; 0 in the last limb.
    pub(crate) last_inverse: ShoupFactor,
}

impl Ring {
    /// Makes a ring of degree n over the given primes, in their order.
    ///
    /// # Errors
    /// If a number is not a prime that is 1 mod 2n, if one is given twice, or if there are none or
    /// more than 16.
    pub fn new(n: usize, primes: &[u64]) -> Result<Arc<Ring>, RlweError> {
        let twice = (1..primes.len()).any(|i| primes[..i].contains(&primes[i]));
        if primes.is_empty() || primes.len() > LIMBS_MAX || twice {
            return Err(RlweError::InvalidModuli { limit: LIMBS_MAX, got: primes.len() });
        }
        let last = primes[primes.len() - 1];
        let limb = |&prime: &u64| {
            let modulus = Modulus::new(prime)?;
            let table = NttTable::new(n, modulus)?;
            let last_inverse = modulus.shoup_factor(modulus.inverse(modulus.reduce(last)));
            Ok(Limb { modulus, table, last_inverse })
        };
        let limbs = primes.iter().map(limb).collect::<Result<Vec<_>, RlweError>>()?;
        let lower = match primes.len() {
            1 => None,
            count => Some(Ring::new(n, &primes[..count - 1])?),
        };
        Ok(Arc::new(Ring { n, limbs, lower }))
    }

    /// The degree n.
    pub fn n(&self) -> usize {
        self.n
    }

    /// The limbs.
    pub fn limbs(&self) -> &[Limb] {
        &self.limbs
    }

    /// The moduli.
    pub fn moduli(&self) -> impl Iterator<Item = Modulus> + '_ {
        self.limbs.iter().map(|limb| limb.modulus)
    }

    /// The ring without its last limb; `None` if it has one limb.
    pub fn lower_ring(&self) -> Option<&Arc<Ring>> {
        self.lower.as_ref()
    }

    /// The number of elements of a polynomial: n in each limb.
    pub fn len(&self) -> usize {
        self.n * self.limbs.len()
    }

    /// Returns `false`: a ring has at least one limb.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// log2 of q, rounded up.
    pub fn modulus_bits(&self) -> u32 {
        self.moduli().map(|q| (q.value() as f64).log2()).sum::<f64>().ceil() as u32
    }

    /// Returns whether two rings have the same degree and primes.
    pub fn is_same(&self, other: &Ring) -> bool {
        std::ptr::eq(self, other) || (self.n == other.n && self.moduli().eq(other.moduli()))
    }
}

impl Limb {
    /// x *= y, element by element. All are residues of this prime.
    ///
    /// # Panics
    /// If the slices are not N long.
    pub fn multiply(&self, x: &mut [u64], y: &[u64]) {
        self.expect_degree([x.len(), y.len(), y.len()]);
        simd::multiply(self.table.path(), self.modulus, x, y);
    }

    /// x += a·b, element by element. All are residues of this prime.
    ///
    /// # Panics
    /// If the slices are not N long.
    pub fn add_product(&self, x: &mut [u64], a: &[u64], b: &[u64]) {
        self.expect_degree([x.len(), a.len(), b.len()]);
        simd::add_product(self.table.path(), self.modulus, x, a, b);
    }

    /// x −= a·b, element by element. All are residues of this prime.
    ///
    /// # Panics
    /// If the slices are not N long.
    pub fn sub_product(&self, x: &mut [u64], a: &[u64], b: &[u64]) {
        self.expect_degree([x.len(), a.len(), b.len()]);
        simd::sub_product(self.table.path(), self.modulus, x, a, b);
    }

    fn expect_degree(&self, lengths: [usize; 3]) {
        let n = self.table.n();
        assert!(lengths == [n; 3], "wanted slices of {n} elements, got {lengths:?}");
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let primes: Vec<_> = self.moduli().map(Modulus::value).collect();
        write!(out, "Ring({}, {primes:?})", self.n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ntt_primes_below;

    #[test]
    fn a_ring_needs_different_primes_and_not_too_many() {
        let primes = ntt_primes_below(50, 1024, 17);
        assert!(matches!(Ring::new(1024, &[]), Err(RlweError::InvalidModuli { .. })));
        assert!(matches!(Ring::new(1024, &primes), Err(RlweError::InvalidModuli { .. })));
        let twice = [primes[0], primes[1], primes[0]];
        assert!(matches!(Ring::new(1024, &twice), Err(RlweError::InvalidModuli { .. })));
        let ring = Ring::new(1024, &primes[..3]).unwrap();
        assert_eq!((ring.len(), ring.modulus_bits()), (3072, 150));
        assert!(ring.lower_ring().unwrap().is_same(&Ring::new(1024, &primes[..2]).unwrap()));
    }

    #[test]
    #[should_panic(expected = "wanted slices of 1024 elements")]
    fn products_of_a_limb_need_whole_slices() {
        let ring = Ring::new(1024, &ntt_primes_below(50, 1024, 1)).unwrap();
        ring.limbs()[0].add_product(&mut [0; 1024], &[1; 1024], &[1; 1023]);
    }
}
