//! Messages of the other side of the blind protocol, down to the state machines of both schemes: the
//! first byte chooses the message, the rest is its payload.
#![no_main]

use std::sync::{Arc, LazyLock, Mutex};

use confide_lora::{
    CounterSlot, DigitScratch, InputTerms, IntMatrix, LayerInput, OutputTransform, ProcessKey,
    Projection, ProjectionTerms, QuantisedWeights, StepMeter, TileShape,
    direct::EncryptedProductHolder,
    masked::{
        ApplyJob, BatchState, CounterSequence, HolderBatch, HostWeights, MaskRequest, PendingBatch,
    },
    protocol::{CiphertextAnswer, MaskedAnswer, MaskedRequest, PreparedRows, packed_bytes, unpack},
};
use confide_rlwe::{Context, ParameterSet, PublicKey, Rng, SecretKey, SmallCiphertext};
use libfuzzer_sys::fuzz_target;

const COLUMNS: usize = 4;
const ROWS: usize = 2;
const BITS: u32 = 33;

struct World {
    context: Arc<Context>,
    key: SecretKey,
    public: PublicKey,
    process: ProcessKey,
    input: HostWeights,
    direct: EncryptedProductHolder,
    sequence: CounterSequence,
    rng: Rng,
    meter: StepMeter,
}

static WORLD: LazyLock<Mutex<World>> = LazyLock::new(|| Mutex::new(World::new()));

fuzz_target!(|data: &[u8]| {
    let Some((kind, payload)) = data.split_first() else { return };
    let Ok(mut world) = WORLD.lock() else { return };
    match kind % 4 {
        0 => world.host_applies(payload),
        1 => world.holder_unmasks(payload),
        2 => world.holder_accepts(payload),
        _ => world.holder_opens(payload),
    }
});

impl World {
    fn new() -> World {
        let set = ParameterSet::dangerous_from_name("toy-256-q100-flood40").expect("a set");
        let context = Context::new(&set).expect("a ring");
        let matrix =
            IntMatrix::new(ROWS, COLUMNS, &[1, -2, 3, 4095, 0, 7, -4095, 1]).expect("fits");
        let part = ProjectionTerms {
            projection: Projection::Query,
            rows: ROWS,
            effect: OutputTransform::Scale(1.0),
        };
        let terms = InputTerms {
            layer: 0,
            input: LayerInput::Attention,
            columns: COLUMNS,
            bits: BITS,
            norm_limit: 1 << 16,
            noise_sigma: 0.0,
            outputs_max: ROWS,
            parts: vec![part],
        };
        let tile = TileShape { inputs: 2, outputs: 1 };
        let mut rng = Rng::from_seed([1; 32]);
        let key = SecretKey::generate(&context, &mut rng);
        let process = ProcessKey::random(&mut rng);
        let direct = EncryptedProductHolder::new(&context, &terms, tile).expect("fits");
        let input = HostWeights::new(&context, &QuantisedWeights { matrix, terms }).expect("fits");
        let slot = CounterSlot {
            client: [0; 32],
            adapter: [0; 32],
            layer: 0,
            input: LayerInput::Attention,
        };
        let sequence = input.new_counter_sequence(&process, slot, &mut rng);
        let public = key.public_key(&mut rng);
        World {
            context,
            key,
            public,
            process,
            input,
            direct,
            sequence,
            rng,
            meter: StepMeter::default(),
        }
    }

    /// Prepares a batch at both ends; gives it with its first counter.
    fn batch(&mut self) -> (HolderBatch, u64) {
        let index = self.sequence.next_batch_index();
        let (terms, epoch) = (self.input.terms(), self.process.epoch());
        let mut requesting =
            MaskRequest::new(&self.key, terms, epoch, index, &mut self.rng).expect("fits");
        let preparing = self.input.start_batch(&self.process, &mut self.sequence, epoch, index);
        let block = requesting.next_block(&mut self.meter).expect("columns");
        let preparing = preparing.expect("next").push(&block, &mut self.meter).expect("columns");
        let mut answering = preparing.finish(&self.input, &mut self.meter).expect("complete");
        let mut answers = Vec::new();
        while let Some(answer) =
            answering.next_row(&self.public, &mut self.rng, &mut self.meter).expect("same ring")
        {
            answers.push(answer);
        }
        answering.commit(&mut self.sequence).expect("answered");
        let awaiting: PendingBatch = requesting.finish().expect("all sent");
        match awaiting.accept_answers(&self.key, &answers, &mut self.meter).expect("whole") {
            BatchState::Ready(batch) => (batch, index * self.context.n() as u64),
            BatchState::Pending(_) => unreachable!("all rows were answered"),
        }
    }

