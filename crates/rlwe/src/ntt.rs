//! The negacyclic number-theoretic transform.

#[cfg(target_arch = "x86_64")]
mod avx512;
mod path;
mod portable;
mod stages;

use std::fmt;

pub use path::NttPath;
use stages::{RootPowers, ScaleFactor, StageConstants};

use crate::{error::RlweError, modulus::Modulus};

/// The least degree of a transform: the fast paths need at least two registers of eight values. The
/// CKKS sets go up to 32768.
pub(crate) const DEGREE_MIN: usize = 16;
pub(crate) const DEGREE_MAX: usize = 65536;

/// The negacyclic number-theoretic transform of degree n modulo one prime.
///
/// In NTT form, element i is the polynomial's value at ψ^(2·rev(i) + 1), where ψ is the least
/// primitive 2n-th root of unity and rev reverses log2(n) bits. Butterflies are lazy (D. Harvey,
/// "Faster arithmetic for number-theoretic transforms", 2014).
#[derive(Clone)]
pub struct NttTable(StageConstants);

impl NttTable {
    /// Makes a table for the fastest path of this machine.
    ///
    /// # Errors
    /// If n is not a power of two from 16 to 65536, or the modulus is not 1 mod 2n.
    pub fn new(n: usize, modulus: Modulus) -> Result<NttTable, RlweError> {
        let path = NttPath::available(modulus).last().copied().unwrap_or(NttPath::Portable);
        NttTable::with_path(n, modulus, path)
    }

    /// Makes a table for a given path, for tests and measurements.
    ///
    /// # Errors
    /// As [`NttTable::new`], and if the path does not support the machine or the modulus.
    pub fn with_path(n: usize, modulus: Modulus, path: NttPath) -> Result<NttTable, RlweError> {
        let refused = RlweError::NoTransform { n, modulus: modulus.value() };
        if !n.is_power_of_two() || !(DEGREE_MIN..=DEGREE_MAX).contains(&n) {
            return Err(refused);
        }
        if !NttPath::available(modulus).contains(&path) {
            return Err(RlweError::UnsupportedPath { path: path.name() });
        }
        let root = modulus.primitive_root(2 * n as u64).ok_or(refused)?;
        let forward = RootPowers::new(n, modulus, root, path);
        let inverse = RootPowers::new(n, modulus, modulus.inverse(root), path);
        let scale = modulus.inverse(n as u64);
        let last = modulus.mul(scale, inverse.values[1]);
        let scale = [scale, last].map(|value| ScaleFactor {
            value,
            quotient: path.convert_quotient(modulus.shoup_factor(value).quotient),
        });
        Ok(NttTable(StageConstants { n, modulus, path, forward, inverse, scale }))
    }

    /// The degree n.
    pub fn n(&self) -> usize {
        self.0.n
    }

    /// The modulus q.
    pub fn modulus(&self) -> Modulus {
        self.0.modulus
    }

    /// The path: the code that runs the transforms.
    pub fn path(&self) -> NttPath {
        self.0.path
    }

    /// ψ, the primitive 2n-th root of unity of element 0.
    pub fn root(&self) -> u64 {
        self.0.forward.values[self.0.n / 2]
    }

    /// Transforms coefficient form to NTT form, in place; n reduced values to n reduced values.
    ///
    /// # Panics
    /// If `values` does not have n elements.
    pub fn forward(&self, values: &mut [u64]) {
        assert_eq!(values.len(), self.0.n, "wanted n = {} values", self.0.n);
        match self.0.path {
            #[cfg(target_arch = "x86_64")]
            NttPath::Avx512 | NttPath::Ifma => avx512::forward(&self.0, values),
            _ => portable::forward(&self.0, values),
        }
    }

    /// Transforms NTT form to coefficient form, in place; n reduced values to n reduced values.
    ///
    /// # Panics
    /// If `values` does not have n elements.
    pub fn inverse(&self, values: &mut [u64]) {
        assert_eq!(values.len(), self.0.n, "wanted n = {} values", self.0.n);
        match self.0.path {
            #[cfg(target_arch = "x86_64")]
            NttPath::Avx512 | NttPath::Ifma => avx512::inverse(&self.0, values),
            _ => portable::inverse(&self.0, values),
        }
    }
}

