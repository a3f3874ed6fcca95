//! The layout of rows, columns and copies in slots, and weights that are encoded in it.

use crate::ckks::{CkksContext, CkksError, Plaintext};

use super::{
    error::CkksAdapterError,
    options::{CkksAdapterOptions, Packing},
};
use confide_lora::{AdaptError, LayerInput, LoraPair, Matrix, ProjectionSite, ProjectionWidth};

/// A projection's weights, encoded for one packing.
pub(super) struct EncodedWeights {
    pub(super) tiles: Vec<ColumnTile>,
    pub(super) rank: usize,
    /// B in the clear, which [`Packing::TwoProducts`] does not use.
    pub(super) b: Matrix,
    pub(super) scale: f64,
    /// The columns of scale·B, for each tile of the output; only for [`Packing::TwoProducts`].
    pub(super) b_columns: Vec<Vec<Plaintext>>,
    width: ProjectionWidth,
    /// The greatest magnitude that an activation may have.
    pub(super) activation_max: f64,
}

/// The columns of A whose inputs share a ciphertext.
pub(super) struct ColumnTile {
    pub(super) start: usize,
    pub(super) width: usize,
    /// The number of slots from one copy to the next.
    pub(super) stride: usize,
    /// The number of copies of the vector, which is the number of rows of A in a plaintext.
    pub(super) copies: usize,
    /// The number of slots that rotations sum over; 1 if terms are summed after decryption.
    pub(super) segment: usize,
    pub(super) packs: Vec<Plaintext>,
}

impl EncodedWeights {
    pub(super) fn encode(
        ckks: &CkksContext,
        options: &CkksAdapterOptions,
        pair: &LoraPair,
    ) -> Result<EncodedWeights, CkksAdapterError> {
        let (rank, width) = (pair.rank(), pair.width());
        if rank == 0 || width.input == 0 || width.output == 0 {
            return Err(CkksAdapterError::Empty);
        }
        let limbs = options.limb_count(ckks);
        let starts = (0..width.input).step_by(ckks.slot_count());
        let tile = |start| ColumnTile::encode(ckks, options.packing, &pair.a, start, limbs);
        let tiles = starts.map(tile).collect::<Result<Vec<_>, CkksError>>()?;
        let b_columns = match options.packing {
            Packing::TwoProducts => encode_b_columns(ckks, pair, limbs - 1)?,
            Packing::Segments | Packing::Rotations => Vec::new(),
        };
        let activation_max = activation_max(ckks, options, pair);
        let (b, scale) = (pair.b.clone(), pair.scale);
        Ok(EncodedWeights { tiles, rank, b, scale, b_columns, width, activation_max })
    }

    pub(super) fn width(&self) -> ProjectionWidth {
        self.width
    }

    pub(super) fn plaintext_count(&self) -> usize {
        let of_a: usize = self.tiles.iter().map(|tile| tile.packs.len()).sum();
        of_a + self.b_columns.iter().map(Vec::len).sum::<usize>()
    }

    /// The number of slots that rotations sum over; 1 without rotations.
    pub(super) fn segment_slots(&self) -> usize {
        self.tiles.iter().map(|tile| tile.segment).max().unwrap_or(1)
    }

    /// Checks widths and magnitudes before anything is computed.
    pub(super) fn check_activations(
        &self,
        site: ProjectionSite,
        input: LayerInput,
        rows: &[f32],
        output: usize,
    ) -> Result<(), AdaptError> {
        let refuse = |reason: String| Err(AdaptError::Activation { reason });
        let reads = site.projection.input();
        if reads != input {
            return refuse(format!("{site} reads {reads:?}, not {input:?}"));
        }
        let (wanted, got) = (self.width.input, rows.len());
        if !got.is_multiple_of(wanted) {
            return refuse(format!("{site}: wanted vectors of {wanted}, got {got} elements"));
        }
        let wanted = got / wanted * self.width.output;
        if wanted != output {
            return refuse(format!("{site}: wanted room for {wanted} elements, got {output}"));
        }
        // The comparison is false for a value that is not a number.
        let within = |x: &f32| f64::from(x.abs()) <= self.activation_max;
        if !rows.iter().all(within) {
            let limit = self.activation_max;
            return refuse(format!("{site}: wanted finite magnitudes of at most {limit:e}"));
        }
        Ok(())
    }
}

