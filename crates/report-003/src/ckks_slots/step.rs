//! The computation of one projection for one vector, with each operation timed and counted.

use std::time::Instant;

use super::{
    CkksDeltas,
    error::activation_error,
    layout::{ColumnTile, EncodedWeights},
    options::{DecryptionMode, EncryptingSide, Packing},
};
use crate::ckks::{Ciphertext, CkksError};
use confide_lora::AdaptError;

impl CkksDeltas {
    /// Encrypts a vector, one ciphertext for each tile of its width.
    pub(super) fn encrypt_row(
        &mut self,
        weights: &EncodedWeights,
        row: &[f32],
    ) -> Result<Vec<Ciphertext>, AdaptError> {
        let tiles = weights.tiles.iter();
        tiles
            .map(|tile| self.encrypt_tile(tile, row).map_err(|error| activation_error(&error)))
            .collect()
    }

    fn encrypt_tile(&mut self, tile: &ColumnTile, row: &[f32]) -> Result<Ciphertext, CkksError> {
        let (ckks, options) = (self.shared.ckks.clone(), &self.shared.options);
        let limbs = options.limb_count(&ckks);
        let begin = Instant::now();
        let part = &row[tile.start..][..tile.width];
        let message =
            ckks.encode(&tile.repeat_into_slots(std::iter::repeat_n(part, tile.copies)))?;
        let begin = self.record_time("encode_ms", begin);
        let key = &self.shared.key;
        let ciphertext = match self.memory.inputs.pop() {
            Some(mut used) => {
                key.encrypt_into(&message, &mut self.rng, &mut used)?;
                used
            }
            None => key.encrypt(&message, limbs, &mut self.rng)?,
        };
        self.report.he_operations += 1;
        self.record_time("encrypt_ms", begin);
        self.simulate_transfer(ciphertext)
    }

    /// Computes scale·B·(A·x) for the vector whose tiles are encrypted in `inputs`.
    pub(super) fn delta(
        &mut self,
        weights: &EncodedWeights,
        inputs: &[Ciphertext],
    ) -> Result<Vec<f64>, AdaptError> {
        let delta = match self.shared.options.packing {
            Packing::TwoProducts => self.compute_by_two_products(weights, inputs),
            Packing::Segments | Packing::Rotations => {
                self.dot_products(weights, inputs).map(|dots| self.multiply_by_b(weights, &dots))
            }
        };
        delta.map_err(|error| activation_error(&error))
    }

    /// Computes A·x by one product for each pack of rows.
    fn dot_products(
        &mut self,
        weights: &EncodedWeights,
        inputs: &[Ciphertext],
    ) -> Result<Vec<f64>, CkksError> {
        let rotate = self.shared.options.packing == Packing::Rotations;
        let mut answers = Vec::new();
        for (tile, input) in weights.tiles.iter().zip(inputs) {
            for pack in &tile.packs {
                let mut product = self.multiply(input, pack)?;
                if rotate {
                    product = self.sum_segments(product, tile.segment)?;
                }
                answers.push(self.simulate_transfer(product)?);
            }
        }
        let all = self.decrypt_answers(&answers)?;
        self.memory.products = answers;
        let begin = Instant::now();
        let mut slots = all.iter();
        let mut dots = vec![0.0; weights.rank];
        for tile in &weights.tiles {
            // With rotations, the first slot of a segment is already the sum.
            let terms = if rotate { 1 } else { tile.width };
            for (dots, slots) in
                dots.chunks_mut(tile.copies).zip(slots.by_ref().take(tile.packs.len()))
            {
                for (dot, segment) in dots.iter_mut().zip(slots.chunks(tile.stride)) {
                    *dot += sum(&segment[..terms]);
                }
            }
        }
        self.record_time("sum_ms", begin);
        Ok(dots)
    }

    /// Computes both products under encryption: for each row of A, a product whose sum is in every
    /// slot, and its product with a column of B.
    fn compute_by_two_products(
        &mut self,
        weights: &EncodedWeights,
        inputs: &[Ciphertext],
    ) -> Result<Vec<f64>, CkksError> {
        let mut totals: Vec<Option<Ciphertext>> = vec![None; weights.b_columns.len()];
        for rank in 0..weights.rank {
            let mut term = None;
            for (tile, input) in weights.tiles.iter().zip(inputs) {
                let product = self.multiply(input, &tile.packs[rank])?;
                add_term(&mut term, product)?;
            }
            let Some(term) = term else { continue };
            let begin = Instant::now();
            let rescaled = term.rescale()?;
            self.record_time("product_ms", begin);
            let inner = self.sum_segments(rescaled, self.shared.ckks.slot_count())?;
            for (total, columns) in totals.iter_mut().zip(&weights.b_columns) {
                let product = self.multiply(&inner, &columns[rank])?;
                add_term(total, product)?;
            }
        }
        let totals: Vec<_> = totals.into_iter().flatten().collect();
        let answers = totals
            .into_iter()
            .map(|total| self.simulate_transfer(total))
            .collect::<Result<Vec<_>, _>>()?;
        let all = self.decrypt_answers(&answers)?;
        Ok(all.into_iter().flatten().take(weights.width().output).collect())
    }

