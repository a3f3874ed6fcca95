//! The host's half of the masked scheme.

use std::{collections::BTreeMap, fmt, sync::Arc, vec};

use confide_rlwe::{
    Ciphertext, Context, PublicKey, Rng, ScalarMatrix, ScalarProducts, SeededCiphertext,
    SmallCiphertext,
};
use zeroize::Zeroizing;

use super::{
    error::{BLOCK, MaskedError, ROWS_MAX, check_words, count_vectors},
    noise,
};
use crate::{
    count::{CountError, check_count},
    int_matrix::{DigitScratch, IntMatrix, low_mask},
    mask::{CounterSlot, HostEpoch, MaskStream, ProcessKey},
    meter::{DeltaStep, StepMeter},
    terms::{InputTerms, QuantisedWeights},
};

/// The greatest number of prepared batches of one sequence with counters left. Each takes a key and a
/// bit for each token.
const LIVE_MAX: usize = 64;

/// The projections that read one input, in the form that the host computes with. All clients share
/// it.
pub struct HostWeights {
    context: Arc<Context>,
    matrix: IntMatrix,
    scalars: ScalarMatrix,
    terms: InputTerms,
}

/// The counters of one client for one input. Batches are prepared in order and only once, and each
/// counter is answered once.
pub struct CounterSequence {
    slot: CounterSlot,
    epoch: HostEpoch,
    /// A nonce that is drawn for each sequence, so that a new sequence of the same slot has other
    /// masks.
    nonce: [u8; 16],
    tokens: u32,
    next_batch: u64,
    live: BTreeMap<u64, HostBatch>,
}

/// A batch whose ciphertexts are arriving.
pub struct HostPreparation {
    products: ScalarProducts<'static>,
    batch: HostBatch,
}

/// A batch whose answers are being computed.
pub struct HostAnswers {
    context: Arc<Context>,
    sums: vec::IntoIter<Ciphertext>,
    row: usize,
    /// The negated masks of the answers for the rows of one block.
    negated: Vec<Zeroizing<Vec<u64>>>,
    batch: HostBatch,
}

/// Vectors of one client, which are multiplied together with those of other clients.
pub struct ApplyJob<'a> {
    /// The counters of the client.
    pub sequence: &'a mut CounterSequence,
    /// The epoch in which the client prepared the batch.
    pub epoch: HostEpoch,
    /// The counter of the first vector; each further one has the next.
    pub counter: u64,
    /// The vectors one after the other, words mod 2^k.
    pub vectors: &'a [u64],
}

struct HostBatch {
    index: u64,
    masks: MaskStream,
    used: Vec<u64>,
    left: u32,
}

impl HostWeights {
    /// Prepares the products of one input under a parameter set that floods.
    ///
    /// # Errors
    /// If the set does not flood, its words are not those of the terms, a row exceeds its noise
    /// budget, or there are more than [`ROWS_MAX`] rows.
    pub fn new(context: &Arc<Context>, weights: &QuantisedWeights) -> Result<Self, MaskedError> {
        let set = context.parameter_set();
        if set.flood_bits() == 0 {
            return Err(confide_rlwe::RlweError::NotFlooded { name: set.name() }.into());
        }
        check_count("bits of a word", set.plaintext_bits() as usize, weights.terms.bits as usize)?;
        let (rows, columns) = (weights.matrix.rows(), weights.matrix.columns());
        if rows > ROWS_MAX {
            return Err(MaskedError::TooManyRows { limit: ROWS_MAX, got: rows });
        }
        let entries: Vec<i16> = (0..rows).flat_map(|row| weights.matrix.row(row)).collect();
        Ok(HostWeights {
            context: context.clone(),
            matrix: weights.matrix.clone(),
            scalars: ScalarMatrix::new(context, rows, columns, &entries)?,
            terms: weights.terms.clone(),
        })
    }

    /// The terms that a key holder receives.
    pub fn terms(&self) -> &InputTerms {
        &self.terms
    }

    /// Starts the counters of a client. A sequence that is lost, for example with its connection, is
    /// never continued; a new one has other masks.
    pub fn new_counter_sequence(
        &self,
        key: &ProcessKey,
        slot: CounterSlot,
        rng: &mut Rng,
    ) -> CounterSequence {
        let mut nonce = [0; 16];
        rng.fill_bytes(&mut nonce);
        let tokens = self.context.n() as u32;
        let live = BTreeMap::new();
        CounterSequence { slot, epoch: key.epoch(), nonce, tokens, next_batch: 0, live }
    }

