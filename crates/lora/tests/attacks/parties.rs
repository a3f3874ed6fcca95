//! Both parties in one process, with access to everything that an attacker may see.

use std::sync::Arc;

use confide_lora::{
    CounterSlot, DigitScratch, HostEpoch, InputTerms, IntMatrix, LayerInput, OutputTransform,
    ProcessKey, Projection, ProjectionTerms, QuantisedWeights, StepMeter, direct,
    masked::{
        ApplyJob, BatchState, CounterSequence, HolderBatch, HostWeights, MaskRequest, MaskedError,
        PendingBatch,
    },
    norm_limit,
};
use confide_rlwe::{
    Context, ParameterSet, PublicKey, Rng, SecretKey, SeededCiphertext, SmallCiphertext,
};

/// The number of bits of a word of the masked scheme.
pub(crate) const BITS: u32 = 33;
/// A mask of the bits of a word.
pub(crate) const WORD: u64 = (1 << BITS) - 1;
/// The number of tokens of a batch of the toy ring.
pub(crate) const TOKENS: usize = 256;

pub(crate) struct Parties {
    pub(crate) context: Arc<Context>,
    pub(crate) key: SecretKey,
    pub(crate) public: PublicKey,
    pub(crate) process: ProcessKey,
    pub(crate) input: HostWeights,
    pub(crate) matrix: IntMatrix,
    pub(crate) terms: InputTerms,
    pub(crate) rng: Rng,
    pub(crate) meter: StepMeter,
}

/// The toy ring: it has no security against lattice attacks, but the protocol is the real one.
pub(crate) fn toy_parameters() -> ParameterSet {
    ParameterSet::dangerous_from_name("toy-256-q100-flood40").expect("a set")
}

pub(crate) fn slot() -> CounterSlot {
    CounterSlot { client: [1; 32], adapter: [2; 32], layer: 0, input: LayerInput::Attention }
}

/// Draws a random matrix that the attacks try to learn.
pub(crate) fn secret_matrix(rows: usize, columns: usize, entry_max: i64) -> IntMatrix {
    let mut rng = Rng::from_seed([99; 32]);
    let entry = |rng: &mut Rng| rng.next_below(2 * entry_max as u64 + 1) as i64 - entry_max;
    let entries: Vec<i16> = (0..rows * columns).map(|_| entry(&mut rng) as i16).collect();
    IntMatrix::new(rows, columns, &entries).expect("fits")
}

pub(crate) fn weights(matrix: &IntMatrix, set: &ParameterSet) -> QuantisedWeights {
    let (rows, bits) = (matrix.rows(), set.plaintext_bits());
    let part = ProjectionTerms {
        projection: Projection::Query,
        rows,
        effect: OutputTransform::Scale(1.0),
    };
    let terms = InputTerms {
        layer: 0,
        input: LayerInput::Attention,
        columns: matrix.columns(),
        bits,
        norm_limit: norm_limit(matrix, bits, 0),
        noise_sigma: 0.0,
        outputs_max: direct::tile_outputs_max(matrix, set),
        parts: vec![part],
    };
    QuantisedWeights { matrix: matrix.clone(), terms }
}

impl Parties {
    pub(crate) fn new(rows: usize, columns: usize) -> Parties {
        Parties::with_noise(rows, columns, 0.0)
    }

    /// Makes the parties with noise of this standard deviation on every answer.
    pub(crate) fn with_noise(rows: usize, columns: usize, noise_sigma: f64) -> Parties {
        let context = Context::new(&toy_parameters()).expect("a set");
        let matrix = secret_matrix(rows, columns, 4095);
        let mut weights = weights(&matrix, &toy_parameters());
        weights.terms.noise_sigma = noise_sigma;
        let mut rng = Rng::from_seed([5; 32]);
        let key = SecretKey::generate(&context, &mut rng);
        Parties {
            public: key.public_key(&mut rng),
            process: ProcessKey::random(&mut rng),
            input: HostWeights::new(&context, &weights).expect("fits"),
            terms: weights.terms,
            meter: StepMeter::default(),
            context,
            key,
            matrix,
            rng,
        }
    }

    pub(crate) fn sequence(&mut self) -> CounterSequence {
        self.input.new_counter_sequence(&self.process, slot(), &mut self.rng)
    }

    pub(crate) fn epoch(&self) -> HostEpoch {
        self.process.epoch()
    }

    /// Runs the key holder's half up to the sending of its ciphertexts.
    pub(crate) fn request(&mut self, index: u64) -> (Vec<SeededCiphertext>, PendingBatch) {
        let epoch = self.epoch();
        let mut requesting =
            MaskRequest::new(&self.key, &self.terms, epoch, index, &mut self.rng).expect("fits");
        let mut sent = Vec::new();
        loop {
            let block = requesting.next_block(&mut self.meter).expect("columns");
            if block.is_empty() {
                return (sent, requesting.finish().expect("all sent"));
            }
            sent.extend(block);
        }
    }

    /// The host's answers to ciphertexts that the key holder chose.
    pub(crate) fn answers(
        &mut self,
        sequence: &mut CounterSequence,
        request: &[SeededCiphertext],
    ) -> Vec<SmallCiphertext> {
        let (epoch, index) = (self.epoch(), sequence.next_batch_index());
        let preparing =
            self.input.start_batch(&self.process, sequence, epoch, index).expect("next");
        let preparing = preparing.push(request, &mut self.meter).expect("in order");
        let mut answering = preparing.finish(&self.input, &mut self.meter).expect("complete");
        let mut answers = Vec::new();
        while let Some(answer) =
            answering.next_row(&self.public, &mut self.rng, &mut self.meter).expect("same ring")
        {
            answers.push(answer);
        }
        answering.commit(sequence).expect("all answered");
        answers
    }

    /// Prepares a batch between honest ends.
    pub(crate) fn batch(&mut self, sequence: &mut CounterSequence) -> HolderBatch {
        let (request, awaiting) = self.request(sequence.next_batch_index());
        let answers = self.answers(sequence, &request);
        match awaiting.accept_answers(&self.key, &answers, &mut self.meter).expect("in order") {
            BatchState::Ready(batch) => batch,
            BatchState::Pending(_) => panic!("all rows were answered"),
        }
    }

    pub(crate) fn apply(
        &mut self,
        sequence: &mut CounterSequence,
        epoch: HostEpoch,
        counter: u64,
        vectors: &[u64],
    ) -> Result<Vec<u64>, MaskedError> {
        let job = ApplyJob { sequence, epoch, counter, vectors };
        let scratch = &mut DigitScratch::default();
        self.input.apply(&mut [job], scratch, &mut self.rng, &mut self.meter).remove(0)
    }

    /// `A · x mod 2^k`.
    pub(crate) fn product(&self, vector: &[u64]) -> Vec<u64> {
        let mut product = vec![0; self.matrix.rows()];
        self.matrix.multiply_vectors(&[vector], BITS, &mut DigitScratch::default(), &mut product);
        product
    }

    /// Draws uniform words.
    pub(crate) fn words(&mut self, count: usize) -> Vec<u64> {
        let mut words = vec![0; count];
        self.rng.fill_bits(BITS, &mut words);
        words
    }

    /// The entries of a row as residues mod 2^k.
    pub(crate) fn row(&self, row: usize) -> Vec<u64> {
        self.matrix.row(row).map(|entry| i64::from(entry) as u64 & WORD).collect()
    }
}