    fn multiply_by_b(&mut self, weights: &EncodedWeights, dots: &[f64]) -> Vec<f64> {
        let begin = Instant::now();
        let row = |row: &[f32]| {
            weights.scale * row.iter().zip(dots).map(|(b, u)| f64::from(*b) * u).sum::<f64>()
        };
        let delta = weights.b.values.chunks_exact(weights.b.columns).map(row).collect();
        self.record_time("b_ms", begin);
        delta
    }

    fn multiply(
        &mut self,
        input: &Ciphertext,
        factor: &crate::ckks::Plaintext,
    ) -> Result<Ciphertext, CkksError> {
        let begin = Instant::now();
        let product = match self.memory.products.pop() {
            Some(mut used) if used.limb_count() == input.limb_count() => {
                input.multiply_into(factor, &mut used)?;
                used
            }
            _ => input.product(factor)?,
        };
        self.report.he_operations += 1;
        self.record_time("product_ms", begin);
        Ok(product)
    }

    /// Adds to every slot the `segment` − 1 that follow it, by log2(segment) rotations.
    fn sum_segments(
        &mut self,
        mut sum: Ciphertext,
        segment: usize,
    ) -> Result<Ciphertext, CkksError> {
        let begin = Instant::now();
        let mut steps = segment / 2;
        while steps > 0 {
            let missing = CkksError::OtherParameters { what: "rotation key" };
            let key = self.shared.rotations.get(&steps).ok_or(missing)?;
            let turned = sum.rotate(&self.shared.ckks, key)?;
            sum.add_assign(&turned)?;
            self.report.he_operations += 1;
            self.report.he_rotations += 1;
            steps /= 2;
        }
        self.record_time("rotation_ms", begin);
        Ok(sum)
    }

    /// Encodes and decodes the ciphertext as for a network, if a client encrypts; otherwise returns
    /// it unchanged.
    fn simulate_transfer(&mut self, ciphertext: Ciphertext) -> Result<Ciphertext, CkksError> {
        if self.shared.options.direction == EncryptingSide::Server {
            return Ok(ciphertext);
        }
        let begin = Instant::now();
        let bytes = ciphertext.to_bytes(&self.shared.ckks);
        let read = Ciphertext::from_bytes(&self.shared.ckks, &bytes)?;
        self.report.online_bytes += bytes.len() as u64;
        self.record_time("wire_ms", begin);
        Ok(read)
    }

    fn decrypt_answers(&mut self, answers: &[Ciphertext]) -> Result<Vec<Vec<f64>>, CkksError> {
        let shared = self.shared.clone();
        let at_once = match shared.options.decryption {
            DecryptionMode::Batched => answers.len().max(1),
            DecryptionMode::Sequential => 1,
        };
        let mut slots = Vec::with_capacity(answers.len());
        for answers in answers.chunks(at_once) {
            let begin = Instant::now();
            shared.key.decrypt_into(answers, &mut self.memory.decrypted)?;
            self.report.he_operations += answers.len() as u64;
            let begin = self.record_time("decrypt_ms", begin);
            slots.extend(shared.ckks.decode_batch(&self.memory.decrypted)?);
            self.record_time("decode_ms", begin);
        }
        Ok(slots)
    }

    fn record_time(&mut self, step: &'static str, begin: Instant) -> Instant {
        let end = Instant::now();
        *self.report.steps_ms.entry(step).or_default() += (end - begin).as_secs_f64() * 1e3;
        end
    }
}

fn add_term(total: &mut Option<Ciphertext>, term: Ciphertext) -> Result<(), CkksError> {
    match total {
        Some(total) => total.add_assign(&term),
        None => {
            *total = Some(term);
            Ok(())
        }
    }
}

/// Sums with eight independent partial sums, which the processor computes in parallel.
fn sum(terms: &[f64]) -> f64 {
    let (chunks, rest) = terms.as_chunks::<8>();
    let mut sums = [0.0; 8];
    for chunk in chunks {
        for (sum, term) in sums.iter_mut().zip(chunk) {
            *sum += term;
        }
    }
    sums.iter().sum::<f64>() + rest.iter().sum::<f64>()
}
