//! Rotations of slots, by switching keys.

use std::fmt;

use zeroize::Zeroizing;

use confide_rlwe::{Modulus, NttPoly, Ring, Rng, run_vectorised};

use super::{
    cipher::{Ciphertext, SecretKey, small_polynomial},
    context::CkksContext,
    crt::nearest_integer,
    error::CkksError,
    switch::KeySwitchBuffers,
};

/// The key of a rotation by a fixed number of slots: for each limb, an encryption of the rotated
/// secret times the special prime, under the secret itself.
///
/// Digit i is (b, a) with b + a·s = e + P·s(X^g) modulo the prime of limb i and e modulo all
/// others, so that Σ digits·keys is P·c1·s(X^g) plus the noise Σ digits·e, which the division
/// by P reduces (Gentry, Halevi and Smart, 2012).
pub struct GaloisKey {
    steps: usize,
    /// For each element of the rotated NTT form, the index of its value before the rotation.
    sources: Vec<u32>,
    digits: Vec<(NttPoly, NttPoly)>,
}

impl SecretKey {
    /// Makes the key of a rotation by `steps` slots to the left.
    ///
    /// # Errors
    /// If `steps` is not below the number of slots.
    pub fn galois_key(&self, steps: usize, rng: &mut Rng) -> Result<GaloisKey, CkksError> {
        let (n, limit) = (self.ckks.parameters.n(), self.ckks.slot_count());
        if steps >= limit {
            return Err(CkksError::TooManySlots { limit: limit - 1, got: steps });
        }
        let sources = rotation_sources(n, steps);
        let ring = &self.ckks.key_ring;
        let rotated = Zeroizing::new(permute(&self.s, &sources));
        let special = ring.limbs()[self.ckks.limbs_max()].modulus.value();
        let digits = (0..self.ckks.limbs_max()).map(|index| {
            let mut errors = Zeroizing::new(vec![0; n]);
            rng.fill_errors(&mut errors);
            let mut b = small_polynomial(ring, &errors);
            let a = NttPoly::uniform(ring, &mut rng.fork());
            self.subtract_product(&a, &mut b);
            if let Some((q, b)) = b.limbs_mut().nth(index) {
                let factor = q.shoup_factor(q.reduce(special));
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
    /// The number of slots of the rotation.
    pub fn steps(&self) -> usize {
        self.steps
    }
}

impl Ciphertext {
    /// Rotates the slots to the left by the key's steps, with one key switch.
    ///
    /// # Errors
    /// If the key was made for other parameters.
    pub fn rotate(&self, ckks: &CkksContext, key: &GaloisKey) -> Result<Ciphertext, CkksError> {
        let ring = ckks.data_ring(self.limb_count())?;
        if !ring.is_same(self.c0.ring()) || key.sources.len() != ring.n() {
            return Err(CkksError::OtherParameters { what: "rotation key" });
        }
        let kept = ckks.switches.lock().ok().and_then(|mut kept| kept.pop());
        let mut memory = kept.unwrap_or_else(|| KeySwitchBuffers::new(ring.n()));
        let (b, a) = rotate_and_switch_key(&mut memory, ckks, &self.c1, key);
        if let Ok(mut kept) = ckks.switches.lock() {
            kept.push(memory);
        }
        let (mut c0, c1) = (b, a);
        for ((q, x), (_, values)) in c0.limbs_mut().zip(self.c0.limbs()) {
            for (x, &from) in x.iter_mut().zip(&key.sources) {
                *x = q.add(*x, values[from as usize]);
            }
        }
        Ok(Ciphertext { c0, c1, scale: self.scale, seed: None })
    }
}

/// Rotates `part` and multiplies it with the encryptions in `key`: Σ digit·key modulo the primes of
/// the part and the special prime, divided by the special prime.
fn rotate_and_switch_key(
    memory: &mut KeySwitchBuffers,
    ckks: &CkksContext,
    part: &NttPoly,
    key: &GaloisKey,
) -> (NttPoly, NttPoly) {
    let count = part.ring().limbs().len();
    let ring = &ckks.switching_rings[count - 1];
    let (mut b, mut a) = memory.take_zero_pair(ring);
    for (index, keys) in key.digits.iter().take(count).enumerate() {
        let own = &ring.limbs()[index];
        let values = part.limb(index);
        let pairs = memory.turned.iter_mut().zip(&key.sources);
        pairs.for_each(|(x, &from)| *x = values[from as usize]);
        memory.digit.copy_from_slice(&memory.turned);
        own.table.inverse(&mut memory.digit);
        for (to, ((q, b), (_, a))) in b.limbs_mut().zip(a.limbs_mut()).enumerate() {
            let limb = &ring.limbs()[to];
            if to != index {
                lift_residues(&mut memory.lifted, &memory.digit, own.modulus, q);
                limb.table.forward(&mut memory.lifted);
            }
            let digit = if to == index { &memory.turned } else { &memory.lifted };
            // The special prime is also the last limb of the keys' ring.
            let of_key = if to == count { ckks.limbs_max() } else { to };
            limb.add_product(b, digit, keys.0.limb(of_key));
            limb.add_product(a, digit, keys.1.limb(of_key));
        }
    }
    let quotients = (b.divide_by_last_prime(), a.divide_by_last_prime());
    memory.sums.push((b, a));
    quotients
}

/// Lifts residues modulo `from`, centred, to residues modulo `q`.
fn lift_residues(lifted: &mut [u64], values: &[u64], from: Modulus, q: Modulus) {
    let (width, inverse) = (q.value() as i64, 1.0 / q.value() as f64);
    if from.value() / 2 < q.value() {
        run_vectorised(|| {
            for (x, &y) in lifted.iter_mut().zip(values) {
                let centred = from.to_centred(y);
                *x = (centred + ((centred >> 63) & width)) as u64;
            }
        });
    } else {
        // The quotient is far below 2^51, so it is correct or off by one.
        run_vectorised(|| {
            for (x, &y) in lifted.iter_mut().zip(values) {
                let centred = from.to_centred(y);
                let rest = centred - nearest_integer(centred as f64 * inverse) * width;
                *x = (rest + ((rest >> 63) & width)) as u64;
            }
        });
    }
}

/// The permutation X -> X^g, g = 3^steps, in NTT form: element i is the value at ψ^(2·rev(i) + 1),
/// so its value comes from the index of the g-th power of that root.
fn rotation_sources(n: usize, steps: usize) -> Vec<u32> {
    let order = 2 * n;
    let element = (0..steps).fold(1, |power, _| power * 3 % order);
    let reversed = |i: usize| i.reverse_bits() >> (usize::BITS - n.trailing_zeros());
    let source = |i: usize| {
        let exponent = (2 * reversed(i) + 1) * element % order;
        reversed((exponent - 1) / 2) as u32
    };
    (0..n).map(source).collect()
}

fn permute(poly: &NttPoly, sources: &[u32]) -> NttPoly {
    let mut turned = NttPoly::zero(poly.ring());
    for ((_, turned), (_, values)) in turned.limbs_mut().zip(poly.limbs()) {
        turned.iter_mut().zip(sources).for_each(|(x, &from)| *x = values[from as usize]);
    }
    turned
}

/// Prints only the ring, because the key is secret.
impl fmt::Debug for GaloisKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ring: Option<&Ring> = self.digits.first().map(|digit| &**digit.0.ring());
        write!(out, "GaloisKey({} steps, {ring:?})", self.steps)
    }
}
