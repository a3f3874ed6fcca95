//! The masked scheme computes exact products, and uses each counter once.

use std::sync::Arc;

use confide_rlwe::{Context, ParameterSet, PublicKey, RlweError, Rng, SecretKey};

use super::*;
use crate::{
    count::CountError,
    int_matrix::{DigitScratch, IntMatrix, low_mask},
    mask::{CounterSlot, ProcessKey},
    meter::{DeltaStep, StepMeter},
    quantise::norm_limit,
    site::{LayerInput, Projection},
    terms::{InputTerms, OutputTransform, ProjectionTerms, QuantisedWeights},
};

/// Both ends in one process, on the toy ring of 256 tokens.
struct LoraPair {
    key: SecretKey,
    public: PublicKey,
    process: ProcessKey,
    input: HostWeights,
    weights: QuantisedWeights,
    rng: Rng,
    meter: StepMeter,
}

const SLOT: CounterSlot =
    CounterSlot { client: [1; 32], adapter: [2; 32], layer: 0, input: LayerInput::Attention };

fn pair(rows: usize, columns: usize, noise_sigma: f64, entry: impl Fn(usize) -> i16) -> LoraPair {
    let set = ParameterSet::dangerous_from_name("toy-256-q100-flood40").expect("a set");
    let context = Context::new(&set).expect("a set");
    let entries: Vec<i16> = (0..rows * columns).map(entry).collect();
    let matrix = IntMatrix::new(rows, columns, &entries).expect("fits");
    let part = ProjectionTerms {
        projection: Projection::Query,
        rows,
        effect: OutputTransform::Scale(1.0),
    };
    let terms = InputTerms {
        layer: 0,
        input: LayerInput::Attention,
        columns,
        bits: 33,
        norm_limit: norm_limit(&matrix, 33, 0),
        noise_sigma,
        outputs_max: 1,
        parts: vec![part],
    };
    let weights = QuantisedWeights { matrix, terms };
    let input = HostWeights::new(&context, &weights).expect("fits");
    let mut rng = Rng::from_seed([23; 32]);
    let key = SecretKey::generate(&context, &mut rng);
    let public = key.public_key(&mut rng);
    let process = ProcessKey::random(&mut rng);
    LoraPair { key, public, process, input, weights, rng, meter: StepMeter::default() }
}

impl LoraPair {
    fn sequence(&mut self) -> CounterSequence {
        self.input.new_counter_sequence(&self.process, SLOT, &mut self.rng)
    }

    fn prepare(&mut self, sequence: &mut CounterSequence) -> HolderBatch {
        let (epoch, index) = (self.process.epoch(), sequence.next_batch_index());
        let terms = self.input.terms();
        let mut requesting =
            MaskRequest::new(&self.key, terms, epoch, index, &mut self.rng).expect("fits");
        let mut preparing =
            self.input.start_batch(&self.process, sequence, epoch, index).expect("next");
        loop {
            let block = requesting.next_block(&mut self.meter).expect("has columns");
            if block.is_empty() {
                break;
            }
            preparing = preparing.push(&block, &mut self.meter).expect("in order");
        }
        let mut awaiting = requesting.finish().expect("all sent");
        let mut answering = preparing.finish(&self.input, &mut self.meter).expect("all there");
        loop {
            let (public, rng) = (&self.public, &mut self.rng);
            let answer = answering.next_row(public, rng, &mut self.meter).expect("same ring");
            let answer = answer.expect("a row is left");
            match awaiting.accept_answers(&self.key, &[answer], &mut self.meter).expect("in order")
            {
                BatchState::Pending(more) => awaiting = more,
                BatchState::Ready(batch) => {
                    answering.commit(sequence).expect("all answered");
                    return batch;
                }
            }
        }
    }

    fn apply(
        &mut self,
        sequence: &mut CounterSequence,
        masked: &MaskedVectors,
    ) -> Result<Vec<u64>, MaskedError> {
        let (epoch, counter) = (self.process.epoch(), masked.counter);
        let job = ApplyJob { sequence, epoch, counter, vectors: &masked.vectors };
        let (rng, meter) = (&mut self.rng, &mut self.meter);
        self.input.apply(&mut [job], &mut DigitScratch::default(), rng, meter).remove(0)
    }

    fn exact(&self, x: &[i16]) -> Vec<u64> {
        let vectors = x.chunks_exact(self.weights.matrix.columns());
        let product = |row: usize, x: &[i16]| {
            let terms = self.weights.matrix.row(row).zip(x);
            terms.map(|(a, x)| i64::from(a) * i64::from(*x)).sum::<i64>() as u64 & low_mask(33)
        };
        let rows = 0..self.weights.matrix.rows();
        vectors.flat_map(|x| rows.clone().map(move |row| product(row, x))).collect()
    }
}

