//! The layout of report 003 on our own CKKS, with each of its factors as a switch.

use std::sync::Arc;

use confide_rlwe::{
    Rng,
    ckks::{Ciphertext, Ckks, CkksError, Decrypted, GaloisKey, Parameters, Plaintext, SecretKey},
};

use super::{problem::Problem, spans::Spans, step::Step};
use crate::Outcome;

/// What differs from the seed's best layout, one factor at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::Args)]
pub(crate) struct Factors {
    /// Each product is decrypted and decoded before the next.
    #[arg(long)]
    one_by_one: bool,
    /// Segments are summed under encryption, by rotations.
    #[arg(long, conflicts_with = "one_by_one")]
    rotations: bool,
    /// The result is encrypted again and multiplied with B as well.
    #[arg(long, conflicts_with_all = ["one_by_one", "rotations"])]
    two_products: bool,
}

/// Key, vector and weights in one process.
pub(crate) struct Slots {
    ckks: Arc<Ckks>,
    key: SecretKey,
    rng: Rng,
    factors: Factors,
    a: Packed,
    b: Option<Packed>,
    /// Rotations by powers of two below the length of a segment.
    rotations: Vec<GaloisKey>,
    delta: Option<Vec<f32>>,
}

/// A matrix in plaintexts: as many rows side by side as copies of a vector fit.
struct Packed {
    rows: usize,
    /// Slots of a row; a vector's copies stand as far apart.
    segment: usize,
    copies: usize,
    weights: Vec<Plaintext>,
}

impl Slots {
    pub(crate) fn new(problem: &Problem, n: usize, factors: Factors) -> Outcome<Self> {
        let text = |error: CkksError| error.to_string();
        let name = format!("ckks-{n}-tensafe");
        let ckks = Ckks::new(&Parameters::named(&name).map_err(text)?).map_err(text)?;
        let mut rng = Rng::from_os().map_err(|error| error.to_string())?;
        let key = SecretKey::generate(&ckks, &mut rng);
        let width = problem.shape.width;
        let segment = if factors.rotations { width.next_power_of_two() } else { width };
        let a = Packed::new(&ckks, &problem.a, segment).map_err(text)?;
        let b = factors.two_products.then(|| Packed::new(&ckks, &problem.b, problem.shape.rank));
        let mut rotations = Vec::new();
        if factors.rotations {
            for power in 0..segment.ilog2() {
                rotations.push(key.galois_key(1 << power, &mut rng).map_err(text)?);
            }
        }
        let b = b.transpose().map_err(text)?;
        Ok(Self { ckks, key, rng, factors, a, b, rotations, delta: None })
    }

    fn times(
        &mut self,
        which: fn(&Self) -> Option<&Packed>,
        input: &[f32],
        spans: &mut Spans,
    ) -> Result<Vec<f32>, CkksError> {
        let Some(packed) = which(self) else { return Ok(Vec::new()) };
        let limbs = self.ckks.limbs_max();
        let message = self.ckks.encode(&packed.slots_of(input))?;
        spans.lap("encode_ms");
        let encrypted = self.key.encrypt(&message, limbs, &mut self.rng)?;
        spans.lap("encrypt_ms");
        let Some(packed) = which(self) else { return Ok(Vec::new()) };
        if self.factors.one_by_one {
            return self.one_by_one(packed, &encrypted, spans);
        }
        let mut products = Vec::with_capacity(packed.weights.len());
        for weights in &packed.weights {
            products.push(encrypted.product(weights)?);
        }
        spans.lap("product_ms");
        for product in &mut products {
            for key in &self.rotations {
                let turned = product.rotate(&self.ckks, key)?;
                product.add_assign(&turned)?;
            }
        }
        if !self.rotations.is_empty() {
            spans.lap("rotation_ms");
        }
        let decrypted = self.key.decrypt_batch(&products)?;
        spans.lap("decrypt_ms");
        let slots = self.ckks.decode_batch(&decrypted)?;
        spans.lap("decode_ms");
        let summed = !self.rotations.is_empty();
        let sums = slots.iter().flat_map(|slots| packed.sums(slots, summed));
        let low = sums.take(packed.rows).collect();
        spans.lap("sum_ms");
        Ok(low)
    }

    fn one_by_one(
        &self,
        packed: &Packed,
        encrypted: &Ciphertext,
        spans: &mut Spans,
    ) -> Result<Vec<f32>, CkksError> {
        let mut low = Vec::with_capacity(packed.rows + packed.copies);
        for weights in &packed.weights {
            let product = encrypted.product(weights)?;
            spans.lap("product_ms");
            let decrypted: Decrypted = self.key.decrypt(&product)?;
            spans.lap("decrypt_ms");
            let slots = self.ckks.decode(&decrypted)?;
            spans.lap("decode_ms");
            low.extend(packed.sums(&slots, false));
            spans.lap("sum_ms");
        }
        low.truncate(packed.rows);
        Ok(low)
    }
}

impl Step for Slots {
    fn name(&self) -> String {
        format!("{}, {:?}", self.ckks.parameters(), self.factors)
    }

    /// Key, activations and adapter are in one process, whatever is encrypted in it.
    fn guarantee(&self) -> String {
        confide_lora::Guarantee::NONE.to_string()
    }

    fn note(&self) -> Option<String> {
        Some("weights encoded before; everything in one process".into())
    }

    fn a_times(&mut self, input: &[f32], spans: &mut Spans) -> Outcome<Vec<f32>> {
        let text = |error: CkksError| error.to_string();
        let low = self.times(|this| Some(&this.a), input, spans).map_err(text)?;
        if self.b.is_some() {
            let delta = self.times(|this| this.b.as_ref(), &low, spans).map_err(text)?;
            self.delta = Some(delta);
        }
        Ok(low)
    }

    fn own_delta(&self) -> Option<&[f32]> {
        self.delta.as_deref()
    }

    fn error_max(&self) -> f64 {
        1e-6
    }
}

impl Packed {
    fn new(ckks: &Ckks, matrix: &confide_lora::Matrix, segment: usize) -> Result<Self, CkksError> {
        let copies = ckks.slots() / segment;
        let mut weights = Vec::new();
        for first in (0..matrix.rows).step_by(copies) {
            let mut slots = vec![0.0; copies * segment];
            for (row, room) in (first..matrix.rows).zip(slots.chunks_exact_mut(segment)) {
                let values = matrix.row(row).iter().copied().map(f64::from);
                room.iter_mut().zip(values).for_each(|(slot, value)| *slot = value);
            }
            weights.push(ckks.plaintext(&ckks.encode(&slots)?, ckks.limbs_max())?);
        }
        Ok(Self { rows: matrix.rows, segment, copies, weights })
    }

    /// The vector, copied beside itself.
    fn slots_of(&self, input: &[f32]) -> Vec<f64> {
        let mut slots = vec![0.0; self.copies * self.segment];
        for room in slots.chunks_exact_mut(self.segment) {
            room.iter_mut().zip(input).for_each(|(slot, value)| *slot = f64::from(*value));
        }
        slots
    }

    /// The sum of each segment; its first slot where it is there already.
    fn sums(&self, slots: &[f64], summed: bool) -> Vec<f32> {
        let segments = slots.chunks_exact(self.segment).take(self.copies);
        let sum = |segment: &[f64]| match summed {
            true => segment[0] as f32,
            false => segment.iter().sum::<f64>() as f32,
        };
        segments.map(sum).collect()
    }
}
