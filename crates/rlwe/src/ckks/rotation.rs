use std::fmt;

use zeroize::Zeroizing;

use super::{Ciphertext, Ckks, CkksError, SecretKey, cipher::small, ntt_poly};
use crate::{NttPoly, Ring, Rng};

/// What a rotation by one count of slots needs: the rotated key under the key itself, times the
/// special prime, once for each limb.
///
/// Digit i is (b, a) with b + a·s = e + P·s(X^g) modulo the prime of limb i and e modulo all
/// others, so that Σ digits·keys is P·c1·s(X^g) and the small noise Σ digits·e, which the division
/// by P makes smaller still (Gentry, Halevi and Smart, 2012).
pub struct GaloisKey {
    steps: usize,
    /// Where each element of the rotated NTT form comes from.
    sources: Vec<u32>,
    digits: Vec<(NttPoly, NttPoly)>,
}

impl SecretKey {
    /// The key of a rotation by `steps` slots to the left.
    ///
    /// # Errors
    /// Where there are not so many slots.
    pub fn galois_key(&self, steps: usize, rng: &mut Rng) -> Result<GaloisKey, CkksError> {
        let (n, limit) = (self.ckks.parameters.n(), self.ckks.slots());
        if steps >= limit {
            return Err(CkksError::TooManySlots { limit: limit - 1, got: steps });
        }
        let sources = sources(n, steps);
        let ring = &self.ckks.key_ring;
        let rotated = Zeroizing::new(permuted(&self.s, &sources));
        let special = ring.limbs()[self.ckks.limbs_max()].modulus.value();
        let digits = (0..self.ckks.limbs_max()).map(|index| {
            let mut errors = Zeroizing::new(vec![0; n]);
            rng.fill_errors(&mut errors);
            let mut b = small(ring, &errors);
            let a = NttPoly::uniform(ring, &mut rng.fork());
            for ((q, b), (a, s)) in b.limbs_mut().zip(a.limbs().zip(self.s.limbs())) {
                for (x, (&a, &s)) in b.iter_mut().zip(a.1.iter().zip(s.1)) {
                    *x = q.mul_add(q.neg(a), s, *x);
                }
            }
            if let Some((q, b)) = b.limbs_mut().nth(index) {
                let factor = q.shoup(q.reduce(special));
                for (x, &s) in b.iter_mut().zip(rotated.limb(index)) {
                    *x = q.add(*x, q.mul_shoup(s, factor));
                }
            }
            (b, a)
        });
        let digits = digits.collect();
        Ok(GaloisKey { steps, sources, digits })
    }
}

impl GaloisKey {
    /// Slots that it rotates by.
    pub fn steps(&self) -> usize {
        self.steps
    }
}

impl Ciphertext {
    /// The slots, rotated to the left by the key's steps: one key switch.
    ///
    /// # Errors
    /// Where the key was made for other parameters.
    pub fn rotate(&self, ckks: &Ckks, key: &GaloisKey) -> Result<Ciphertext, CkksError> {
        let ring = ckks.data_ring(self.limbs())?;
        if !ring.same(self.c0.ring()) || key.sources.len() != ring.n() {
            return Err(CkksError::OtherParameters { what: "rotation key" });
        }
        let turned = permuted(&self.c1, &key.sources);
        let (b, a) = switched(ckks, &turned, key);
        let mut c0 = permuted(&self.c0, &key.sources);
        c0.add_assign(&b.drop_limb());
        Ok(Ciphertext { c0, c1: a.drop_limb(), scale: self.scale, seed: None })
    }
}

/// Σ digit·key over the digits of `part`, modulo its primes and the special one.
fn switched(ckks: &Ckks, part: &NttPoly, key: &GaloisKey) -> (NttPoly, NttPoly) {
    let count = part.ring().limbs().len();
    let ring = &ckks.switching_rings[count - 1];
    let (mut b, mut a) = (NttPoly::zero(ring), NttPoly::zero(ring));
    let digits = part.clone().into_poly();
    let mut lifted = vec![0; ring.n()];
    for (digit, keys) in key.digits.iter().take(count).enumerate() {
        let own = ring.limbs()[digit].modulus;
        for (index, ((_, b), (_, a))) in b.limbs_mut().zip(a.limbs_mut()).enumerate() {
            let limb = &ring.limbs()[index];
            let q = limb.modulus;
            if index == digit {
                lifted.copy_from_slice(part.limb(digit));
            } else {
                let values = lifted.iter_mut().zip(digits.limb(digit));
                values.for_each(|(x, &y)| *x = q.reduce_signed(own.centred(y)));
                limb.table.forward(&mut lifted);
            }
            // The special prime is the last limb of the keys' ring too.
            let of_key = if index == count { ckks.limbs_max() } else { index };
            let keys = (keys.0.limb(of_key), keys.1.limb(of_key));
            for (x, (&d, &k)) in b.iter_mut().zip(lifted.iter().zip(keys.0)) {
                *x = q.mul_add(d, k, *x);
            }
            for (x, (&d, &k)) in a.iter_mut().zip(lifted.iter().zip(keys.1)) {
                *x = q.mul_add(d, k, *x);
            }
        }
    }
    (b, a)
}

/// X -> X^g, g = 3^steps, in NTT form: element i is the value at ψ^(2·rev(i) + 1), so it comes from
/// where the value at the g-th power of that root stands.
fn sources(n: usize, steps: usize) -> Vec<u32> {
    let order = 2 * n;
    let element = (0..steps).fold(1, |power, _| power * 3 % order);
    let reversed = |i: usize| i.reverse_bits() >> (usize::BITS - n.trailing_zeros());
    let source = |i: usize| {
        let exponent = (2 * reversed(i) + 1) * element % order;
        reversed((exponent - 1) / 2) as u32
    };
    (0..n).map(source).collect()
}

fn permuted(poly: &NttPoly, sources: &[u32]) -> NttPoly {
    ntt_poly(poly.ring(), |turned| {
        for ((_, turned), (_, values)) in turned.limbs_mut().zip(poly.limbs()) {
            turned.iter_mut().zip(sources).for_each(|(x, &from)| *x = values[from as usize]);
        }
    })
}

/// A ring's name for errors and logs alone: keys are not shown.
impl fmt::Debug for GaloisKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ring: Option<&Ring> = self.digits.first().map(|digit| &**digit.0.ring());
        write!(out, "GaloisKey({} steps, {ring:?})", self.steps)
    }
}