fn random_entry(at: usize) -> i16 {
    ((at * 7919 + 5) % 8191) as i16 - 4095
}

#[test]
fn the_masked_product_is_the_exact_one_extremes_included() {
    type Entry = dyn Fn(usize) -> i16;
    let cases: [(usize, usize, &Entry); 5] = [
        (1, 1, &random_entry),
        (3, 33, &random_entry),
        (33, 64, &random_entry),
        (2, 100, &|_| 4095),
        (2, 100, &|at| if at % 2 == 0 { 4095 } else { -4095 }),
    ];
    for (rows, columns, entry) in cases {
        let mut pair = pair(rows, columns, 0.0, entry);
        let mut sequence = pair.sequence();
        let mut batch = pair.prepare(&mut sequence);
        let vectors: [Vec<i16>; 4] = [
            vec![0; columns],
            vec![i16::MAX; columns],
            (0..columns).map(|at| if at % 2 == 0 { i16::MAX } else { -i16::MAX }).collect(),
            (0..3 * columns).map(|at| (at * 997 % 65_535) as i32 as i16).collect(),
        ];
        for x in vectors {
            let masked = batch.mask(&x, &mut pair.meter).expect("tokens left");
            let answer = pair.apply(&mut sequence, &masked).expect("fresh counters");
            let got = batch.unmask(masked.counter, &answer, &mut pair.meter).expect("asked");
            assert_eq!(got, pair.exact(&x), "{rows} x {columns}");
        }
    }
}

#[test]
fn a_batch_serves_every_token_once_and_the_next_one_goes_on() {
    let mut pair = pair(2, 5, 0.0, random_entry);
    let mut sequence = pair.sequence();
    for round in 0..2u64 {
        let mut batch = pair.prepare(&mut sequence);
        assert_eq!(sequence.live_batch_count(), 1);
        for token in 0..256 {
            assert_eq!(batch.tokens_left(), 256 - token as usize);
            let x = [token as i16 - 128, 1, 2, 3, 30_000];
            let masked = batch.mask(&x, &mut pair.meter).expect("tokens left");
            assert_eq!(masked.counter, round * 256 + token);
            let answer = pair.apply(&mut sequence, &masked).expect("fresh");
            let got = batch.unmask(masked.counter, &answer, &mut pair.meter).expect("asked");
            assert_eq!(got, pair.exact(&x));
            if token % 3 == 0 {
                batch.precompute_masks();
            }
        }
        let refused = batch.mask(&[0; 5], &mut pair.meter);
        assert_eq!(refused, Err(MaskedError::Exhausted { wanted: 1, left: 0 }));
        assert_eq!(sequence.live_batch_count(), 0);
    }
}

#[test]
fn vectors_of_several_clients_share_one_product() {
    let mut pair = pair(4, 40, 0.0, random_entry);
    let mut sequences = [pair.sequence(), pair.sequence(), pair.sequence()];
    let mut batches: Vec<HolderBatch> =
        sequences.iter_mut().map(|sequence| pair.prepare(sequence)).collect();
    let x: Vec<Vec<i16>> =
        (1..4usize).map(|n| (0..40 * n).map(|at| (at * n * 31) as i16).collect()).collect();
    let masked: Vec<MaskedVectors> = batches
        .iter_mut()
        .zip(&x)
        .map(|(batch, x)| batch.mask(x, &mut pair.meter).expect("left"))
        .collect();
    let epoch = pair.process.epoch();
    let mut jobs: Vec<ApplyJob<'_>> = sequences
        .iter_mut()
        .zip(&masked)
        .map(|(sequence, masked)| ApplyJob {
            sequence,
            epoch,
            counter: masked.counter,
            vectors: &masked.vectors,
        })
        .collect();
    // The middle job uses a counter that was not prepared; the others are answered.
    jobs[1].counter = 999;
    let mut scratch = DigitScratch::default();
    let answers = pair.input.apply(&mut jobs, &mut scratch, &mut pair.rng, &mut pair.meter);
    assert_eq!(answers[1], Err(MaskedError::CounterUnknown { counter: 999 }));
    for at in [0, 2] {
        let answer = answers[at].as_ref().expect("fresh");
        let counter = masked[at].counter;
        let got = batches[at].unmask(counter, answer, &mut pair.meter).expect("asked");
        assert_eq!(got, pair.exact(&x[at]));
    }
}