    /// Starts batch `index` of a sequence. The index is used up even if the preparation fails later.
    ///
    /// # Errors
    /// If it is not the next index, if the epoch differs, or if too many batches are unused.
    pub fn start_batch(
        &self,
        key: &ProcessKey,
        sequence: &mut CounterSequence,
        epoch: HostEpoch,
        index: u64,
    ) -> Result<HostPreparation, MaskedError> {
        sequence.check_epoch(epoch)?;
        sequence.check_epoch(key.epoch())?;
        if index != sequence.next_batch {
            return Err(MaskedError::BatchOrder { wanted: sequence.next_batch, got: index });
        }
        if sequence.live.len() >= LIVE_MAX {
            let got = sequence.live.len() + 1;
            return Err(CountError { what: "unused batches", wanted: LIVE_MAX, got }.into());
        }
        sequence.next_batch += 1;
        let batch = HostBatch {
            index,
            masks: key.answer_masks(&sequence.slot, &sequence.nonce, index),
            used: vec![0; (sequence.tokens as usize).div_ceil(64)],
            left: sequence.tokens,
        };
        let products = ScalarProducts::new(&self.context, self.scalars.clone());
        Ok(HostPreparation { products, batch })
    }

    /// Answers the vectors of several clients and reads the matrix once for all of them. Returns one
    /// result for each job, with `rows` words for each vector. A refused job loses the batch of its
    /// counter and does not affect the others.
    ///
    /// # Errors
    /// The result of a job is a [`MaskedError`] if that job cannot be answered.
    pub fn apply(
        &self,
        jobs: &mut [ApplyJob<'_>],
        scratch: &mut DigitScratch,
        rng: &mut Rng,
        meter: &mut StepMeter,
    ) -> Vec<Result<Vec<u64>, MaskedError>> {
        let (rows, columns) = (self.matrix.rows(), self.matrix.columns());
        let granted: Vec<Result<Vec<u64>, MaskedError>> =
            jobs.iter_mut().map(|job| self.use_counters(job)).collect();
        let answered = jobs.iter().zip(&granted).filter(|(_, masks)| masks.is_ok());
        let vectors: Vec<&[u64]> =
            answered.flat_map(|(job, _)| job.vectors.chunks_exact(columns)).collect();
        let mut products = vec![0; rows * vectors.len()];
        meter.time(DeltaStep::Product, || {
            self.matrix.multiply_vectors(&vectors, self.terms.bits, scratch, &mut products);
        });
        let word = low_mask(self.terms.bits);
        let mut rest = &products[..];
        let finish = |masks: Result<Vec<u64>, MaskedError>| {
            let mut words = masks?;
            let (own, others) = rest.split_at(words.len());
            rest = others;
            for (word_, product) in words.iter_mut().zip(own) {
                *word_ = word_.wrapping_add(*product) & word;
            }
            noise::add_noise(&mut words, self.terms.noise_sigma, word, rng);
            Ok(words)
        };
        granted.into_iter().map(finish).collect()
    }

    /// Checks the vectors of a job, and returns their number.
    fn check_vectors(&self, vectors: &[u64]) -> Result<usize, MaskedError> {
        let count = count_vectors(self.matrix.columns(), vectors.len())?;
        check_words("vector", vectors, self.terms.bits)?;
        Ok(count)
    }

    /// Marks the counters of a job as used and returns the masks of its answers.
    fn use_counters(&self, job: &mut ApplyJob<'_>) -> Result<Vec<u64>, MaskedError> {
        let sequence = &mut *job.sequence;
        sequence.check_epoch(job.epoch)?;
        match self.check_vectors(job.vectors) {
            Ok(count) => {
                sequence.take_masks(job.counter, count, self.matrix.rows(), self.terms.bits)
            }
            Err(refused) => {
                sequence.drop_batch(job.counter);
                Err(refused)
            }
        }
    }
}

impl CounterSequence {
    /// The number of prepared batches with tokens left.
    pub fn live_batch_count(&self) -> usize {
        self.live.len()
    }

    /// The index of the next batch to prepare.
    pub fn next_batch_index(&self) -> u64 {
        self.next_batch
    }

    /// The owner of these counters.
    pub fn slot(&self) -> &CounterSlot {
        &self.slot
    }

    fn check_epoch(&self, got: HostEpoch) -> Result<(), MaskedError> {
        if self.epoch == got {
            Ok(())
        } else {
            Err(MaskedError::OtherEpoch { wanted: self.epoch, got })
        }
    }

    /// Marks `count` counters of one batch as used and returns the masks of their answers. A refusal
    /// drops the batch.
    fn take_masks(
        &mut self,
        counter: u64,
        count: usize,
        rows: usize,
        bits: u32,
    ) -> Result<Vec<u64>, MaskedError> {
        let tokens = u64::from(self.tokens);
        let index = counter / tokens;
        let first = (counter % tokens) as usize;
        let batch = self.live.get_mut(&index).ok_or(MaskedError::CounterUnknown { counter })?;
        if let Err(token) = batch.mark_used(first, count, self.tokens as usize) {
            self.live.remove(&index);
            let counter = index * tokens + token as u64;
            return Err(match token < self.tokens as usize {
                true => MaskedError::CounterUsed { counter },
                false => MaskedError::CounterUnknown { counter },
            });
        }
        let words = batch.answer_masks(first, count, rows, bits);
        if batch.left == 0 {
            self.live.remove(&index);
        }
        Ok(words)
    }

