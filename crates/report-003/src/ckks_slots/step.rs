//! One vector through one projection, every operation timed and counted where it runs.

use std::time::Instant;

use super::{
    CkksDeltas,
    error::activation_error,
    layout::{Tile, Weights},
    options::{Decryption, Direction, Packing},
};
use crate::ckks::{Ciphertext, CkksError};
use confide_lora::AdaptError;

impl CkksDeltas {
    /// Encrypts a vector, one ciphertext for each tile of its width.
    pub(super) fn encrypt_row(
        &mut self,
        weights: &Weights,
        row: &[f32],
    ) -> Result<Vec<Ciphertext>, AdaptError> {
        let tiles = weights.tiles.iter();
        tiles
            .map(|tile| self.encrypted_tile(tile, row).map_err(|error| activation_error(&error)))
            .collect()
    }

    fn encrypted_tile(&mut self, tile: &Tile, row: &[f32]) -> Result<Ciphertext, CkksError> {
        let (ckks, options) = (self.shared.ckks.clone(), &self.shared.options);
        let limbs = options.limbs(&ckks);
        let begin = Instant::now();
        let part = &row[tile.start..][..tile.width];
        let message = ckks.encode(&tile.lay_out(std::iter::repeat_n(part, tile.copies)))?;
        let begin = self.lap("encode_ms", begin);
        let key = &self.shared.key;
        let ciphertext = match self.memory.inputs.pop() {
            Some(mut used) => {
                key.encrypt_into(&message, &mut self.rng, &mut used)?;
                used
            }
            None => key.encrypt(&message, limbs, &mut self.rng)?,
        };
        self.report.he_operations += 1;
        self.lap("encrypt_ms", begin);
        self.cross_wire(ciphertext)
    }

    /// Computes scale·B·(A·x) for the vector whose tiles are given.
    pub(super) fn delta(
        &mut self,
        weights: &Weights,
        inputs: &[Ciphertext],
    ) -> Result<Vec<f64>, AdaptError> {
        let delta = match self.shared.options.packing {
            Packing::TwoProducts => self.twice(weights, inputs),
            Packing::Segments | Packing::Rotations => {
                self.dots(weights, inputs).map(|dots| self.b_times(weights, &dots))
            }
        };
        delta.map_err(|error| activation_error(&error))
    }

    /// Computes A·x by one product for each pack of rows.
    fn dots(&mut self, weights: &Weights, inputs: &[Ciphertext]) -> Result<Vec<f64>, CkksError> {
        let rotate = self.shared.options.packing == Packing::Rotations;
        let mut answers = Vec::new();
        for (tile, input) in weights.tiles.iter().zip(inputs) {
            for pack in &tile.packs {
                let mut product = self.product(input, pack)?;
                if rotate {
                    product = self.sum_segments(product, tile.segment)?;
                }
                answers.push(self.cross_wire(product)?);
            }
        }
        let all = self.decrypt_answers(&answers)?;
        self.memory.products = answers;
        let begin = Instant::now();
        let mut slots = all.iter();
        let mut dots = vec![0.0; weights.rank];
        for tile in &weights.tiles {
            // With rotations, the first slot of a segment already is the sum.
            let terms = if rotate { 1 } else { tile.width };
            for (dots, slots) in
                dots.chunks_mut(tile.copies).zip(slots.by_ref().take(tile.packs.len()))
            {
                for (dot, segment) in dots.iter_mut().zip(slots.chunks(tile.stride)) {
                    *dot += sum(&segment[..terms]);
                }
            }
        }
        self.lap("sum_ms", begin);
        Ok(dots)
    }