    fn host_applies(&mut self, payload: &[u8]) {
        let Ok(message) = MaskedRequest::decode(payload) else { return };
        let Some(vectors) = words(message.packed, message.vectors, COLUMNS) else { return };
        if self.sequence.live_batch_count() == 0 {
            self.batch();
        }
        for round in 0..2 {
            let job = ApplyJob {
                sequence: &mut self.sequence,
                epoch: self.process.epoch(),
                counter: message.counter,
                vectors: &vectors,
            };
            let scratch = &mut DigitScratch::default();
            let rng = &mut self.rng;
            let answer = self.input.apply(&mut [job], scratch, rng, &mut self.meter).remove(0);
            assert!(round == 0 || answer.is_err(), "a counter was answered twice");
            if let Ok(answer) = answer {
                assert_eq!(answer.len(), usize::from(message.vectors) * ROWS);
            }
        }
    }

    fn holder_unmasks(&mut self, payload: &[u8]) {
        let Ok(message) = MaskedAnswer::decode(payload) else { return };
        let Some(answers) = words(message.packed, message.vectors, ROWS) else { return };
        let (mut batch, counter) = self.batch();
        batch.mask(&[1; COLUMNS], &mut self.meter).expect("left");
        let opened = batch.unmask(counter, &answers, &mut self.meter);
        assert_eq!(opened.is_ok(), message.vectors == 1);
        assert!(batch.unmask(counter, &answers, &mut self.meter).is_err());
        self.sequence =
            self.input.new_counter_sequence(&self.process, *self.sequence.slot(), &mut self.rng);
    }

    fn holder_accepts(&mut self, payload: &[u8]) {
        let Ok(message) = PreparedRows::decode(payload) else { return };
        let Some(answers) = self.ciphertexts(message.ciphertexts, message.count.into()) else {
            return;
        };
        let (terms, epoch) = (self.input.terms(), self.process.epoch());
        let mut requesting =
            MaskRequest::new(&self.key, terms, epoch, 0, &mut self.rng).expect("fits");
        requesting.next_block(&mut self.meter).expect("columns");
        let awaiting = requesting.finish().expect("all sent");
        let accepted = awaiting.accept_answers(&self.key, &answers, &mut self.meter);
        assert!(accepted.is_err() || answers.len() <= ROWS);
    }

    fn holder_opens(&mut self, payload: &[u8]) {
        let Ok(message) = CiphertextAnswer::decode(payload) else { return };
        let Some(answers) = self.ciphertexts(message.ciphertexts, ROWS) else { return };
        if let Ok(products) = self.direct.decrypt_answers(&self.key, &answers, &mut self.meter) {
            assert_eq!(products.len(), ROWS);
        }
    }

    fn ciphertexts(&self, bytes: &[u8], count: usize) -> Option<Vec<SmallCiphertext>> {
        if count == 0 || bytes.is_empty() || !bytes.len().is_multiple_of(count) {
            return None;
        }
        let parts = bytes.chunks_exact(bytes.len() / count);
        parts.map(|part| SmallCiphertext::from_bytes(&self.context, part).ok()).collect()
    }
}

/// The words of `vectors`, each packed by itself as the protocol packs it; `None` at another length.
fn words(packed: &[u8], vectors: u16, width: usize) -> Option<Vec<u64>> {
    let each = packed_bytes(width, BITS);
    if packed.len() != each * usize::from(vectors) {
        return None;
    }
    let parts = packed.chunks_exact(each).map(|part| unpack(part, BITS, width));
    parts.collect::<Option<Vec<_>>>().map(|vectors| vectors.concat())
}