    fn drop_batch(&mut self, counter: u64) {
        self.live.remove(&(counter / u64::from(self.tokens)));
    }
}

impl HostPreparation {
    /// Adds the ciphertexts of the next columns. An error drops the batch.
    ///
    /// # Errors
    /// If there are too many, or one is of another ring.
    pub fn push(
        mut self,
        ciphertexts: &[SeededCiphertext],
        meter: &mut StepMeter,
    ) -> Result<Self, MaskedError> {
        for ciphertext in ciphertexts {
            meter.time(DeltaStep::Product, || self.products.push(ciphertext))?;
            meter.he_operations += 1;
        }
        Ok(self)
    }

    /// Ends the request after all columns have arrived, and returns the answers, row after row.
    ///
    /// # Errors
    /// If columns are missing.
    pub fn finish(
        self,
        input: &HostWeights,
        meter: &mut StepMeter,
    ) -> Result<HostAnswers, MaskedError> {
        let sums = meter.time(DeltaStep::Product, || self.products.finish())?;
        Ok(HostAnswers {
            context: input.context.clone(),
            sums: sums.into_iter(),
            row: 0,
            negated: Vec::new(),
            batch: self.batch,
        })
    }
}

impl HostAnswers {
    /// Computes the answer for the next row: `Enc(A·r − s)` under the key holder's public key,
    /// re-randomised and flooded. `None` after the last row.
    ///
    /// # Errors
    /// If the public key is of another ring.
    pub fn next_row(
        &mut self,
        key: &PublicKey,
        rng: &mut Rng,
        meter: &mut StepMeter,
    ) -> Result<Option<SmallCiphertext>, MaskedError> {
        let Some(mut sum) = self.sums.next() else { return Ok(None) };
        let at = self.row % BLOCK;
        if at == 0 {
            self.negated = self.negated_masks();
        }
        self.row += 1;
        let negated = &self.negated[at];
        let context = &self.context;
        let answer = meter.time(DeltaStep::Encrypt, || {
            sum.add_assign(&key.encrypt(context, negated, rng)?);
            Ok::<_, MaskedError>(sum.switch_down())
        })?;
        meter.he_operations += 1;
        Ok(Some(answer))
    }

    /// Makes the batch usable after all answers were computed.
    ///
    /// # Errors
    /// If some rows were not answered.
    pub fn commit(self, sequence: &mut CounterSequence) -> Result<(), MaskedError> {
        check_count("rows answered", self.row + self.sums.len(), self.row)?;
        sequence.live.insert(self.batch.index, self.batch);
        Ok(())
    }

    fn negated_masks(&self) -> Vec<Zeroizing<Vec<u64>>> {
        let bits = self.context.parameter_set().plaintext_bits();
        let tokens = 0..self.context.n() as u32;
        let mut masks = self.batch.masks.column_masks(self.row / BLOCK, tokens, bits);
        for word in masks.iter_mut().flat_map(|column| column.iter_mut()) {
            *word = word.wrapping_neg() & low_mask(bits);
        }
        masks
    }
}

impl HostBatch {
    /// Marks all of the tokens as used, or none if one cannot be used. The error is the first such
    /// token.
    fn mark_used(&mut self, first: usize, count: usize, tokens: usize) -> Result<(), usize> {
        let is_used =
            |token: &usize| *token >= tokens || self.used[token / 64] >> (token % 64) & 1 == 1;
        if let Some(token) = (first..first + count).find(is_used) {
            return Err(token);
        }
        (first..first + count).for_each(|token| self.used[token / 64] |= 1 << (token % 64));
        self.left -= count as u32;
        Ok(())
    }

    fn answer_masks(&self, first: usize, count: usize, rows: usize, bits: u32) -> Vec<u64> {
        let mut words = vec![0; count * rows];
        self.masks.fill_row_masks(first as u32..(first + count) as u32, rows, bits, &mut words);
        words
    }
}

impl fmt::Debug for HostWeights {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "HostWeights({:?}, {:?})", self.matrix, self.terms.input)
    }
}

impl fmt::Debug for CounterSequence {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let batches: Vec<&u64> = self.live.keys().collect();
        write!(out, "CounterSequence({:?}, batches {batches:?})", self.epoch)
    }
}

impl fmt::Debug for HostPreparation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "HostPreparation(batch {})", self.batch.index)
    }
}

impl fmt::Debug for HostAnswers {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "HostAnswers(batch {}, {} rows left)", self.batch.index, self.sums.len())
    }
}

impl fmt::Debug for ApplyJob<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "ApplyJob(counter {})", self.counter)
    }
}
