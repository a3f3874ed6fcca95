use std::{fmt, sync::Arc};

use zeroize::{Zeroize, Zeroizing};

use super::{Ckks, CkksError, Message, ntt_poly};
use crate::{NttPoly, Poly, Ring, Rng, Seed};

/// A factor in NTT form.
#[derive(Clone)]
pub struct Plaintext {
    pub(super) poly: NttPoly,
    pub(super) scale: f64,
}

/// An encryption: c0 + c1·s is the scaled message and noise.
#[derive(Clone)]
pub struct Ciphertext {
    pub(super) c0: NttPoly,
    pub(super) c1: NttPoly,
    pub(super) scale: f64,
    /// What `c1` was expanded from, where nothing has been computed on it.
    pub(super) seed: Option<Seed>,
}

/// What a key makes of a ciphertext: the scaled message *with its noise*, in coefficient form.
///
/// Not to be given away, nor what is decoded from it: see the module's first words.
pub struct Decrypted {
    pub(super) ring: Arc<Ring>,
    /// `[limb][n]`.
    pub(super) values: Vec<u64>,
    pub(super) scale: f64,
}

/// A ternary secret.
pub struct SecretKey {
    pub(super) ckks: Arc<Ckks>,
    /// Over the data primes and the special one.
    pub(super) s: Zeroizing<NttPoly>,
}

impl SecretKey {
    /// A fresh key.
    pub fn generate(ckks: &Arc<Ckks>, rng: &mut Rng) -> SecretKey {
        let n = ckks.parameters.n();
        let mut secret = Zeroizing::new(vec![0; n]);
        rng.fill_ternary(&mut secret);
        let s = Zeroizing::new(small(&ckks.key_ring, &secret));
        SecretKey { ckks: ckks.clone(), s }
    }

    /// Encrypts modulo the first `limbs` primes; `c1` is expanded from a fresh public seed.
    ///
    /// The message and the error share one transform for each limb.
    ///
    /// # Errors
    /// Where there are not so many limbs, or the message has another degree.
    pub fn encrypt(
        &self,
        message: &Message,
        limbs: usize,
        rng: &mut Rng,
    ) -> Result<Ciphertext, CkksError> {
        let ring = self.ckks.data_ring(limbs)?;
        let mut noisy = Zeroizing::new(vec![0; ring.n()]);
        rng.fill_errors(&mut noisy);
        if message.coefficients.len() != noisy.len() {
            return Err(CkksError::OtherParameters { what: "message" });
        }
        noisy.iter_mut().zip(&message.coefficients).for_each(|(e, m)| *e += m);
        let seed = rng.seed();
        let c1 = expanded(ring, seed);
        let mut c0 = small(ring, &noisy);
        for ((q, c0), (c1, s)) in c0.limbs_mut().zip(c1.limbs().zip(self.s.limbs())) {
            for (x, (&a, &s)) in c0.iter_mut().zip(c1.1.iter().zip(s.1)) {
                *x = q.mul_add(q.neg(a), s, *x);
            }
        }
        Ok(Ciphertext { c0, c1, scale: message.scale, seed: Some(seed) })
    }

    /// Decrypts one.
    ///
    /// # Errors
    /// Where it was made for other parameters.
    pub fn decrypt(&self, ciphertext: &Ciphertext) -> Result<Decrypted, CkksError> {
        let mut all = self.decrypt_batch(std::slice::from_ref(ciphertext))?;
        all.pop().ok_or(CkksError::OtherParameters { what: "ciphertext" })
    }

    /// Decrypts several, limb by limb: the limb's key and twiddles stay in the cache for all.
    ///
    /// # Errors
    /// Where one was made for other parameters.
    pub fn decrypt_batch(&self, ciphertexts: &[Ciphertext]) -> Result<Vec<Decrypted>, CkksError> {
        let empty = |ciphertext: &Ciphertext| {
            let ring = self.ckks.data_ring(ciphertext.limbs())?.clone();
            if !ring.same(ciphertext.c0.ring()) {
                return Err(CkksError::OtherParameters { what: "ciphertext" });
            }
            let values = Vec::with_capacity(ring.len());
            Ok(Decrypted { ring, values, scale: ciphertext.scale })
        };
        let mut all = ciphertexts.iter().map(empty).collect::<Result<Vec<_>, CkksError>>()?;
        let n = self.ckks.parameters.n();
        for index in 0..self.ckks.limbs_max() {
            let (limb, s) = (&self.ckks.key_ring.limbs()[index], self.s.limb(index));
            let q = limb.modulus;
            let parts = all.iter_mut().zip(ciphertexts).filter(|(_, c)| index < c.limbs());
            for (decrypted, ciphertext) in parts {
                let (c0, c1) = (ciphertext.c0.limb(index), ciphertext.c1.limb(index));
                let phase = c0.iter().zip(c1).zip(s).map(|((&c0, &c1), &s)| q.mul_add(c1, s, c0));
                decrypted.values.extend(phase);
                limb.table.inverse(&mut decrypted.values[index * n..]);
            }
        }
        Ok(all)
    }
}