    /// Computes both products under encryption: for each row of A one product, its sum in every
    /// slot, and one product with a column of B.
    fn twice(&mut self, weights: &Weights, inputs: &[Ciphertext]) -> Result<Vec<f64>, CkksError> {
        let mut totals: Vec<Option<Ciphertext>> = vec![None; weights.b_columns.len()];
        for rank in 0..weights.rank {
            let mut term = None;
            for (tile, input) in weights.tiles.iter().zip(inputs) {
                let product = self.product(input, &tile.packs[rank])?;
                add(&mut term, product)?;
            }
            let Some(term) = term else { continue };
            let begin = Instant::now();
            let rescaled = term.rescale()?;
            self.lap("product_ms", begin);
            let inner = self.sum_segments(rescaled, self.shared.ckks.slots())?;
            for (total, columns) in totals.iter_mut().zip(&weights.b_columns) {
                let product = self.product(&inner, &columns[rank])?;
                add(total, product)?;
            }
        }
        let totals: Vec<_> = totals.into_iter().flatten().collect();
        let answers = totals
            .into_iter()
            .map(|total| self.cross_wire(total))
            .collect::<Result<Vec<_>, _>>()?;
        let all = self.decrypt_answers(&answers)?;
        Ok(all.into_iter().flatten().take(weights.width().output).collect())
    }

    fn b_times(&mut self, weights: &Weights, dots: &[f64]) -> Vec<f64> {
        let begin = Instant::now();
        let row = |row: &[f32]| {
            weights.scale * row.iter().zip(dots).map(|(b, u)| f64::from(*b) * u).sum::<f64>()
        };
        let delta = weights.b.values.chunks_exact(weights.b.columns).map(row).collect();
        self.lap("b_ms", begin);
        delta
    }

    fn product(
        &mut self,
        input: &Ciphertext,
        factor: &crate::ckks::Plaintext,
    ) -> Result<Ciphertext, CkksError> {
        let begin = Instant::now();
        let product = match self.memory.products.pop() {
            Some(mut used) if used.limbs() == input.limbs() => {
                input.product_into(factor, &mut used)?;
                used
            }
            _ => input.product(factor)?,
        };
        self.report.he_operations += 1;
        self.lap("product_ms", begin);
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
        self.lap("rotation_ms", begin);
        Ok(sum)
    }

    /// Encodes and decodes the ciphertext as on a wire, if a client encrypts; otherwise returns it
    /// as it is.
    fn cross_wire(&mut self, ciphertext: Ciphertext) -> Result<Ciphertext, CkksError> {
        if self.shared.options.direction == Direction::Server {
            return Ok(ciphertext);
        }
        let begin = Instant::now();
        let bytes = ciphertext.to_bytes(&self.shared.ckks);
        let read = Ciphertext::from_bytes(&self.shared.ckks, &bytes)?;
        self.report.online_bytes += bytes.len() as u64;
        self.lap("wire_ms", begin);
        Ok(read)
    }

    fn decrypt_answers(&mut self, answers: &[Ciphertext]) -> Result<Vec<Vec<f64>>, CkksError> {
        let shared = self.shared.clone();
        let at_once = match shared.options.decryption {
            Decryption::Batched => answers.len().max(1),
            Decryption::Sequential => 1,
        };
        let mut slots = Vec::with_capacity(answers.len());
        for answers in answers.chunks(at_once) {
            let begin = Instant::now();
            shared.key.decrypt_into(answers, &mut self.memory.decrypted)?;
            self.report.he_operations += answers.len() as u64;
            let begin = self.lap("decrypt_ms", begin);
            slots.extend(shared.ckks.decode_batch(&self.memory.decrypted)?);
            self.lap("decode_ms", begin);
        }
        Ok(slots)
    }

    fn lap(&mut self, step: &'static str, begin: Instant) -> Instant {
        let end = Instant::now();
        *self.report.steps_ms.entry(step).or_default() += (end - begin).as_secs_f64() * 1e3;
        end
    }
}

fn add(total: &mut Option<Ciphertext>, term: Ciphertext) -> Result<(), CkksError> {
    match total {
        Some(total) => total.add_assign(&term),
        None => {
            *total = Some(term);
            Ok(())
        }
    }
}

/// Sums in eight partial sums side by side, which the processor can compute at once.
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