impl ColumnTile {
    fn encode(
        ckks: &CkksContext,
        packing: Packing,
        a: &Matrix,
        start: usize,
        limbs: usize,
    ) -> Result<ColumnTile, CkksError> {
        let slots = ckks.slot_count();
        let width = (a.columns - start).min(slots);
        let power = width.next_power_of_two();
        let (stride, copies, segment) = match packing {
            Packing::Segments => (width, slots / width, 1),
            Packing::Rotations => (power, slots / power, power),
            Packing::TwoProducts => (slots, 1, slots),
        };
        let mut tile = ColumnTile { start, width, stride, copies, segment, packs: Vec::new() };
        let rows: Vec<&[f32]> = (0..a.rows).map(|row| &a.row(row)[start..][..width]).collect();
        for pack in rows.chunks(copies) {
            let message = ckks.encode(&tile.repeat_into_slots(pack.iter().copied()))?;
            tile.packs.push(ckks.to_plaintext(&message, limbs)?);
        }
        Ok(tile)
    }

    /// Lays out one vector for each copy, `stride` slots apart.
    pub(super) fn repeat_into_slots<'a>(
        &self,
        vectors: impl Iterator<Item = &'a [f32]>,
    ) -> Vec<f64> {
        let mut slots = vec![0.0; self.stride * (self.copies - 1) + self.width];
        for (part, vector) in slots.chunks_mut(self.stride).zip(vectors) {
            part.iter_mut().zip(vector).for_each(|(slot, x)| *slot = f64::from(*x));
        }
        slots
    }
}

fn encode_b_columns(
    ckks: &CkksContext,
    pair: &LoraPair,
    limbs: usize,
) -> Result<Vec<Vec<Plaintext>>, CkksError> {
    let (b, rank) = (&pair.b, pair.rank());
    let tile = |start: usize| {
        let rows = start..b.rows.min(start + ckks.slot_count());
        let column = |column: usize| {
            let value = |row: usize| pair.scale * f64::from(b.row(row)[column]);
            let message = ckks.encode(&rows.clone().map(value).collect::<Vec<_>>())?;
            ckks.to_plaintext(&message, limbs)
        };
        (0..rank).map(column).collect()
    };
    (0..b.rows).step_by(ckks.slot_count()).map(tile).collect()
}

/// The greatest magnitude of an activation. Decryption is correct for messages below half the
/// modulus, which at product scale 2^80 are values below 2^(log q − 81). One more bit is reserved for
/// noise and rounding.
fn activation_max(ckks: &CkksContext, options: &CkksAdapterOptions, pair: &LoraPair) -> f64 {
    let greatest = |matrix: &Matrix| matrix.values.iter().fold(0.0f32, |max, x| max.max(x.abs()));
    let (data, _) = ckks.primes();
    let bits = |limbs: usize| data[..limbs].iter().map(|&p| (p as f64).log2()).sum::<f64>();
    let limbs = options.limb_count(ckks);
    let scale_bits = 2.0 * ckks.parameters().scale().log2();
    let room = |limbs: usize| (bits(limbs) - scale_bits - 2.0).exp2();
    let a = f64::from(greatest(&pair.a)).max(f64::MIN_POSITIVE);
    let terms = pair.a.columns as f64;
    let rotated = room(limbs) / (a * terms);
    let limit = match options.packing {
        Packing::Segments => room(limbs) / a,
        Packing::Rotations => rotated,
        Packing::TwoProducts => {
            let b = (f64::from(greatest(&pair.b)) * pair.scale.abs()).max(f64::MIN_POSITIVE);
            rotated.min(room(limbs - 1) / (a * terms * b * pair.rank() as f64))
        }
    };
    // Above this magnitude a scaled coefficient does not fit an i64.
    limit.min(2f64.powi(20))
}
