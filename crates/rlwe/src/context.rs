//! What is computed once for a parameter set: its rings and the constants of the encoding.

use std::{fmt, sync::Arc};

use crate::{
    error::RlweError,
    modulus::{Modulus, ShoupFactor},
    params::ParameterSet,
    poly::Poly,
    ring::Ring,
    simd::{self, EncodingConstants},
};

/// A parameter set with its rings and the constants of the encoding, computed once.
///
/// A message m mod t = 2^k is encoded as round(q·m/t), so that sums of encoded messages wrap
/// mod t for every t.
pub struct Context {
    set: ParameterSet,
    ring: Arc<Ring>,
    small: Arc<Ring>,
    /// q mod t, and t^−1 modulo each prime.
    q_mod_t: u64,
    t_inverse: Vec<ShoupFactor>,
    /// floor(2^(k + 64) / p0).
    ratio: u64,
}

impl Context {
    /// Computes the rings and constants of a set.
    ///
    /// # Errors
    /// If a ring cannot be made, which never happens for the sets of this crate.
    pub fn new(set: &ParameterSet) -> Result<Arc<Context>, RlweError> {
        let ring = Ring::new(set.n(), set.primes())?;
        let small = Ring::new(set.n(), &set.primes()[..1])?;
        let t = 1u64 << set.plaintext_bits();
        let product = set.primes().iter().fold(1, |product: u64, &p| product.wrapping_mul(p));
        let t_inverse = ring.moduli().map(|p| p.shoup_factor(p.inverse(p.reduce(t)))).collect();
        let ratio = (u128::from(t) << 64) / u128::from(set.primes()[0]);
        Ok(Arc::new(Context {
            set: set.clone(),
            ring,
            small,
            q_mod_t: product & (t - 1),
            t_inverse,
            ratio: ratio as u64,
        }))
    }

    /// The parameter set.
    pub fn parameter_set(&self) -> &ParameterSet {
        &self.set
    }

    /// The degree N, which is the number of messages of a ciphertext.
    pub fn n(&self) -> usize {
        self.ring.n()
    }

    /// The ring of ciphertexts.
    pub fn ring(&self) -> &Arc<Ring> {
        &self.ring
    }

    /// The ring of answers that are switched down: the first limb only.
    pub fn small_ring(&self) -> &Arc<Ring> {
        &self.small
    }

    /// t − 1, the mask of a message: messages are below t = 2^k.
    pub(crate) fn message_mask(&self) -> u64 {
        (1 << self.set.plaintext_bits()) - 1
    }

    /// poly += round(q·m/t), in constant time. Messages are taken mod t.
    ///
    /// round(q·m/t) = (q·m + h − r)/t with h = t/2 and r = (q·m + h) mod t; modulo a prime of q
    /// the term q·m is 0, so no number is wider than a word.
    ///
    /// # Errors
    /// If there are not N messages.
    pub(crate) fn add_encoded(&self, messages: &[u64], poly: &mut Poly) -> Result<(), RlweError> {
        let (wanted, got) = (self.n(), messages.len());
        if wanted != got {
            return Err(RlweError::Length { what: "message", wanted, got });
        }
        let (half, mask) = (1u64 << (self.set.plaintext_bits() - 1), self.message_mask());
        let limbs = self.ring.limbs().iter().zip(&self.t_inverse);
        for ((limb, &inverse), (p, x)) in limbs.zip(poly.limbs_mut()) {
            let encoding = EncodingConstants { q_mod_t: self.q_mod_t, half, mask, inverse };
            simd::add_encoded(limb.table.path(), p, x, messages, &encoding);
        }
        Ok(())
    }

    /// round(phase·t/p0) mod t for a phase below p0, exactly and in constant time.
    #[inline(always)]
    pub(crate) fn decode(&self, phase: u64) -> u64 {
        let p = self.set.primes()[0];
        // The ratio is rounded down, so the quotient is at most one too small.
        let quotient = ((u128::from(phase) * u128::from(self.ratio)) >> 64) as u64;
        let shifted = phase.wrapping_shl(self.set.plaintext_bits());
        let rest = shifted.wrapping_sub(quotient.wrapping_mul(p));
        let missed = is_at_least(rest, p);
        let rest = rest - missed * p;
        (quotient + missed + is_at_least(rest, p.div_ceil(2))) & self.message_mask()
    }

    pub(crate) fn first_modulus(&self) -> Modulus {
        self.ring.limbs()[0].modulus
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Context({})", self.set)
    }
}

/// Returns 1 if a >= b, else 0, without a branch; both are below 2^63.
#[inline(always)]
fn is_at_least(a: u64, b: u64) -> u64 {
    (a.wrapping_sub(b) >> 63) ^ 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    #[test]
    fn encoding_rounds_and_decoding_undoes_it_at_the_edges() {
        for name in ParameterSet::names() {
            let context = Context::new(&ParameterSet::dangerous_from_name(name).unwrap()).unwrap();
            let (n, t) = (context.n(), 1u64 << context.parameter_set().plaintext_bits());
            let mut messages = vec![0; n];
            Rng::from_seed([21; 32])
                .fill_bits(context.parameter_set().plaintext_bits(), &mut messages);
            messages[..5].copy_from_slice(&[0, 1, t / 2 - 1, t / 2, t - 1]);
            let mut poly = Poly::zero(context.ring());
            context.add_encoded(&messages, &mut poly).unwrap();
            let mut small = poly;
            while small.ring().limbs().len() > 1 {
                small = small.divide_by_last_prime();
            }
            let p = context.first_modulus();
            // The greatest error that rounding corrects, less the one of the encoding itself.
            let edge = (p.value() >> (context.parameter_set().plaintext_bits() + 1)) - 2;
            for (&phase, &message) in small.values().iter().zip(&messages) {
                let exact = u128::from(message) * u128::from(p.value());
                let off = (u128::from(phase) * u128::from(t)).abs_diff(exact);
                assert!(off <= u128::from(t) || message == 0);
                assert_eq!(context.decode(phase), message);
                assert_eq!(context.decode(p.add(phase, edge)), message);
                assert_eq!(context.decode(p.sub(phase, edge)), message);
            }
        }
    }

    #[test]
    fn decoding_is_the_rounded_quotient() {
        let set = ParameterSet::from_name("rlwe-4096-q100-flood40").unwrap();
        let context = Context::new(&set).unwrap();
        let (p, k) = (set.primes()[0], set.plaintext_bits());
        let mut rng = Rng::from_seed([22; 32]);
        let edges = [0, 1, p / 2, p / 2 + 1, p - 1, p >> k, p >> (k + 1), (p >> (k + 1)) + 1];
        for phase in edges.into_iter().chain((0..10_000).map(|_| rng.next_below(p))) {
            let rounded = ((u128::from(phase) << (k + 1)) + u128::from(p)) / (2 * u128::from(p));
            assert_eq!(context.decode(phase), rounded as u64 & context.message_mask());
        }
    }
}
