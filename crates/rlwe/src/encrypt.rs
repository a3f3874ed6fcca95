//! Encryption under the secret key, of one vector of messages or of many.

use std::fmt;

use zeroize::Zeroizing;

use crate::{
    ciphertext::{SeededCiphertext, public_polynomial},
    error::RlweError,
    keys::SecretKey,
    poly::Poly,
    rng::{Rng, Seed},
};

impl SecretKey {
    /// Encrypts N messages mod 2^k, one for each coefficient.
    ///
    /// # Errors
    /// If there are not N messages.
    pub fn encrypt(&self, messages: &[u64], rng: &mut Rng) -> Result<SeededCiphertext, RlweError> {
        self.encryptor(rng.fork()).encrypt(messages)
    }

    /// Encrypts many vectors of messages under one public seed.
    pub fn encryptor(&self, rng: Rng) -> Encryptor<'_> {
        Encryptor::new(self, rng)
    }
}

/// Encrypts vectors of messages one after the other, with a public seed of its own.
pub struct Encryptor<'a> {
    key: &'a SecretKey,
    rng: Rng,
    seed: Seed,
    next: u32,
    errors: Zeroizing<Vec<i64>>,
}

impl<'a> Encryptor<'a> {
    pub(crate) fn new(key: &'a SecretKey, mut rng: Rng) -> Encryptor<'a> {
        let seed = rng.next_seed();
        let errors = Zeroizing::new(vec![0; key.context().n()]);
        Encryptor { key, rng, seed, next: 0, errors }
    }

    /// Encrypts N messages mod 2^k. Larger words are reduced mod 2^k.
    ///
    /// # Errors
    /// If there are not N messages, or after 2^32 − 1 vectors.
    pub fn encrypt(&mut self, messages: &[u64]) -> Result<SeededCiphertext, RlweError> {
        self.rng.fill_errors(&mut self.errors);
        self.encrypt_with_errors(messages)
    }

    /// Encrypts with the noise in `self.errors`.
    fn encrypt_with_errors(&mut self, messages: &[u64]) -> Result<SeededCiphertext, RlweError> {
        let index = self.next;
        let limit = u32::MAX as usize;
        let spent = RlweError::Limit { what: "ciphertexts of one seed", limit, got: limit };
        self.next = index.checked_add(1).ok_or(spent)?;
        let context = self.key.context();
        let mut poly = Poly::zero(context.ring());
        poly.add_small(&self.errors);
        context.add_encoded(messages, &mut poly)?;
        let mut c0 = poly.into_ntt();
        let a = public_polynomial(context.ring(), &self.seed, index);
        self.key.subtract_product(&a, &mut c0);
        Ok(SeededCiphertext { c0, seed: self.seed, index })
    }
}

impl fmt::Debug for Encryptor<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Encryptor({:?}, next {})", self.key, self.next)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        Ciphertext, Context, NttPoly, ParameterSet, Plaintext, ScalarMatrix, ScalarProducts,
        sampler::ERROR_BOUND,
    };

    /// The signed integers of a polynomial over one or two limbs.
    pub(crate) fn to_signed(poly: &Poly) -> Vec<i128> {
        let p = poly.ring().limbs()[0].modulus;
        if poly.ring().limbs().len() == 1 {
            return poly.values().iter().map(|&x| p.to_centred(x).into()).collect();
        }
        let r = poly.ring().limbs()[1].modulus;
        let inverse = r.inverse(r.reduce(p.value()));
        let q = i128::from(p.value()) * i128::from(r.value());
        let lift = |(&x, &y): (&u64, &u64)| {
            let k = r.mul(r.sub(y, r.reduce(x)), inverse);
            let value = i128::from(x) + i128::from(p.value()) * i128::from(k);
            if value > q / 2 { value - q } else { value }
        };
        poly.limb(0).iter().zip(poly.limb(1)).map(lift).collect()
    }

    fn new_key(name: &str) -> (Arc<Context>, SecretKey, Rng) {
        let context = Context::new(&ParameterSet::dangerous_from_name(name).unwrap()).unwrap();
        let mut rng = Rng::from_seed([41; 32]);
        let key = SecretKey::generate(&context, &mut rng);
        (context, key, rng)
    }

    #[test]
    fn every_set_decrypts_what_it_encrypted_extremes_included() {
        for name in ParameterSet::names() {
            let (context, key, mut rng) = new_key(name);
            let (k, mask) = (context.parameter_set().plaintext_bits(), context.message_mask());
            let mut uniform = vec![0; context.n()];
            rng.fill_bits(k, &mut uniform);
            for messages in [vec![0; context.n()], vec![mask; context.n()], uniform] {
                let ciphertext = key.encrypt(&messages, &mut rng).unwrap().expand();
                assert_eq!(key.decrypt(&ciphertext.switch_down()).unwrap(), messages, "{name}");
            }
            assert!(matches!(key.encrypt(&[0; 3], &mut rng), Err(RlweError::Length { .. })));
        }
    }

    #[test]
    fn another_key_sees_garbage() {
        let (context, key, mut rng) = new_key("rlwe-4096-q100-flood40");
        let other = SecretKey::generate(&context, &mut rng);
        let messages = vec![5; context.n()];
        let answer = key.encrypt(&messages, &mut rng).unwrap().expand().switch_down();
        let garbage = other.decrypt(&answer).unwrap();
        let same = garbage.iter().filter(|&&m| m == 5).count();
        assert!(same < 3, "{same}");
        let mut bits = [0u32; 33];
        for message in garbage {
            bits.iter_mut().enumerate().for_each(|(i, n)| *n += (message >> i & 1) as u32);
        }
        assert!(bits.iter().all(|&n| n.abs_diff(2048) < 200), "{bits:?}");
    }

    #[test]
    fn seeds_reproduce_and_ciphertexts_of_one_message_differ() {
        let (context, key, _) = new_key("toy-256-q100-flood40");
        let messages = vec![7; context.n()];
        let batch = |seed| {
            let mut encryptor = key.encryptor(Rng::from_seed([seed; 32]));
            [(); 3].map(|()| encryptor.encrypt(&messages).unwrap())
        };
        assert_eq!(batch(1), batch(1));
        let ([a, b, _], [c, ..]) = (batch(1), batch(2));
        assert_ne!(a.c0, b.c0);
        assert_ne!(a.c1(), b.c1());
        assert_ne!(a.c1(), c.c1());
        assert_eq!((a.index, b.index, a.seed == b.seed), (0, 1, true));
    }

    #[test]
    fn a_product_of_polynomials_is_exact_at_the_budgets_edge() {
        for name in ParameterSet::names() {
            let (context, key, mut rng) = new_key(name);
            let (n, limit) = (context.n(), context.parameter_set().row_l1_max());
            // One answer with all the weight that the set allows, and its greatest noise at one
            // place.
            let mut weights = vec![0i64; n];
            let share = (limit / n as u64) as i64;
            weights.iter_mut().enumerate().for_each(|(i, w)| *w = share * (1 - 2 * (i as i64 & 1)));
            weights[0] += (limit - share as u64 * n as u64) as i64;
            assert_eq!(weights.iter().map(|w| w.unsigned_abs()).sum::<u64>(), limit);
            let plaintext = Plaintext::new(&context, &weights).unwrap();
            let mut messages = vec![0; n];
            rng.fill_bits(context.parameter_set().plaintext_bits(), &mut messages);
            let fresh = key.encrypt(&messages, &mut rng).unwrap().expand();
            let mut product = Ciphertext::zero(&context);
            product.add_product(&fresh, &plaintext);
            if context.parameter_set().flood_bits() > 0 {
                let public = key.public_key(&mut rng);
                product.add_assign(&public.encrypt_zero(&context, &mut rng).unwrap());
            }
            let wanted = negacyclic(&messages, &weights, context.message_mask());
            assert_eq!(key.decrypt(&product.switch_down()).unwrap(), wanted, "{name}");
            weights[0] += 1;
            let refused = Plaintext::new(&context, &weights);
            assert!(matches!(refused, Err(RlweError::WeightsTooLarge { .. })));
        }
    }

    fn negacyclic(messages: &[u64], weights: &[i64], mask: u64) -> Vec<u64> {
        let n = messages.len();
        let mut product = vec![0u64; n];
        for (i, &m) in messages.iter().enumerate() {
            for (j, &w) in weights.iter().enumerate() {
                let term = m.wrapping_mul(w as u64);
                let signed = if i + j < n { term } else { term.wrapping_neg() };
                product[(i + j) % n] = product[(i + j) % n].wrapping_add(signed);
            }
        }
        product.iter().map(|x| x & mask).collect()
    }

    #[test]
    fn switching_down_adds_no_more_than_its_bound() {
        let (context, key, mut rng) = new_key("rlwe-4096-q100-flood40");
        let messages = vec![0; context.n()];
        for _ in 0..5 {
            let fresh = key.encrypt(&messages, &mut rng).unwrap().expand();
            let phases = key.phases(&fresh.switch_down()).unwrap();
            let p = context.first_modulus();
            // A fresh error is far below the prime that was dropped: only the rounding is left.
            let bound = context.n() as u64 / 2 + 1;
            assert!(phases.iter().all(|&x| p.to_centred(x).unsigned_abs() <= bound));
        }
    }

    /// A polynomial of F, or −F where `negative`, in every coefficient: the greatest flooding.
    fn greatest_flooding(context: &Context, negative: bool) -> NttPoly {
        let mut flood = Poly::zero(context.ring());
        for (p, limb) in flood.limbs_mut() {
            let value = p.reduce_wide(context.parameter_set().flood_bound());
            limb.fill(if negative { p.sub(0, value) } else { value });
        }
        flood.into_ntt()
    }

    #[test]
    fn scalar_products_are_exact_with_the_greatest_row_errors_and_flooding() {
        const COLUMNS: usize = 150;
        for (name, negative) in [
            ("rlwe-4096-q100-flood40", false),
            ("rlwe-4096-q100-flood40", true),
            ("rlwe-8192-q200-flood40", true),
            ("toy-256-q100-flood40", true),
        ] {
            let (context, key, mut rng) = new_key(name);
            let limit = context.parameter_set().row_l1_max().min(COLUMNS as u64 * 32_767);
            // One row of exactly the greatest sum, with every error of the sign that adds up.
            let mut row = vec![0i16; COLUMNS];
            let mut left = limit;
            for (j, w) in row.iter_mut().enumerate() {
                let share = left.div_ceil((COLUMNS - j) as u64).min(32_767);
                left -= share;
                *w = if j % 3 == 0 { -(share as i16) } else { share as i16 };
            }
            assert_eq!(left, 0);
            let matrix = ScalarMatrix::new(&context, 1, COLUMNS, &row).unwrap();
            let mut sums = ScalarProducts::new(&context, matrix);
            let mut encryptor = key.encryptor(rng.fork());
            let mut wanted = vec![0u64; context.n()];
            for &w in &row {
                let mut messages = vec![0; context.n()];
                rng.fill_bits(context.parameter_set().plaintext_bits(), &mut messages);
                let sign = if (w < 0) == negative { 1 } else { -1 };
                encryptor.errors.fill(sign * ERROR_BOUND as i64);
                sums.push(&encryptor.encrypt_with_errors(&messages).unwrap()).unwrap();
                let term = |(x, m): (&mut u64, &u64)| {
                    *x = x.wrapping_add(m.wrapping_mul(i64::from(w) as u64));
                };
                wanted.iter_mut().zip(&messages).for_each(term);
            }
            let mut answer = sums.finish().unwrap().remove(0);
            answer.c0.add_assign(&greatest_flooding(&context, negative));
            wanted.iter_mut().for_each(|x| *x &= context.message_mask());
            assert_eq!(key.decrypt(&answer.switch_down()).unwrap(), wanted, "{name}");
        }
    }
}
