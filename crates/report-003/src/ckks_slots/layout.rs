//! The layout of rows, columns and copies in slots, and the weights in that layout.

use crate::ckks::{Ckks, CkksError, Plaintext};

use super::{
    error::CkksSlotsError,
    options::{Options, Packing},
};
use confide_lora::{AdaptError, Input, Matrix, Pair, Site, Width};

/// A projection's weights, encoded for one packing.
pub(super) struct Weights {
    pub(super) tiles: Vec<Tile>,
    pub(super) rank: usize,
    /// B in the clear; with two products only its height and scale are used.
    pub(super) b: Matrix,
    pub(super) scale: f64,
    /// With two products: the columns of scale·B, for each tile of the output.
    pub(super) b_columns: Vec<Vec<Plaintext>>,
    width: Width,
    /// The greatest magnitude that an activation may have.
    pub(super) input_max: f64,
}

/// A group of columns of A that stand in one ciphertext together.
pub(super) struct Tile {
    pub(super) start: usize,
    pub(super) width: usize,
    /// The number of slots from one copy to the next.
    pub(super) stride: usize,
    /// The number of copies of the vector, which is the number of rows of A in a plaintext.
    pub(super) copies: usize,
    /// The number of slots that rotations sum over; 1 where terms are summed after decryption.
    pub(super) segment: usize,
    pub(super) packs: Vec<Plaintext>,
}

impl Weights {
    pub(super) fn encode(
        ckks: &Ckks,
        options: &Options,
        pair: &Pair,
    ) -> Result<Weights, CkksSlotsError> {
        let (rank, width) = (pair.rank(), pair.width());
        if rank == 0 || width.input == 0 || width.output == 0 {
            return Err(CkksSlotsError::Empty);
        }
        let limbs = options.limbs(ckks);
        let starts = (0..width.input).step_by(ckks.slots());
        let tile = |start| Tile::encode(ckks, options.packing, &pair.a, start, limbs);
        let tiles = starts.map(tile).collect::<Result<Vec<_>, CkksError>>()?;
        let b_columns = match options.packing {
            Packing::TwoProducts => b_columns(ckks, pair, limbs - 1)?,
            Packing::Segments | Packing::Rotations => Vec::new(),
        };
        let input_max = input_max(ckks, options, pair);
        let (b, scale) = (pair.b.clone(), pair.scale);
        Ok(Weights { tiles, rank, b, scale, b_columns, width, input_max })
    }

    pub(super) fn width(&self) -> Width {
        self.width
    }

    pub(super) fn plaintexts(&self) -> usize {
        let of_a: usize = self.tiles.iter().map(|tile| tile.packs.len()).sum();
        of_a + self.b_columns.iter().map(Vec::len).sum::<usize>()
    }

    /// The number of slots that rotations sum over; 1 without rotations.
    pub(super) fn segment(&self) -> usize {
        self.tiles.iter().map(|tile| tile.segment).max().unwrap_or(1)
    }

    /// Checks the widths before anything is computed.
    pub(super) fn check(
        &self,
        site: Site,
        input: Input,
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
        let within = |x: &f32| f64::from(x.abs()) <= self.input_max;
        if !rows.iter().all(within) {
            let limit = self.input_max;
            return refuse(format!("{site}: wanted finite magnitudes of at most {limit:e}"));
        }
        Ok(())
    }
}

impl Tile {
    fn encode(
        ckks: &Ckks,
        packing: Packing,
        a: &Matrix,
        start: usize,
        limbs: usize,
    ) -> Result<Tile, CkksError> {
        let slots = ckks.slots();
        let width = (a.columns - start).min(slots);
        let power = width.next_power_of_two();
        let (stride, copies, segment) = match packing {
            Packing::Segments => (width, slots / width, 1),
            Packing::Rotations => (power, slots / power, power),
            Packing::TwoProducts => (slots, 1, slots),
        };
        let mut tile = Tile { start, width, stride, copies, segment, packs: Vec::new() };
        let rows: Vec<&[f32]> = (0..a.rows).map(|row| &a.row(row)[start..][..width]).collect();
        for pack in rows.chunks(copies) {
            let message = ckks.encode(&tile.lay_out(pack.iter().copied()))?;
            tile.packs.push(ckks.plaintext(&message, limbs)?);
        }
        Ok(tile)
    }

    /// Lays out one vector for each copy.
    pub(super) fn lay_out<'a>(&self, vectors: impl Iterator<Item = &'a [f32]>) -> Vec<f64> {
        let mut slots = vec![0.0; self.stride * (self.copies - 1) + self.width];
        for (part, vector) in slots.chunks_mut(self.stride).zip(vectors) {
            part.iter_mut().zip(vector).for_each(|(slot, x)| *slot = f64::from(*x));
        }
        slots
    }
}

fn b_columns(ckks: &Ckks, pair: &Pair, limbs: usize) -> Result<Vec<Vec<Plaintext>>, CkksError> {
    let (b, rank) = (&pair.b, pair.rank());
    let tile = |start: usize| {
        let rows = start..b.rows.min(start + ckks.slots());
        let column = |column: usize| {
            let value = |row: usize| pair.scale * f64::from(b.row(row)[column]);
            let message = ckks.encode(&rows.clone().map(value).collect::<Vec<_>>())?;
            ckks.plaintext(&message, limbs)
        };
        (0..rank).map(column).collect()
    };
    (0..b.rows).step_by(ckks.slots()).map(tile).collect()
}

/// The greatest magnitude of an activation: messages are right below half the modulus, which with
/// product scale 2^80 are values below 2^(log q − 81). One bit of room is left for noise and
/// rounding.
fn input_max(ckks: &Ckks, options: &Options, pair: &Pair) -> f64 {
    let greatest = |matrix: &Matrix| matrix.values.iter().fold(0.0f32, |max, x| max.max(x.abs()));
    let (data, _) = ckks.primes();
    let bits = |limbs: usize| data[..limbs].iter().map(|&p| (p as f64).log2()).sum::<f64>();
    let limbs = options.limbs(ckks);
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
    // Beyond this magnitude a scaled coefficient is not an i64.
    limit.min(2f64.powi(20))
}
