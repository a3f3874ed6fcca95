//! Polynomials over a ring, in coefficient form and in NTT form.

use std::{fmt, sync::Arc};

use zeroize::Zeroize;

use crate::{
    error::RlweError,
    modulus::Modulus,
    ring::{Limb, Ring},
    rng::Rng,
    simd,
};

/// A polynomial in coefficient form: `[limb][n]`, contiguous, reduced.
#[derive(Clone)]
pub struct Poly {
    ring: Arc<Ring>,
    values: Vec<u64>,
}

/// A polynomial in NTT form: `[limb][n]`, contiguous, reduced. The order is that
/// of [`NttTable`](crate::NttTable).
#[derive(Clone)]
pub struct NttPoly {
    ring: Arc<Ring>,
    values: Vec<u64>,
}

/// Methods of both forms. Operations on two polynomials panic if their rings differ: only a
/// mistake in the program can cause that, never an input.
macro_rules! impl_polynomial_form {
    ($form:ident) => {
        impl $form {
            /// The polynomial 0.
            pub fn zero(ring: &Arc<Ring>) -> $form {
                $form { ring: ring.clone(), values: vec![0; ring.len()] }
            }

            /// Makes a polynomial from `[limb][n]` values.
            ///
            /// # Errors
            /// If there are not n values for each limb, or one is not below its modulus.
            pub fn from_values(ring: &Arc<Ring>, values: Vec<u64>) -> Result<$form, RlweError> {
                let (wanted, got) = (ring.len(), values.len());
                if wanted != got {
                    return Err(RlweError::Length { what: "polynomial", wanted, got });
                }
                let reduced = |(q, limb): (Modulus, &[u64])| limb.iter().all(|&x| x < q.value());
                if !ring.moduli().zip(values.chunks_exact(ring.n())).all(reduced) {
                    let reason = "a value is not below its modulus";
                    return Err(RlweError::Wire { what: "polynomial", reason });
                }
                Ok($form { ring: ring.clone(), values })
            }

            /// The ring of the polynomial.
            pub fn ring(&self) -> &Arc<Ring> {
                &self.ring
            }

            /// All values, `[limb][n]`.
            pub fn values(&self) -> &[u64] {
                &self.values
            }

            /// The values of one limb.
            pub fn limb(&self, index: usize) -> &[u64] {
                &self.values[index * self.ring.n()..][..self.ring.n()]
            }

            /// All values, for a caller that writes reduced ones.
            // The macro makes it for both types, but only one of them needs it.
            #[allow(dead_code)]
            pub(crate) fn values_mut(&mut self) -> &mut [u64] {
                &mut self.values
            }

            /// The limbs with their moduli.
            pub fn limbs(&self) -> impl Iterator<Item = (Modulus, &[u64])> {
                self.ring.moduli().zip(self.values.chunks_exact(self.ring.n()))
            }

            /// The limbs with their moduli, for a caller that writes reduced values.
            pub fn limbs_mut(&mut self) -> impl Iterator<Item = (Modulus, &mut [u64])> {
                self.ring.moduli().zip(self.values.chunks_exact_mut(self.ring.n()))
            }

            /// self += other.
            pub fn add_assign(&mut self, other: &$form) {
                assert!(self.ring.is_same(&other.ring), "polynomials of different rings");
                let n = self.ring.n();
                for ((q, limb), other) in self.limbs_mut().zip(other.values.chunks_exact(n)) {
                    simd::run_vectorised(|| {
                        limb.iter_mut().zip(other).for_each(|(x, &y)| *x = q.add(*x, y));
                    });
                }
            }
        }

        impl PartialEq for $form {
            fn eq(&self, other: &$form) -> bool {
                self.ring.is_same(&other.ring) && self.values == other.values
            }
        }

        impl Eq for $form {}

        impl Zeroize for $form {
            fn zeroize(&mut self) {
                self.values.as_mut_slice().zeroize();
            }
        }

        /// Prints only the ring, because the values may be secret.
        impl fmt::Debug for $form {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(out, concat!(stringify!($form), "({:?})"), self.ring)
            }
        }
    };
}

impl_polynomial_form!(Poly);
impl_polynomial_form!(NttPoly);

