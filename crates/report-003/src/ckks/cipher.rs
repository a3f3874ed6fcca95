//! Keys, ciphertexts and their arithmetic.

use std::{fmt, sync::Arc};

use zeroize::{Zeroize, Zeroizing};

use confide_rlwe::{NttPoly, Poly, Ring, Rng, Seed};

use super::{context::CkksContext, error::CkksError, message::EncodedMessage};

/// A factor for products, in NTT form.
#[derive(Clone)]
pub struct Plaintext {
    pub(super) poly: NttPoly,
    pub(super) scale: f64,
}

/// An encryption: c0 + c1·s is the scaled message plus noise.
#[derive(Clone)]
pub struct Ciphertext {
    pub(super) c0: NttPoly,
    pub(super) c1: NttPoly,
    pub(super) scale: f64,
    /// The seed that `c1` was expanded from; `None` for the result of a computation.
    pub(super) seed: Option<Seed>,
}

/// A decrypted ciphertext: the scaled message *with its noise*, in coefficient form.
///
/// Do not share it or the slots that are decoded from it: see the start of the module's
/// documentation.
pub struct DecryptedMessage {
    pub(super) ring: Arc<Ring>,
    /// The residues, `[limb][n]`.
    pub(super) values: Vec<u64>,
    pub(super) scale: f64,
}

/// A ternary secret, which is wiped when it is dropped.
pub struct SecretKey {
    pub(super) ckks: Arc<CkksContext>,
    /// The secret modulo the data primes and the special one.
    pub(super) s: Zeroizing<NttPoly>,
}

impl SecretKey {
    /// Draws a fresh key.
    pub fn generate(ckks: &Arc<CkksContext>, rng: &mut Rng) -> SecretKey {
        let n = ckks.parameters.n();
        let mut secret = Zeroizing::new(vec![0; n]);
        rng.fill_ternary(&mut secret);
        let s = Zeroizing::new(small_polynomial(&ckks.key_ring, &secret));
        SecretKey { ckks: ckks.clone(), s }
    }

    /// Encrypts modulo the first `limbs` primes; `c1` is expanded from a fresh public seed.
    ///
    /// The message and the error share one transform for each limb.
    ///
    /// # Errors
    /// If the parameters have fewer limbs, or the message has another degree.
    pub fn encrypt(
        &self,
        message: &EncodedMessage,
        limbs: usize,
        rng: &mut Rng,
    ) -> Result<Ciphertext, CkksError> {
        let ring = self.ckks.data_ring(limbs)?;
        let (c0, c1) = (NttPoly::zero(ring), NttPoly::zero(ring));
        let mut fresh = Ciphertext { c0, c1, scale: message.scale, seed: None };
        self.encrypt_into(message, rng, &mut fresh)?;
        Ok(fresh)
    }

    /// Encrypts as [`SecretKey::encrypt`] does, with as many limbs as `into`, which is overwritten.
    ///
    /// # Errors
    /// If `into` is of other parameters, or the message has another degree.
    pub fn encrypt_into(
        &self,
        message: &EncodedMessage,
        rng: &mut Rng,
        into: &mut Ciphertext,
    ) -> Result<(), CkksError> {
        let ring = self.ckks.data_ring(into.limb_count())?;
        if !ring.is_same(into.c0.ring()) {
            return Err(CkksError::OtherParameters { what: "ciphertext" });
        }
        let mut noisy = Zeroizing::new(vec![0; ring.n()]);
        rng.fill_errors(&mut noisy);
        if message.coefficients.len() != noisy.len() {
            return Err(CkksError::OtherParameters { what: "message" });
        }
        noisy.iter_mut().zip(&message.coefficients).for_each(|(e, m)| *e += m);
        let seed = rng.next_seed();
        let mut public = Rng::from_seed(seed);
        for (q, limb) in into.c1.limbs_mut() {
            public.fill_uniform(q, limb);
        }
        for ((q, limb), of_ring) in into.c0.limbs_mut().zip(ring.limbs()) {
            limb.iter_mut().zip(&*noisy).for_each(|(x, &c)| *x = q.reduce_signed(c));
            of_ring.table.forward(limb);
        }
        self.subtract_product(&into.c1, &mut into.c0);
        (into.scale, into.seed) = (message.scale, Some(seed));
        Ok(())
    }

