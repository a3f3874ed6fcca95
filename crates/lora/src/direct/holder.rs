//! The key holder's half of the direct scheme.

use std::fmt;

use confide_rlwe::{Context, Rng, SecretKey, SeededCiphertext, SmallCiphertext};
use zeroize::Zeroizing;

use super::tiling::{EncryptedProductError, TileGrid};
use crate::{
    count::check_count,
    int_matrix::low_mask,
    link::TileShape,
    meter::{DeltaStep, StepMeter},
    terms::InputTerms,
};

/// The key holder's half of the direct scheme, for one input.
#[derive(Clone, Copy)]
pub struct EncryptedProductHolder {
    grid: TileGrid,
    bits: u32,
}

impl EncryptedProductHolder {
    /// Divides the matrix of `terms` into tiles, as the host does; both ends must use the same
    /// `tile`.
    ///
    /// # Errors
    /// If the tile or the terms do not fit the parameters.
    pub fn new(
        context: &Context,
        terms: &InputTerms,
        tile: TileShape,
    ) -> Result<Self, EncryptedProductError> {
        Ok(EncryptedProductHolder { grid: TileGrid::new(context, terms, tile)?, bits: terms.bits })
    }

    /// Encrypts one quantised vector into a ciphertext for each tile of columns.
    ///
    /// # Errors
    /// If the vector has another length.
    pub fn encrypt_request(
        &self,
        key: &SecretKey,
        values: &[i16],
        rng: &mut Rng,
        meter: &mut StepMeter,
    ) -> Result<Vec<SeededCiphertext>, EncryptedProductError> {
        check_count("entries of a vector", self.grid.columns, values.len())?;
        let word = low_mask(self.bits);
        let mut encryptor = key.encryptor(rng.fork());
        let mut message = Zeroizing::new(vec![0; key.context().n()]);
        let request = meter.time(DeltaStep::Encrypt, || {
            let tiles = values.chunks(self.grid.tile.inputs).map(|tile| {
                message.fill(0);
                for (to, value) in message.iter_mut().zip(tile) {
                    *to = i64::from(*value) as u64 & word;
                }
                encryptor.encrypt(&message)
            });
            tiles.collect::<Result<Vec<_>, _>>()
        })?;
        meter.he_operations += request.len() as u64;
        Ok(request)
    }

    /// Decrypts the host's answers to `A · x mod 2^k`.
    ///
    /// # Errors
    /// If the number of answers or their coefficients are not as expected.
    pub fn decrypt_answers(
        &self,
        key: &SecretKey,
        answers: &[SmallCiphertext],
        meter: &mut StepMeter,
    ) -> Result<Vec<u64>, EncryptedProductError> {
        check_count("answers", self.grid.answer_count(), answers.len())?;
        let mut products = Vec::with_capacity(self.grid.rows);
        for (index, answer) in answers.iter().enumerate() {
            if !answer.positions().eq(self.grid.answer_positions(index)) {
                return Err(EncryptedProductError::WrongCoefficients { answer: index });
            }
            products.extend(meter.time(DeltaStep::Decrypt, || key.decrypt(answer))?);
            meter.he_operations += 1;
        }
        Ok(products)
    }
}

impl fmt::Debug for EncryptedProductHolder {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "EncryptedProductHolder({:?})", self.grid)
    }
}