impl Ciphertext {
    /// From both parts in NTT form, modulo the same first primes.
    ///
    /// # Errors
    /// Where a part is of another ring.
    pub fn from_parts(
        ckks: &Ckks,
        c0: NttPoly,
        c1: NttPoly,
        scale: f64,
    ) -> Result<Ciphertext, CkksError> {
        let ring = ckks.data_ring(c0.ring().limbs().len())?;
        if !ring.same(c0.ring()) || !ring.same(c1.ring()) {
            return Err(CkksError::OtherParameters { what: "ciphertext" });
        }
        Ok(Ciphertext { c0, c1, scale, seed: None })
    }

    /// Limbs left.
    pub fn limbs(&self) -> usize {
        self.c0.ring().limbs().len()
    }

    /// What slots are multiplied by.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// Both parts, in NTT form.
    pub fn parts(&self) -> (&NttPoly, &NttPoly) {
        (&self.c0, &self.c1)
    }

    /// Slot by slot product with a factor; scales multiply.
    ///
    /// # Errors
    /// Where the factor was made for other limbs.
    pub fn product(&self, factor: &Plaintext) -> Result<Ciphertext, CkksError> {
        if !self.c0.ring().same(factor.poly.ring()) {
            return Err(CkksError::Limbs {
                what: "factor",
                wanted: self.limbs(),
                got: factor.poly.ring().limbs().len(),
            });
        }
        let times = |part: &NttPoly| {
            ntt_poly(part.ring(), |product| {
                let inputs = part.limbs().zip(factor.poly.limbs());
                for ((q, product), ((_, part), (_, factor))) in product.limbs_mut().zip(inputs) {
                    for (x, (&a, &b)) in product.iter_mut().zip(part.iter().zip(factor)) {
                        *x = q.mul(a, b);
                    }
                }
            })
        };
        let scale = self.scale * factor.scale;
        Ok(Ciphertext { c0: times(&self.c0), c1: times(&self.c1), scale, seed: None })
    }

    /// self += other, slot by slot.
    ///
    /// # Errors
    /// Where limbs or scales differ.
    pub fn add_assign(&mut self, other: &Ciphertext) -> Result<(), CkksError> {
        if !self.c0.ring().same(other.c0.ring()) {
            let (wanted, got) = (self.limbs(), other.limbs());
            return Err(CkksError::Limbs { what: "sum", wanted, got });
        }
        // Scales that went the same way are equal to the last bit or nearly so.
        if (self.scale / other.scale - 1.0).abs() > 1e-12 {
            return Err(CkksError::Scales { left: self.scale, right: other.scale });
        }
        self.c0.add_assign(&other.c0);
        self.c1.add_assign(&other.c1);
        self.seed = None;
        Ok(())
    }

    /// Divides by the last prime, which the scale loses, and drops it.
    ///
    /// # Errors
    /// Where one limb is left.
    pub fn rescale(&self) -> Result<Ciphertext, CkksError> {
        let last = match self.c0.ring().limbs() {
            [_, .., last] => last.modulus.value() as f64,
            limbs => return Err(CkksError::Limbs { what: "rescale", wanted: 2, got: limbs.len() }),
        };
        let (c0, c1) = (self.c0.drop_limb(), self.c1.drop_limb());
        Ok(Ciphertext { c0, c1, scale: self.scale / last, seed: None })
    }
}

impl Plaintext {
    /// In NTT form.
    pub fn poly(&self) -> &NttPoly {
        &self.poly
    }
}

impl Decrypted {
    /// Residues, `[limb][n]`.
    pub fn values(&self) -> &[u64] {
        &self.values
    }
}

/// c1 of a seed.
pub(super) fn expanded(ring: &Arc<Ring>, seed: Seed) -> NttPoly {
    NttPoly::uniform(ring, &mut Rng::from_seed(seed))
}

/// Small integers, below 2^62, in NTT form.
pub(super) fn small(ring: &Arc<Ring>, coefficients: &[i64]) -> NttPoly {
    let mut poly = Poly::zero(ring);
    for (q, limb) in poly.limbs_mut() {
        limb.iter_mut().zip(coefficients).for_each(|(x, &c)| *x = q.reduce_signed(c));
    }
    poly.into_ntt()
}

impl Drop for Decrypted {
    fn drop(&mut self) {
        self.values.zeroize();
    }
}

impl fmt::Debug for Ciphertext {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (limbs, bits) = (self.limbs(), self.scale.log2());
        write!(out, "Ciphertext({limbs} limbs, scale 2^{bits:.3})")
    }
}

impl fmt::Debug for Plaintext {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Plaintext(scale 2^{:.3})", self.scale.log2())
    }
}

impl fmt::Debug for Decrypted {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Decrypted(scale 2^{:.3})", self.scale.log2())
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("SecretKey")
    }
}