    /// x −= a·s, in the limbs that x has.
    pub(super) fn subtract_product(&self, a: &NttPoly, x: &mut NttPoly) {
        let tables = self.ckks.key_ring.limbs().iter();
        let inputs = tables.zip(a.limbs()).zip(self.s.limbs());
        for ((_, x), ((limb, (_, a)), (_, s))) in x.limbs_mut().zip(inputs) {
            limb.sub_product(x, a, s);
        }
    }

    /// Decrypts one ciphertext.
    ///
    /// # Errors
    /// If it was made for other parameters.
    pub fn decrypt(&self, ciphertext: &Ciphertext) -> Result<DecryptedMessage, CkksError> {
        let mut all = Vec::new();
        self.decrypt_into(std::slice::from_ref(ciphertext), &mut all)?;
        all.pop().ok_or(CkksError::OtherParameters { what: "ciphertext" })
    }

    /// Decrypts several ciphertexts, limb by limb, so that the key and the twiddle factors of a limb
    /// stay in the cache. The content of `into` is overwritten and its memory is reused.
    ///
    /// # Errors
    /// If a ciphertext was made for other parameters.
    pub fn decrypt_into(
        &self,
        ciphertexts: &[Ciphertext],
        into: &mut Vec<DecryptedMessage>,
    ) -> Result<(), CkksError> {
        into.truncate(ciphertexts.len());
        for (index, ciphertext) in ciphertexts.iter().enumerate() {
            let ring = self.ckks.data_ring(ciphertext.limb_count())?;
            if !ring.is_same(ciphertext.c0.ring()) {
                return Err(CkksError::OtherParameters { what: "ciphertext" });
            }
            if index == into.len() {
                let values = Vec::with_capacity(ring.len());
                into.push(DecryptedMessage { ring: ring.clone(), values, scale: 0.0 });
            }
            let decrypted = &mut into[index];
            (decrypted.ring, decrypted.scale) = (ring.clone(), ciphertext.scale);
            decrypted.values.resize(ring.len(), 0);
        }
        let n = self.ckks.parameters.n();
        for index in 0..self.ckks.limbs_max() {
            let (limb, s) = (&self.ckks.key_ring.limbs()[index], self.s.limb(index));
            let parts = into.iter_mut().zip(ciphertexts).filter(|(_, c)| index < c.limb_count());
            for (decrypted, ciphertext) in parts {
                let phase = &mut decrypted.values[index * n..][..n];
                phase.copy_from_slice(ciphertext.c0.limb(index));
                let c1 = ciphertext.c1.limb(index);
                limb.add_product(phase, c1, s);
                limb.table.inverse(phase);
            }
        }
        Ok(())
    }
}

impl Ciphertext {
    /// Makes a ciphertext from both parts in NTT form, modulo the same first primes.
    ///
    /// # Errors
    /// If a part is of another ring.
    pub fn from_polynomials(
        ckks: &CkksContext,
        c0: NttPoly,
        c1: NttPoly,
        scale: f64,
    ) -> Result<Ciphertext, CkksError> {
        let ring = ckks.data_ring(c0.ring().limbs().len())?;
        if !ring.is_same(c0.ring()) || !ring.is_same(c1.ring()) {
            return Err(CkksError::OtherParameters { what: "ciphertext" });
        }
        Ok(Ciphertext { c0, c1, scale, seed: None })
    }

    /// The number of remaining limbs.
    pub fn limb_count(&self) -> usize {
        self.c0.ring().limbs().len()
    }

    /// The factor that slots are multiplied by.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// Both parts, in NTT form.
    pub fn polynomials(&self) -> (&NttPoly, &NttPoly) {
        (&self.c0, &self.c1)
    }

    /// The product with a factor, slot by slot; scales multiply.
    ///
    /// # Errors
    /// If the factor has other limbs.
    pub fn product(&self, factor: &Plaintext) -> Result<Ciphertext, CkksError> {
        let (c0, c1) = (NttPoly::zero(self.c0.ring()), NttPoly::zero(self.c0.ring()));
        let mut product = Ciphertext { c0, c1, scale: self.scale, seed: None };
        self.multiply_into(factor, &mut product)?;
        Ok(product)
    }

