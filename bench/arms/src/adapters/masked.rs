//! The masked scheme, both roles in this process: one batch prepared, vectors answered from it.

use std::{sync::Arc, time::Instant};

use confide_arm_line::Outcome;
use confide_lora::{
    CounterSlot, DeltaReport, DeltaStep as Lap, DigitScratch, Guarantee, LayerInput, ProcessKey,
    Projection, ProtectedMatrices, QuantisedWeights, StepMeter,
    masked::{ApplyJob, BLOCK, BatchState, CounterSequence, HolderBatch, HostWeights, MaskRequest},
    quantise_vector,
};
use confide_rlwe::{
    Context, ParameterSet, PublicKey, Rng, SecretKey, SeededCiphertext, SmallCiphertext,
};

use super::{
    problem::RandomProjection,
    spans::DurationsMs,
    step::{ProjectionStep, lora_pair},
};

/// The set of both schemes.
pub(crate) const SET: &str = "rlwe-4096-q100-flood40";

/// Bytes of a vector on the wire, whose words have so many bits each.
fn packed_bytes(words: usize, bits: u32) -> usize {
    (words * bits as usize).div_ceil(8)
}

/// Key holder and host of one projection.
pub(crate) struct MaskedScheme {
    key: SecretKey,
    public: PublicKey,
    rng: Rng,
    process: ProcessKey,
    input: HostWeights,
    sequence: CounterSequence,
    batch: Option<HolderBatch>,
    scratch: DigitScratch,
    meter: StepMeter,
    context: Arc<Context>,
}

/// Time in ms and traffic in bytes of one batch, by side.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BatchCost {
    pub(crate) holder_ms: f64,
    pub(crate) host_ms: f64,
    pub(crate) up_bytes: usize,
    pub(crate) down_bytes: usize,
}

impl MaskedScheme {
    pub(crate) fn new(problem: &RandomProjection) -> Outcome<Self> {
        let set = ParameterSet::from_name(SET)?;
        let context = Context::new(&set)?;
        let pair = lora_pair(problem);
        let pairs = [(Projection::Query, &pair)];
        let weights = QuantisedWeights::new(0, &pairs, ProtectedMatrices::A, &set)?;
        let input = HostWeights::new(&context, &weights)?;
        let mut rng = Rng::from_os()?;
        let process = ProcessKey::random(&mut rng);
        let slot = CounterSlot {
            client: [1; 32],
            adapter: [2; 32],
            layer: 0,
            input: LayerInput::Attention,
        };
        let sequence = input.new_counter_sequence(&process, slot, &mut rng);
        let key = SecretKey::generate(&context, &mut rng);
        let public = key.public_key(&mut rng);
        let (scratch, meter) = (DigitScratch::default(), StepMeter::default());
        let batch = None;
        Ok(Self { key, public, rng, process, input, sequence, batch, scratch, meter, context })
    }

    /// Tokens of a batch.
    pub(crate) fn batch_tokens(&self) -> usize {
        self.context.n()
    }

    /// Makes the next batch; what was left of the one before is thrown away.
    pub(crate) fn prepare_batch(&mut self) -> Outcome<BatchCost> {
        let mut cost = BatchCost::default();
        let mut meter = StepMeter::default();
        let (epoch, index) = (self.process.epoch(), self.sequence.next_batch_index());
        let mut began = Instant::now();
        let mut side = |ms: &mut f64, now: Instant| {
            *ms += (now - began).as_secs_f64() * 1e3;
            began = now;
        };
        let terms = self.input.terms();
        let mut requesting = MaskRequest::new(&self.key, terms, epoch, index, &mut self.rng)?;
        side(&mut cost.holder_ms, Instant::now());
        let mut preparing =
            self.input.start_batch(&self.process, &mut self.sequence, epoch, index)?;
        side(&mut cost.host_ms, Instant::now());
        loop {
            let block = requesting.next_block(&mut meter)?;
            side(&mut cost.holder_ms, Instant::now());
            if block.is_empty() {
                break;
            }
            cost.up_bytes += block.len() * SeededCiphertext::wire_bytes(&self.context);
            preparing = preparing.push(&block, &mut meter)?;
            side(&mut cost.host_ms, Instant::now());
        }
        let mut awaiting = requesting.finish()?;
        side(&mut cost.holder_ms, Instant::now());
        let mut answering = preparing.finish(&self.input, &mut meter)?;
        let batch = loop {
            let mut rows = Vec::with_capacity(BLOCK);
            while rows.len() < BLOCK
                && let Some(row) = answering.next_row(&self.public, &mut self.rng, &mut meter)?
            {
                rows.push(row);
            }
            side(&mut cost.host_ms, Instant::now());
            let row_bytes = SmallCiphertext::wire_bytes(&self.context, self.context.n());
            cost.down_bytes += rows.len() * row_bytes;
            match awaiting.accept_answers(&self.key, &rows, &mut meter)? {
                BatchState::Pending(more) => awaiting = more,
                BatchState::Ready(batch) => break batch,
            }
            side(&mut cost.holder_ms, Instant::now());
        };
        side(&mut cost.holder_ms, Instant::now());
        answering.commit(&mut self.sequence)?;
        side(&mut cost.host_ms, Instant::now());
        self.batch = Some(batch);
        Ok(cost)
    }