#[test]
fn noise_is_on_the_answer_and_nowhere_else() {
    let mut pair = pair(3, 20, 50.0, random_entry);
    let mut sequence = pair.sequence();
    let mut batch = pair.prepare(&mut sequence);
    let x = vec![1000i16; 20];
    let exact = pair.exact(&x);
    let mut all = Vec::new();
    for _ in 0..200 {
        let masked = batch.mask(&x, &mut pair.meter).expect("left");
        let answer = pair.apply(&mut sequence, &masked).expect("fresh");
        let got = batch.unmask(masked.counter, &answer, &mut pair.meter).expect("asked");
        let noise = |(got, exact): (&u64, &u64)| {
            crate::terms::sign_extend(got.wrapping_sub(*exact) & low_mask(33), 33) as f64
        };
        all.extend(got.iter().zip(&exact).map(noise));
    }
    let deviation = (all.iter().map(|n| n * n).sum::<f64>() / all.len() as f64).sqrt();
    assert!((deviation - 50.0).abs() < 8.0, "{deviation}");
}

#[test]
fn steps_and_operations_come_from_what_ran() {
    let mut pair = pair(3, 40, 0.0, random_entry);
    let mut sequence = pair.sequence();
    let mut batch = pair.prepare(&mut sequence);
    // 40 encryptions, 40 products, 3 fresh masks, 3 decryptions.
    assert_eq!(pair.meter.he_operations, 86);
    let masked = batch.mask(&[1; 40], &mut pair.meter).expect("left");
    let answer = pair.apply(&mut sequence, &masked).expect("fresh");
    batch.unmask(masked.counter, &answer, &mut pair.meter).expect("asked");
    let mut report = crate::DeltaReport::default();
    pair.meter.write_to_report(&mut report);
    let ran: Vec<&str> = report.steps_ms.keys().copied().collect();
    assert_eq!(ran, ["decrypt_ms", "encrypt_ms", "mask_ms", "product_ms", "unmask_ms"]);
    let mut other = StepMeter::default();
    other.time(DeltaStep::B, || ());
    other.merge(&pair.meter);
    assert_eq!(other.he_operations, 86);
}

#[test]
fn steps_out_of_order_are_refused() {
    let mut pair = pair(2, 40, 0.0, random_entry);
    let mut sequence = pair.sequence();
    let epoch = pair.process.epoch();
    let terms = pair.input.terms().clone();
    let mut requesting =
        MaskRequest::new(&pair.key, &terms, epoch, 0, &mut pair.rng).expect("fits");
    let block = requesting.next_block(&mut pair.meter).expect("columns");
    assert_eq!(block.len(), BLOCK);
    let refused = requesting.finish().err();
    let sent = CountError { what: "columns sent", wanted: 40, got: 32 };
    assert_eq!(refused, Some(MaskedError::Count(sent)));
    let preparing = pair.input.start_batch(&pair.process, &mut sequence, epoch, 0).expect("next");
    let preparing = preparing.push(&block, &mut pair.meter).expect("in order");
    assert!(preparing.finish(&pair.input, &mut pair.meter).is_err());
    // The index is used up although the preparation failed.
    let again = pair.input.start_batch(&pair.process, &mut sequence, epoch, 0);
    assert_eq!(again.err(), Some(MaskedError::BatchOrder { wanted: 1, got: 0 }));
    let preparing = pair.input.start_batch(&pair.process, &mut sequence, epoch, 1).expect("next");
    let more: Vec<_> = block.iter().chain(&block).cloned().collect();
    assert!(matches!(preparing.push(&more, &mut pair.meter), Err(MaskedError::Ring(_))));
    let other = InputTerms { bits: 32, ..terms };
    let refused = MaskRequest::new(&pair.key, &other, epoch, 0, &mut pair.rng);
    assert!(matches!(refused.err(), Some(MaskedError::Count { .. })));
}

#[test]
fn sets_and_matrices_without_protection_are_refused() {
    let pair = pair(2, 8, 0.0, random_entry);
    let set = ParameterSet::dangerous_from_name("rlwe-2048-q50").expect("a set");
    let context: Arc<Context> = Context::new(&set).expect("a set");
    let refused = HostWeights::new(&context, &pair.weights);
    assert!(matches!(refused, Err(MaskedError::Ring(RlweError::NotFlooded { .. }))));
    let tall = IntMatrix::new(ROWS_MAX + 1, 1, &vec![1; ROWS_MAX + 1]).expect("fits");
    let weights = QuantisedWeights { matrix: tall, terms: pair.weights.terms.clone() };
    let refused = HostWeights::new(pair.key.context(), &weights);
    assert!(matches!(refused, Err(MaskedError::TooManyRows { .. })));
}
