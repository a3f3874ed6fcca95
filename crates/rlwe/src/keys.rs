//! Secret and public keys, and decryption.

use std::{fmt, sync::Arc};

use zeroize::{Zeroize, Zeroizing};

use crate::{
    ciphertext::{Ciphertext, public_polynomial},
    context::Context,
    error::RlweError,
    poly::{NttPoly, Poly},
    rng::{Rng, Seed},
    sampler::scale_to_bound,
    simd,
    switch::SmallCiphertext,
};

/// A ternary secret. It is wiped when it is dropped, and it is never encoded or printed.
pub struct SecretKey {
    context: Arc<Context>,
    secret: NttPoly,
}

/// A public key: a, which is expanded from a seed, and b = −a·s + e. It encrypts messages and
/// re-randomises results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey {
    pub(crate) seed: Seed,
    pub(crate) a: NttPoly,
    pub(crate) b: NttPoly,
}

impl SecretKey {
    /// Draws a fresh key.
    pub fn generate(context: &Arc<Context>, rng: &mut Rng) -> SecretKey {
        let secret = small_polynomial(context, rng, Rng::fill_ternary).into_ntt();
        SecretKey { context: context.clone(), secret }
    }

    /// The context of the key: its parameter set and ring.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Makes a public key for this secret key; each call makes another one.
    pub fn public_key(&self, rng: &mut Rng) -> PublicKey {
        let seed = rng.next_seed();
        let a = public_polynomial(self.context.ring(), &seed, 0);
        let mut b = small_polynomial(&self.context, rng, Rng::fill_errors).into_ntt();
        self.subtract_product(&a, &mut b);
        PublicKey { seed, a, b }
    }

    /// Decrypts an answer to its messages in [0, 2^k): all N, or those at the selected positions.
    /// They are exact if the weights kept to the set's `row_l1_max`. An answer with any other
    /// values decrypts to some messages, without an error.
    ///
    /// # Errors
    /// If the answer is of a set with another degree N.
    pub fn decrypt(&self, answer: &SmallCiphertext) -> Result<Vec<u64>, RlweError> {
        let phases = self.phases(answer)?;
        Ok(phases.iter().map(|&phase| self.context.decode(phase)).collect())
    }

    /// c0 + c1·s modulo the first prime, at the positions that c0 carries.
    pub(crate) fn phases(
        &self,
        answer: &SmallCiphertext,
    ) -> Result<Zeroizing<Vec<u64>>, RlweError> {
        let n = self.context.n();
        if answer.c1.len() != n {
            return Err(RlweError::Length { what: "answer", wanted: n, got: answer.c1.len() });
        }
        let limb = &self.context.ring().limbs()[0];
        let mut product = Zeroizing::new(answer.c1.clone());
        limb.table.forward(&mut product);
        let secret = self.secret.limb(0);
        simd::multiply(limb.table.path(), limb.modulus, &mut product, secret);
        limb.table.inverse(&mut product);
        let sum = |(&c0, position): (&u64, usize)| limb.modulus.add(c0, product[position]);
        Ok(Zeroizing::new(answer.c0.iter().zip(answer.positions()).map(sum).collect()))
    }

    /// target −= a·s.
    pub(crate) fn subtract_product(&self, a: &NttPoly, target: &mut NttPoly) {
        target.sub_product(a, &self.secret);
    }
}

impl PublicKey {
    /// Makes a fresh encryption of zero with the set's flooding on its phase. Added to a result, it
    /// hides everything but the messages from the holder of the secret key. The party that computes
    /// the result must make it: a zero that the key holder made hides nothing from the key holder.
    ///
    /// The flooding covers the noise of ciphertexts from [`SecretKey::encrypt`]. A key holder who
    /// makes ciphertexts with other phases can learn a fraction of a bit about the weights from each
    /// coefficient of an answer.
    ///
    /// # Errors
    /// If the set is not flooded.
    pub fn encrypt_zero(&self, context: &Context, rng: &mut Rng) -> Result<Ciphertext, RlweError> {
        self.encrypt_encoded(context, rng, Poly::zero(context.ring()))
    }

    /// Makes a fresh encryption of messages, flooded as in [`PublicKey::encrypt_zero`].
    ///
    /// # Errors
    /// If the set is not flooded or there are not N messages.
    pub fn encrypt(
        &self,
        context: &Context,
        messages: &[u64],
        rng: &mut Rng,
    ) -> Result<Ciphertext, RlweError> {
        let mut encoded = Poly::zero(context.ring());
        context.add_encoded(messages, &mut encoded)?;
        self.encrypt_encoded(context, rng, encoded)
    }

    /// (b·u + e1 + flooding + encoded, a·u + e2).
    fn encrypt_encoded(
        &self,
        context: &Context,
        rng: &mut Rng,
        mut encoded: Poly,
    ) -> Result<Ciphertext, RlweError> {
        if context.parameter_set().flood_bits() == 0 {
            return Err(RlweError::NotFlooded { name: context.parameter_set().name() });
        }
        if !self.a.ring().is_same(context.ring()) {
            let (wanted, got) = (context.ring().len(), self.a.ring().len());
            return Err(RlweError::Length { what: "public key", wanted, got });
        }
        add_flooding(context, rng, &mut encoded);
        let mut errors = small_polynomial(context, rng, Rng::fill_errors);
        encoded.add_assign(&errors);
        errors.zeroize();
        let mut mask = small_polynomial(context, rng, Rng::fill_ternary).into_ntt();
        let mut c0 = encoded.into_ntt();
        let mut c1 = small_polynomial(context, rng, Rng::fill_errors).into_ntt();
        c0.add_product(&self.b, &mask);
        c1.add_product(&self.a, &mask);
        mask.zeroize();
        Ok(Ciphertext { c0, c1 })
    }
}

