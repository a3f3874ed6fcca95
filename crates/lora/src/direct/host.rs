//! The host's half of the direct scheme.

use std::{fmt, sync::Arc};

use confide_rlwe::{
    Ciphertext, Context, Plaintext, PublicKey, RlweError, Rng, SeededCiphertext, SmallCiphertext,
};

use super::cut::{DirectError, Tiling};
use crate::{
    count::check_count,
    int_matrix::IntMatrix,
    link::Tile,
    meter::{Meter, Step},
    terms::{Terms, Weights},
};

/// The host's half of the direct scheme, for one input and one tile: weights in NTT form.
pub struct DirectHost {
    context: Arc<Context>,
    cut: Tiling,
    /// `[tile of rows][tile of columns]`.
    weights: Vec<Vec<Plaintext>>,
}

impl DirectHost {
    /// Brings the weights of one input into the form that products need.
    ///
    /// # Errors
    /// If the set does not flood, or the tile does not fit.
    pub fn new(context: &Arc<Context>, weights: &Weights, tile: Tile) -> Result<Self, DirectError> {
        if context.set().flood_bits() == 0 {
            return Err(RlweError::NotFlooded { name: context.set().name() }.into());
        }
        Self::of_any_set(context, weights, tile)
    }

    /// Makes a host under a set whose answers are neither made fresh nor flooded: anyone with the
    /// secret key reads the adapter from the first answer. For comparisons with
    /// [`DirectHost::new`].
    ///
    /// # Errors
    /// If the tile does not fit.
    pub fn dangerous_unflooded(
        context: &Arc<Context>,
        weights: &Weights,
        tile: Tile,
    ) -> Result<Self, DirectError> {
        Self::of_any_set(context, weights, tile)
    }

    /// Answers the ciphertexts of one vector.
    ///
    /// # Errors
    /// If there are other ciphertexts than wanted, or they or the key are of another ring.
    pub fn answer(
        &self,
        request: Vec<SeededCiphertext>,
        key: &PublicKey,
        rng: &mut Rng,
        meter: &mut Meter,
    ) -> Result<Vec<SmallCiphertext>, DirectError> {
        check_count("ciphertexts", self.cut.requests(), request.len())?;
        let ring = self.context.ring();
        if request.iter().any(|ciphertext| !ring.is_same(ciphertext.c0.ring())) {
            return Err(RlweError::Wire { what: "ciphertext", reason: "of another ring" }.into());
        }
        let columns: Vec<Ciphertext> = meter
            .time(Step::Product, || request.into_iter().map(SeededCiphertext::expand).collect());
        let mut answers = Vec::with_capacity(self.weights.len());
        for (index, row) in self.weights.iter().enumerate() {
            let mut sum = self.start(key, rng, meter)?;
            let answer = meter.time(Step::Product, || {
                for (column, weights) in columns.iter().zip(row) {
                    sum.add_product(column, weights);
                }
                sum.switch_down().select(&self.cut.positions(index))
            })?;
            meter.he_operations += columns.len() as u64;
            answers.push(answer);
        }
        Ok(answers)
    }

    /// The ciphertext that a sum starts from: a fresh, flooded zero, or zero without noise under a
    /// set that does not flood.
    fn start(
        &self,
        key: &PublicKey,
        rng: &mut Rng,
        meter: &mut Meter,
    ) -> Result<Ciphertext, DirectError> {
        if self.context.set().flood_bits() == 0 {
            return Ok(Ciphertext::zero(&self.context));
        }
        meter.he_operations += 1;
        Ok(meter.time(Step::Encrypt, || key.encrypt_zero(&self.context, rng))?)
    }

    fn of_any_set(
        context: &Arc<Context>,
        weights: &Weights,
        tile: Tile,
    ) -> Result<Self, DirectError> {
        // The limit of the noise is computed from the matrix: the terms may claim another.
        let outputs_max = crate::terms::outputs_max(&weights.matrix, context.set());
        let terms = Terms { outputs_max, ..weights.terms.clone() };
        let cut = Tiling::new(context, &terms, tile)?;
        let tiles = (0..cut.answers()).map(|answer| {
            let tile = |request| {
                Plaintext::new(
                    context,
                    &tile_of(&weights.matrix, &cut, context.n(), answer, request),
                )
            };
            (0..cut.requests()).map(tile).collect::<Result<Vec<_>, _>>()
        });
        let weights = tiles.collect::<Result<Vec<_>, _>>()?;
        Ok(DirectHost { context: context.clone(), cut, weights })
    }
}

/// `A[o][j]` of a tile in coefficient `(o + 1)·inputs − 1 − j`.
fn tile_of(
    matrix: &IntMatrix,
    cut: &Tiling,
    degree: usize,
    answer: usize,
    request: usize,
) -> Vec<i64> {
    let Tile { inputs, outputs } = cut.tile;
    let mut weights = vec![0; degree];
    let rows = (answer * outputs..cut.rows).take(outputs);
    for (row, end) in rows.zip((1..).map(|o| o * inputs - 1)) {
        let entries = matrix.row(row).skip(request * inputs).take(inputs);
        for (column, entry) in entries.enumerate() {
            weights[end - column] = i64::from(entry);
        }
    }
    weights
}

impl fmt::Debug for DirectHost {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "DirectHost({:?})", self.cut)
    }
}