impl Poly {
    /// Makes a polynomial from n signed coefficients, the same in every limb.
    ///
    /// # Errors
    /// If there are not n coefficients.
    pub fn from_signed(ring: &Arc<Ring>, coefficients: &[i64]) -> Result<Poly, RlweError> {
        let (wanted, got) = (ring.n(), coefficients.len());
        if wanted != got {
            return Err(RlweError::Length { what: "coefficients", wanted, got });
        }
        let mut poly = Poly::zero(ring);
        for (q, limb) in poly.limbs_mut() {
            for (x, &c) in limb.iter_mut().zip(coefficients) {
                *x = q.reduce_signed(c);
            }
        }
        Ok(poly)
    }

    /// self += n signed values, each of magnitude below every modulus, in constant time.
    pub(crate) fn add_small(&mut self, values: &[i64]) {
        for (q, limb) in self.limbs_mut() {
            simd::run_vectorised(|| {
                for (x, &value) in limb.iter_mut().zip(values) {
                    let lifted = value.wrapping_add((value >> 63) & q.value() as i64);
                    *x = q.add(*x, lifted as u64);
                }
            });
        }
    }

    /// Transforms the polynomial to NTT form.
    pub fn into_ntt(mut self) -> NttPoly {
        let n = self.ring.n();
        for (limb, values) in self.ring.limbs().iter().zip(self.values.chunks_exact_mut(n)) {
            limb.table.forward(values);
        }
        NttPoly { ring: self.ring, values: self.values }
    }

    /// Divides by the last prime, rounding each coefficient to the nearest integer; the result
    /// is in the ring without that limb. For a ternary s, this adds at most (n + 1)/2 to a phase
    /// c0 + c1·s.
    ///
    /// # Panics
    /// If the ring has one limb.
    pub fn divide_by_last_prime(&self) -> Poly {
        let lower = self.ring.lower_ring().expect("a ring of two limbs or more");
        let n = self.ring.n();
        let (kept, last) = self.values.split_at(lower.len());
        let last_modulus = self.ring.limbs()[lower.limbs().len()].modulus;
        let mut values = kept.to_vec();
        for (limb, x) in self.ring.limbs().iter().zip(values.chunks_exact_mut(n)) {
            let (path, q) = (limb.table.path(), limb.modulus);
            simd::divide_by_last_prime(path, q, x, last, last_modulus, limb.last_inverse);
        }
        Poly { ring: lower.clone(), values }
    }
}

impl NttPoly {
    /// Draws a public polynomial from a seed, uniform in NTT form (as uniform as in coefficient
    /// form: the transform is a bijection). See [`Rng::fill_uniform`].
    pub fn uniform(ring: &Arc<Ring>, rng: &mut Rng) -> NttPoly {
        let mut poly = NttPoly::zero(ring);
        for (q, limb) in poly.limbs_mut() {
            rng.fill_uniform(q, limb);
        }
        poly
    }

    /// Transforms the polynomial to coefficient form.
    pub fn into_poly(mut self) -> Poly {
        let n = self.ring.n();
        for (limb, values) in self.ring.limbs().iter().zip(self.values.chunks_exact_mut(n)) {
            limb.table.inverse(values);
        }
        Poly { ring: self.ring, values: self.values }
    }

    /// self *= other.
    pub fn mul_assign(&mut self, other: &NttPoly) {
        self.combine_limbs(other, other, |limb, x, y, _| {
            simd::multiply(limb.table.path(), limb.modulus, x, y);
        });
    }

    /// self += a · b.
    pub fn add_product(&mut self, a: &NttPoly, b: &NttPoly) {
        self.combine_limbs(a, b, |limb, x, a, b| {
            simd::add_product(limb.table.path(), limb.modulus, x, a, b);
        });
    }

    /// self −= a · b.
    pub fn sub_product(&mut self, a: &NttPoly, b: &NttPoly) {
        self.combine_limbs(a, b, |limb, x, a, b| {
            simd::sub_product(limb.table.path(), limb.modulus, x, a, b);
        });
    }

    fn combine_limbs(
        &mut self,
        a: &NttPoly,
        b: &NttPoly,
        each: impl Fn(&Limb, &mut [u64], &[u64], &[u64]),
    ) {
        assert!(self.ring.is_same(&a.ring) && self.ring.is_same(&b.ring), "different rings");
        let n = self.ring.n();
        let pairs = a.values.chunks_exact(n).zip(b.values.chunks_exact(n));
        let limbs = self.ring.limbs().iter().zip(self.values.chunks_exact_mut(n));
        limbs.zip(pairs).for_each(|((limb, x), (a, b))| each(limb, x, a, b));
    }

