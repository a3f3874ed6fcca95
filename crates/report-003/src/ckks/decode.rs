//! Conversion of messages to factors, and of decryptions to slots.

use confide_rlwe::{Poly, run_vectorised};
use zeroize::Zeroize;

use super::{
    cipher::{DecryptedMessage, Plaintext},
    context::CkksContext,
    error::CkksError,
    message::EncodedMessage,
};

impl CkksContext {
    /// Makes a factor for products from a message, modulo the first `limbs` primes.
    ///
    /// # Errors
    /// If the parameters have fewer limbs, or the message has another degree.
    pub fn to_plaintext(
        &self,
        message: &EncodedMessage,
        limbs: usize,
    ) -> Result<Plaintext, CkksError> {
        let poly = Poly::from_signed(self.data_ring(limbs)?, &message.coefficients)?;
        Ok(Plaintext { poly: poly.into_ntt(), scale: message.scale })
    }

    /// Decodes a decryption to its slots.
    ///
    /// # Errors
    /// If the decryption was made for other parameters.
    pub fn decode(&self, decrypted: &DecryptedMessage) -> Result<Vec<f64>, CkksError> {
        let mut coefficients = self.recombine(decrypted)?;
        let factor = 1.0 / decrypted.scale;
        let slots = run_vectorised(|| self.embedding.to_slots(&mut coefficients, factor));
        coefficients.zeroize();
        Ok(slots)
    }

    /// Decodes each decryption as [`CkksContext::decode`] does. Neighbours of the same scale share a
    /// transform.
    ///
    /// # Errors
    /// If a decryption was made for other parameters.
    pub fn decode_batch(&self, decrypted: &[DecryptedMessage]) -> Result<Vec<Vec<f64>>, CkksError> {
        let mut all = Vec::with_capacity(decrypted.len());
        for pair in decrypted.chunks(2) {
            match pair {
                [first, second] if first.scale == second.scale => {
                    let (mut left, mut right) = (self.recombine(first)?, self.recombine(second)?);
                    let factor = 1.0 / first.scale;
                    let slots = run_vectorised(|| {
                        self.embedding.to_slot_pairs(&mut left, &mut right, factor)
                    });
                    all.extend([slots.0, slots.1]);
                    left.zeroize();
                    right.zeroize();
                }
                _ => pair.iter().try_for_each(|one| {
                    all.push(self.decode(one)?);
                    Ok::<(), CkksError>(())
                })?,
            }
        }
        Ok(all)
    }

    fn recombine(&self, decrypted: &DecryptedMessage) -> Result<Vec<f64>, CkksError> {
        let ring = self.data_ring(decrypted.ring.limbs().len())?;
        if !ring.is_same(&decrypted.ring) {
            return Err(CkksError::OtherParameters { what: "decryption" });
        }
        let recombination = &self.recombinations[ring.limbs().len() - 1];
        Ok(run_vectorised(|| recombination.to_centred(&decrypted.values, ring.n())))
    }
}