impl fmt::Debug for NttTable {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "NttTable({}, {}, {})", self.0.n, self.0.modulus.value(), self.0.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Rng, ntt_primes_below};

    fn uniform(rng: &mut Rng, modulus: Modulus, n: usize) -> Vec<u64> {
        let mut values = vec![0; n];
        rng.fill_uniform(modulus, &mut values);
        values
    }

    /// Evaluates the polynomial at every point by Horner's rule: n^2 products.
    fn evaluate_naively(table: &NttTable, values: &[u64]) -> Vec<u64> {
        let q = table.modulus();
        let at = |i: usize| q.pow(table.root(), 2 * stages::reverse_bits(i, table.n()) as u64 + 1);
        let horner = |x: u64| values.iter().rev().fold(0, |sum, &c| q.mul_add(sum, x, c));
        (0..table.n()).map(|i| horner(at(i))).collect()
    }

    /// Sums over all pairs of coefficients, with X^n = −1.
    fn naive_product(q: Modulus, a: &[u64], b: &[u64]) -> Vec<u64> {
        let n = a.len();
        let mut product = vec![0; n];
        for (i, &x) in a.iter().enumerate() {
            for (j, &y) in b.iter().enumerate() {
                let term = q.mul(x, y);
                let at = (i + j) % n;
                let signed = if i + j < n { term } else { q.sub(0, term) };
                product[at] = q.add(product[at], signed);
            }
        }
        product
    }

    /// Tables of every path of this machine, for every kind of modulus.
    fn tables(n: usize) -> Vec<NttTable> {
        let mut found = Vec::new();
        for bits in [25, 40, 49, 50, 51, 60, 61] {
            let modulus = Modulus::new(ntt_primes_below(bits, n, 1)[0]).unwrap();
            for path in NttPath::available(modulus) {
                found.push(NttTable::with_path(n, modulus, path).unwrap());
            }
        }
        found
    }

    #[test]
    fn every_path_evaluates_at_the_odd_powers_of_the_root() {
        let mut rng = Rng::from_seed([1; 32]);
        for n in [16, 32, 64, 256, 512] {
            for table in tables(n) {
                let values = uniform(&mut rng, table.modulus(), n);
                let mut transformed = values.clone();
                table.forward(&mut transformed);
                assert_eq!(transformed, evaluate_naively(&table, &values), "{table:?}");
                table.inverse(&mut transformed);
                assert_eq!(transformed, values, "{table:?}");
            }
        }
    }

    #[test]
    fn every_path_multiplies_as_the_naive_product() {
        let mut rng = Rng::from_seed([2; 32]);
        for n in [16, 128, 1024] {
            for table in tables(n) {
                let q = table.modulus();
                let (a, b) = (uniform(&mut rng, q, n), uniform(&mut rng, q, n));
                let (mut left, mut right) = (a.clone(), b.clone());
                table.forward(&mut left);
                table.forward(&mut right);
                let mut product: Vec<_> =
                    left.iter().zip(&right).map(|(&x, &y)| q.mul(x, y)).collect();
                table.inverse(&mut product);
                assert_eq!(product, naive_product(q, &a, &b), "{table:?}");
            }
        }
    }

    #[test]
    fn every_path_agrees_with_the_portable_one_at_full_degree() {
        let mut rng = Rng::from_seed([3; 32]);
        for n in [1024, 2048, 4096, 8192, 16384, 32768] {
            for table in tables(n) {
                let q = table.modulus();
                let portable = NttTable::with_path(n, q, NttPath::Portable).unwrap();
                let greatest = vec![q.value() - 1; n];
                for values in [greatest, uniform(&mut rng, q, n)] {
                    let (mut ours, mut reference) = (values.clone(), values.clone());
                    table.forward(&mut ours);
                    portable.forward(&mut reference);
                    assert_eq!(ours, reference, "{table:?}");
                    table.inverse(&mut ours);
                    assert_eq!(ours, values, "{table:?}");
                    // An inverse of values that did not come from a forward transform.
                    let (mut ours, mut reference) = (values.clone(), values);
                    table.inverse(&mut ours);
                    portable.inverse(&mut reference);
                    assert_eq!(ours, reference, "{table:?}");
                }
            }
        }
    }

    #[test]
    fn degrees_and_moduli_without_a_transform_are_refused() {
        let modulus = Modulus::new(ntt_primes_below(50, 4096, 1)[0]).unwrap();
        for n in [0, 1, 8, 1000, 1 << 17] {
            assert!(matches!(NttTable::new(n, modulus), Err(RlweError::NoTransform { .. })));
        }
        let odd = Modulus::new(12289).unwrap();
        assert!(matches!(NttTable::new(4096, odd), Err(RlweError::NoTransform { .. })));
        assert!(NttTable::new(2048, odd).is_ok());
    }
}