    /// Divides by the last prime as [`Poly::divide_by_last_prime`] does, in NTT form: it takes one inverse
    /// transform of the last limb and one forward transform for each other limb.
    ///
    /// # Panics
    /// If the ring has one limb.
    pub fn divide_by_last_prime(&self) -> NttPoly {
        let lower = self.ring.lower_ring().expect("a ring of two limbs or more");
        let n = self.ring.n();
        let (kept, last) = self.values.split_at(lower.len());
        let last_limb = &self.ring.limbs()[lower.limbs().len()];
        let mut last = last.to_vec();
        last_limb.table.inverse(&mut last);
        let mut values = kept.to_vec();
        for (limb, values) in self.ring.limbs().iter().zip(values.chunks_exact_mut(n)) {
            let q = limb.modulus;
            let mut rest: Vec<u64> =
                last.iter().map(|&x| q.reduce_signed(last_limb.modulus.to_centred(x))).collect();
            limb.table.forward(&mut rest);
            for (x, rest) in values.iter_mut().zip(rest) {
                *x = q.mul_shoup(q.sub(*x, rest), limb.last_inverse);
            }
        }
        NttPoly { ring: lower.clone(), values }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ntt_primes_below;

    fn ring() -> Arc<Ring> {
        Ring::new(1024, &ntt_primes_below(50, 1024, 2)).unwrap()
    }

    #[test]
    fn both_forms_are_the_same_ring() {
        let (ring, mut rng) = (ring(), Rng::from_seed([4; 32]));
        let a = NttPoly::uniform(&ring, &mut rng);
        let b = NttPoly::uniform(&ring, &mut rng);
        let mut sum = a.clone().into_poly();
        sum.add_assign(&b.clone().into_poly());
        let mut wanted = a.clone();
        wanted.add_assign(&b);
        assert_eq!(sum.into_ntt(), wanted);
        let mut product = a.clone();
        product.mul_assign(&b);
        let mut added = b.clone();
        added.add_product(&a, &b);
        product.add_assign(&b);
        assert_eq!(added, product);
    }

    #[test]
    fn x_to_the_n_is_minus_one() {
        let ring = ring();
        let mut x = vec![0; 1024];
        x[1023] = -5;
        let mut y = vec![0; 1024];
        y[3] = 7;
        let mut product = Poly::from_signed(&ring, &x).unwrap().into_ntt();
        product.mul_assign(&Poly::from_signed(&ring, &y).unwrap().into_ntt());
        let mut wanted = vec![0; 1024];
        wanted[2] = 35;
        assert_eq!(product.into_poly(), Poly::from_signed(&ring, &wanted).unwrap());
    }

    #[test]
    fn dropping_a_limb_rounds_to_the_nearest() {
        let ring = ring();
        let last = ring.limbs()[1].modulus.value() as i64;
        let mut values = vec![0; 1024];
        let mut wanted = vec![0; 1024];
        for (i, quotient) in [0, 1, -1, 7, -8].into_iter().enumerate() {
            for (j, rest) in [0, 1, -1, last / 2, -(last / 2)].into_iter().enumerate() {
                values[5 * i + j] = quotient * last + rest;
                wanted[5 * i + j] = quotient;
            }
        }
        let poly = Poly::from_signed(&ring, &values).unwrap();
        let lower = ring.lower_ring().unwrap();
        assert_eq!(poly.divide_by_last_prime(), Poly::from_signed(lower, &wanted).unwrap());
        assert_eq!(
            poly.clone().into_ntt().divide_by_last_prime().into_poly(),
            poly.divide_by_last_prime()
        );
    }

    #[test]
    fn values_beyond_the_modulus_and_other_lengths_are_refused() {
        let ring = ring();
        let mut values = vec![0; 2048];
        assert!(Poly::from_values(&ring, values.clone()).is_ok());
        values[2047] = ring.limbs()[1].modulus.value();
        assert!(matches!(Poly::from_values(&ring, values), Err(RlweError::Wire { .. })));
        assert!(matches!(Poly::from_values(&ring, vec![0; 9]), Err(RlweError::Length { .. })));
        assert!(matches!(Poly::from_signed(&ring, &[0; 9]), Err(RlweError::Length { .. })));
    }
}