impl Drop for SecretKey {
    fn drop(&mut self) {
        self.secret.zeroize();
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "SecretKey({}, ..)", self.context.parameter_set().name())
    }
}

/// Draws a polynomial of small secret coefficients.
fn small_polynomial(context: &Context, rng: &mut Rng, fill: fn(&mut Rng, &mut [i64])) -> Poly {
    let mut small = Zeroizing::new(vec![0; context.n()]);
    fill(rng, &mut small);
    let mut poly = Poly::zero(context.ring());
    poly.add_small(&small);
    poly
}

/// poly += a uniform value of [−F, F) in each coefficient, in constant time: its upper part is
/// uniform in [−B, B), its lower part has `flood_bits` uniform bits.
fn add_flooding(context: &Context, rng: &mut Rng, poly: &mut Poly) {
    let (n, bits) = (context.n(), context.parameter_set().flood_bits());
    let bound = context.parameter_set().product_noise();
    let mut words = Zeroizing::new(vec![0; 3 * n]);
    rng.fill_bits(64, &mut words);
    let (words, low) = words.split_at_mut(2 * n);
    low.iter_mut().for_each(|word| *word >>= 64 - bits);
    let high = words.as_chunks().0.iter().map(|&pair| scale_to_bound(pair, 2 * bound as u64));
    let high: Zeroizing<Vec<u64>> = Zeroizing::new(high.collect());
    let mut shifted = Zeroizing::new(vec![0; n]);
    let limbs = context.ring().limbs().iter();
    for (limb, (p, x)) in limbs.zip(poly.limbs_mut()) {
        let shift = p.shoup_factor(p.reduce_wide(1 << bits));
        let middle = p.reduce_wide(bound << bits);
        shifted.copy_from_slice(&high);
        simd::scale(limb.table.path(), p, &mut shifted, shift);
        for (x, (&high, &low)) in x.iter_mut().zip(shifted.iter().zip(low.iter())) {
            *x = p.add(*x, p.add(p.reduce(low), p.sub(high, middle)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ParameterSet;

    fn context(name: &str) -> Arc<Context> {
        Context::new(&ParameterSet::dangerous_from_name(name).unwrap()).unwrap()
    }

    #[test]
    fn debug_output_shows_no_secret() {
        let context = context("rlwe-1024-q25");
        let key = SecretKey::generate(&context, &mut Rng::from_seed([31; 32]));
        assert_eq!(format!("{key:?}"), "SecretKey(rlwe-1024-q25, ..)");
    }

    #[test]
    fn flooding_keeps_to_its_bound_and_reaches_far() {
        let context = context("toy-256-q100-flood40");
        let set = context.parameter_set();
        let mut rng = Rng::from_seed([32; 32]);
        let (mut least, mut greatest) = (0f64, 0f64);
        for _ in 0..20 {
            let mut poly = Poly::zero(context.ring());
            add_flooding(&context, &mut rng, &mut poly);
            for value in crate::encrypt::tests::to_signed(&poly) {
                assert!(value.unsigned_abs() <= set.flood_bound());
                least = least.min(value as f64);
                greatest = greatest.max(value as f64);
            }
        }
        let bound = set.flood_bound() as f64;
        assert!(least < -0.99 * bound && greatest > 0.99 * bound);
    }

    #[test]
    fn a_zero_is_flooded_and_decrypts_to_zero() {
        for name in ["rlwe-4096-q100-flood40", "rlwe-8192-q200-flood40", "toy-256-q100-flood40"] {
            let context = context(name);
            let mut rng = Rng::from_seed([33; 32]);
            let key = SecretKey::generate(&context, &mut rng);
            let public = key.public_key(&mut rng);
            let (first, second) = (
                public.encrypt_zero(&context, &mut rng).unwrap(),
                public.encrypt_zero(&context, &mut rng).unwrap(),
            );
            assert_ne!(first.c1, second.c1);
            assert_eq!(key.decrypt(&first.switch_down()).unwrap(), vec![0; context.n()]);
            let messages: Vec<u64> = (0..context.n() as u64).map(|i| i * 0x1234_5679).collect();
            let encrypted = public.encrypt(&context, &messages, &mut rng).unwrap();
            let wanted: Vec<_> = messages.iter().map(|m| m & context.message_mask()).collect();
            assert_eq!(key.decrypt(&encrypted.switch_down()).unwrap(), wanted);
        }
    }

    #[test]
    fn a_set_without_flooding_gives_no_zero() {
        let context = context("rlwe-2048-q50");
        let mut rng = Rng::from_seed([34; 32]);
        let public = SecretKey::generate(&context, &mut rng).public_key(&mut rng);
        let refused = public.encrypt_zero(&context, &mut rng);
        assert!(matches!(refused, Err(RlweError::NotFlooded { .. })));
    }
}
