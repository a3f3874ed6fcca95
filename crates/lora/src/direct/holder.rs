//! The key holder's half of the direct scheme.

use std::fmt;

use confide_rlwe::{Context, Rng, SecretKey, SeededCiphertext, SmallCiphertext};
use zeroize::Zeroizing;

use super::cut::{DirectError, Tiling};
use crate::{
    count::check_count,
    int_matrix::low_mask,
    link::Tile,
    meter::{Meter, Step},
    terms::Terms,
};

/// The key holder's half of the direct scheme, for one input.
#[derive(Clone, Copy)]
pub struct DirectHolder {
    cut: Tiling,
    bits: u32,
}

impl DirectHolder {
    /// Cuts the matrix of `terms` into tiles, as the host does; both ends must agree on `tile`.
    ///
    /// # Errors
    /// If the tile or the terms do not fit the parameters.
    pub fn new(context: &Context, terms: &Terms, tile: Tile) -> Result<Self, DirectError> {
        Ok(DirectHolder { cut: Tiling::new(context, terms, tile)?, bits: terms.bits })
    }

    /// The ciphertexts of one quantised vector, one for each tile of columns.
    ///
    /// # Errors
    /// If the vector has another length.
    pub fn request(
        &self,
        key: &SecretKey,
        values: &[i16],
        rng: &mut Rng,
        meter: &mut Meter,
    ) -> Result<Vec<SeededCiphertext>, DirectError> {
        check_count("entries of a vector", self.cut.columns, values.len())?;
        let word = low_mask(self.bits);
        let mut encryptor = key.encryptor(rng.fork());
        let mut message = Zeroizing::new(vec![0; key.context().n()]);
        let request = meter.time(Step::Encrypt, || {
            let tiles = values.chunks(self.cut.tile.inputs).map(|tile| {
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

    /// `A · x mod 2^k` from the host's answers.
    ///
    /// # Errors
    /// If there are other answers than wanted, or with other coefficients.
    pub fn open(
        &self,
        key: &SecretKey,
        answers: &[SmallCiphertext],
        meter: &mut Meter,
    ) -> Result<Vec<u64>, DirectError> {
        check_count("answers", self.cut.answers(), answers.len())?;
        let mut products = Vec::with_capacity(self.cut.rows);
        for (index, answer) in answers.iter().enumerate() {
            if !answer.positions().eq(self.cut.positions(index)) {
                return Err(DirectError::Positions { answer: index });
            }
            products.extend(meter.time(Step::Decrypt, || key.decrypt(answer))?);
            meter.he_operations += 1;
        }
        Ok(products)
    }
}

impl fmt::Debug for DirectHolder {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "DirectHolder({:?})", self.cut)
    }
}