    /// Multiplies as [`Ciphertext::product`] does and overwrites `into`, which has the same limbs.
    ///
    /// # Errors
    /// If the factor or `into` has other limbs.
    pub fn multiply_into(
        &self,
        factor: &Plaintext,
        into: &mut Ciphertext,
    ) -> Result<(), CkksError> {
        for (what, ring) in [("factor", factor.poly.ring()), ("product", into.c0.ring())] {
            if !self.c0.ring().is_same(ring) {
                let (wanted, got) = (self.limb_count(), ring.limbs().len());
                return Err(CkksError::WrongLimbCount { what, wanted, got });
            }
        }
        for (part, product) in [(&self.c0, &mut into.c0), (&self.c1, &mut into.c1)] {
            let inputs = part.ring().limbs().iter().zip(part.limbs().zip(factor.poly.limbs()));
            for ((_, product), (limb, ((_, part), (_, factor)))) in product.limbs_mut().zip(inputs)
            {
                product.copy_from_slice(part);
                limb.multiply(product, factor);
            }
        }
        (into.scale, into.seed) = (self.scale * factor.scale, None);
        Ok(())
    }

    /// self += other, slot by slot.
    ///
    /// # Errors
    /// If limbs or scales differ.
    pub fn add_assign(&mut self, other: &Ciphertext) -> Result<(), CkksError> {
        if !self.c0.ring().is_same(other.c0.ring()) {
            let (wanted, got) = (self.limb_count(), other.limb_count());
            return Err(CkksError::WrongLimbCount { what: "sum", wanted, got });
        }
        // Scales that are products of the same factors differ at most in their last bits.
        if (self.scale / other.scale - 1.0).abs() > 1e-12 {
            return Err(CkksError::ScaleMismatch { left: self.scale, right: other.scale });
        }
        self.c0.add_assign(&other.c0);
        self.c1.add_assign(&other.c1);
        self.seed = None;
        Ok(())
    }

    /// Divides by the last prime, drops it, and divides the scale by it.
    ///
    /// # Errors
    /// If only one limb remains.
    pub fn rescale(&self) -> Result<Ciphertext, CkksError> {
        let last = match self.c0.ring().limbs() {
            [_, .., last] => last.modulus.value() as f64,
            limbs => {
                return Err(CkksError::WrongLimbCount {
                    what: "rescale",
                    wanted: 2,
                    got: limbs.len(),
                });
            }
        };
        let (c0, c1) = (self.c0.divide_by_last_prime(), self.c1.divide_by_last_prime());
        Ok(Ciphertext { c0, c1, scale: self.scale / last, seed: None })
    }
}

impl Plaintext {
    /// The polynomial in NTT form.
    pub fn poly(&self) -> &NttPoly {
        &self.poly
    }
}

impl DecryptedMessage {
    /// The residues, `[limb][n]`.
    pub fn values(&self) -> &[u64] {
        &self.values
    }
}

/// Expands c1 from its seed.
pub(super) fn expand_seed(ring: &Arc<Ring>, seed: Seed) -> NttPoly {
    NttPoly::uniform(ring, &mut Rng::from_seed(seed))
}

/// A polynomial of small integers, below 2^62, in NTT form.
pub(super) fn small_polynomial(ring: &Arc<Ring>, coefficients: &[i64]) -> NttPoly {
    let mut poly = Poly::zero(ring);
    for (q, limb) in poly.limbs_mut() {
        limb.iter_mut().zip(coefficients).for_each(|(x, &c)| *x = q.reduce_signed(c));
    }
    poly.into_ntt()
}

impl Drop for DecryptedMessage {
    fn drop(&mut self) {
        self.values.zeroize();
    }
}

impl fmt::Debug for Ciphertext {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (limbs, bits) = (self.limb_count(), self.scale.log2());
        write!(out, "Ciphertext({limbs} limbs, scale 2^{bits:.3})")
    }
}

impl fmt::Debug for Plaintext {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Plaintext(scale 2^{:.3})", self.scale.log2())
    }
}

impl fmt::Debug for DecryptedMessage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "DecryptedMessage(scale 2^{:.3})", self.scale.log2())
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("SecretKey")
    }
}
