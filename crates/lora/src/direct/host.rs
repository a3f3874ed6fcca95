//! The host's half of the direct scheme.

use std::{fmt, sync::Arc};

use confide_rlwe::{
    Ciphertext, Context, Plaintext, PublicKey, RlweError, Rng, SeededCiphertext, SmallCiphertext,
};

use super::tiling::{EncryptedProductError, TileGrid};
use crate::{
    count::check_count,
    int_matrix::IntMatrix,
    link::TileShape,
    meter::{DeltaStep, StepMeter},
    terms::{InputTerms, QuantisedWeights},
};

/// The host's half of the direct scheme, for one input and one tile: weights in NTT form.
pub struct EncryptedProductHost {
    context: Arc<Context>,
    grid: TileGrid,
    /// `[tile of rows][tile of columns]`.
    weights: Vec<Vec<Plaintext>>,
}

impl EncryptedProductHost {
    /// Converts the weights of one input to the form that products need.
    ///
    /// # Errors
    /// If the set does not flood, or the tile does not fit.
    pub fn new(
        context: &Arc<Context>,
        weights: &QuantisedWeights,
        tile: TileShape,
    ) -> Result<Self, EncryptedProductError> {
        if context.parameter_set().flood_bits() == 0 {
            return Err(RlweError::NotFlooded { name: context.parameter_set().name() }.into());
        }
        Self::with_any_parameter_set(context, weights, tile)
    }

    /// Makes a host under a set whose answers are neither re-randomised nor flooded: the first answer
    /// reveals the adapter to the holder of the secret key. It exists to be compared with
    /// [`EncryptedProductHost::new`].
    ///
    /// # Errors
    /// If the tile does not fit.
    pub fn dangerous_unflooded(
        context: &Arc<Context>,
        weights: &QuantisedWeights,
        tile: TileShape,
    ) -> Result<Self, EncryptedProductError> {
        Self::with_any_parameter_set(context, weights, tile)
    }

    /// Answers the ciphertexts of one vector.
    ///
    /// # Errors
    /// If the number of ciphertexts is not as expected, or a ciphertext or the key is of another ring.
    pub fn answer(
        &self,
        request: Vec<SeededCiphertext>,
        key: &PublicKey,
        rng: &mut Rng,
        meter: &mut StepMeter,
    ) -> Result<Vec<SmallCiphertext>, EncryptedProductError> {
        check_count("ciphertexts", self.grid.request_count(), request.len())?;
        let ring = self.context.ring();
        if request.iter().any(|ciphertext| !ring.is_same(ciphertext.c0.ring())) {
            return Err(RlweError::Wire { what: "ciphertext", reason: "of another ring" }.into());
        }
        let columns: Vec<Ciphertext> = meter.time(DeltaStep::Product, || {
            request.into_iter().map(SeededCiphertext::expand).collect()
        });
        let mut answers = Vec::with_capacity(self.weights.len());
        for (index, row) in self.weights.iter().enumerate() {
            let mut sum = self.initial_sum(key, rng, meter)?;
            let answer = meter.time(DeltaStep::Product, || {
                for (column, weights) in columns.iter().zip(row) {
                    sum.add_product(column, weights);
                }
                sum.switch_down().select_positions(&self.grid.answer_positions(index))
            })?;
            meter.he_operations += columns.len() as u64;
            answers.push(answer);
        }
        Ok(answers)
    }

    /// The ciphertext that a sum starts from: a fresh, flooded zero, or zero without noise under a
    /// set that does not flood.
    fn initial_sum(
        &self,
        key: &PublicKey,
        rng: &mut Rng,
        meter: &mut StepMeter,
    ) -> Result<Ciphertext, EncryptedProductError> {
        if self.context.parameter_set().flood_bits() == 0 {
            return Ok(Ciphertext::zero(&self.context));
        }
        meter.he_operations += 1;
        Ok(meter.time(DeltaStep::Encrypt, || key.encrypt_zero(&self.context, rng))?)
    }

    fn with_any_parameter_set(
        context: &Arc<Context>,
        weights: &QuantisedWeights,
        tile: TileShape,
    ) -> Result<Self, EncryptedProductError> {
        // The limit is computed from the matrix, because the terms may claim another.
        let outputs_max = crate::terms::tile_outputs_max(&weights.matrix, context.parameter_set());
        let terms = InputTerms { outputs_max, ..weights.terms.clone() };
        let grid = TileGrid::new(context, &terms, tile)?;
        let tiles = (0..grid.answer_count()).map(|answer| {
            let tile = |request| {
                Plaintext::new(
                    context,
                    &tile_coefficients(&weights.matrix, &grid, context.n(), answer, request),
                )
            };
            (0..grid.request_count()).map(tile).collect::<Result<Vec<_>, _>>()
        });
        let weights = tiles.collect::<Result<Vec<_>, _>>()?;
        Ok(EncryptedProductHost { context: context.clone(), grid, weights })
    }
}

/// The weights of a tile, with `A[o][j]` in coefficient `(o + 1)·inputs − 1 − j`.
fn tile_coefficients(
    matrix: &IntMatrix,
    grid: &TileGrid,
    degree: usize,
    answer: usize,
    request: usize,
) -> Vec<i64> {
    let TileShape { inputs, outputs } = grid.tile;
    let mut weights = vec![0; degree];
    let rows = (answer * outputs..grid.rows).take(outputs);
    for (row, end) in rows.zip((1..).map(|o| o * inputs - 1)) {
        let entries = matrix.row(row).skip(request * inputs).take(inputs);
        for (column, entry) in entries.enumerate() {
            weights[end - column] = i64::from(entry);
        }
    }
    weights
}

impl fmt::Debug for EncryptedProductHost {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "EncryptedProductHost({:?})", self.grid)
    }
}