    /// Masks of the next tokens, made while nothing waits.
    pub(crate) fn refill_masks(&mut self) {
        self.batch.iter_mut().for_each(HolderBatch::precompute_masks);
    }

    /// Adds the delta of one vector.
    pub(crate) fn add_prepared_delta(&mut self, input: &[f32], delta: &mut [f32]) -> Outcome {
        if self.batch.as_ref().is_none_or(|batch| batch.tokens_left() == 0) {
            return Err("the batch is used up".into());
        }
        let Self { batch: Some(batch), meter, input: host, .. } = self else {
            return Err("no batch was prepared".into());
        };
        let terms = host.terms();
        let x = meter.time(Lap::Quantise, || quantise_vector(input, terms.norm_limit));
        let x = x?;
        let masked = batch.mask(&x.values, meter)?;
        let job = ApplyJob {
            sequence: &mut self.sequence,
            epoch: self.process.epoch(),
            counter: masked.counter,
            vectors: &masked.vectors,
        };
        let mut answers = host.apply(&mut [job], &mut self.scratch, &mut self.rng, meter);
        let answer = answers.pop().ok_or("no answer")??;
        let products = batch.unmask(masked.counter, &answer, meter)?;
        meter.time(Lap::B, || terms.add_deltas(Projection::Query, &products, &[x.scale], delta));
        Ok(())
    }
}

impl ProjectionStep for MaskedScheme {
    /// The guarantee of two processes; here both are one.
    fn guarantee(&self) -> String {
        combined_guarantee(Guarantee {
            host_is_blind: true,
            adapter_stays: true,
            b_is_handed_over: true,
            // Nobody's attestation was accepted.
            adapter_can_be_learned: true,
            simulated: false,
        })
    }

    fn prepare_step(&mut self) -> Outcome {
        if self.batch.as_ref().is_none_or(|batch| batch.tokens_left() == 0) {
            self.prepare_batch()?;
        }
        self.refill_masks();
        Ok(())
    }

    fn add_delta(&mut self, input: &[f32], delta: &mut [f32]) -> Outcome {
        self.add_prepared_delta(input, delta)
    }

    fn durations_ms(&self) -> DurationsMs {
        meter_durations_ms(&self.meter)
    }

    fn error_max(&self) -> f64 {
        2e-3
    }

    fn wire_bytes(&self) -> Vec<(&'static str, usize)> {
        let terms = self.input.terms();
        vec![
            ("up_bytes", packed_bytes(terms.columns, terms.bits)),
            ("down_bytes", packed_bytes(terms.rows(), terms.bits)),
        ]
    }
}

/// The steps that a meter timed, in ms by name.
pub(crate) fn meter_durations_ms(meter: &StepMeter) -> DurationsMs {
    let mut report = DeltaReport::default();
    meter.write_to_report(&mut report);
    report.steps_ms
}

/// The guarantee of two processes, said of one that holds both roles.
pub(crate) fn combined_guarantee(guarantee: Guarantee) -> String {
    format!("none: both roles in one process (in separate processes: {guarantee})")
}
