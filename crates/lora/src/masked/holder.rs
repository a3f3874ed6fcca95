//! The key holder's half of the masked scheme.

use std::fmt;

use confide_rlwe::{Encryptor, Rng, SecretKey, SeededCiphertext, SmallCiphertext};
use zeroize::{Zeroize, Zeroizing};

use super::error::{BLOCK, MaskedError, check_words, count_vectors};
use crate::{
    count::{CountError, check_count},
    int_matrix::low_mask,
    mask::{HostEpoch, MaskStream},
    meter::{DeltaStep, StepMeter},
    terms::InputTerms,
};

/// The number of tokens whose masks are computed in advance: 200 KB at a width of 1,536. The other
/// masks are stored only as a key.
const WINDOW: u32 = 16;

/// A batch whose masks are being encrypted and sent.
pub struct MaskRequest<'k> {
    encryptor: Encryptor<'k>,
    batch: BatchMasks,
    column: usize,
}

/// A batch whose masks were sent to the host.
pub struct PendingBatch {
    batch: BatchMasks,
    row: usize,
    /// The decrypted answers, `[token][row]`.
    prepared: Zeroizing<Vec<u64>>,
}

/// The state of a batch after answers were accepted.
pub enum BatchState {
    /// Answers for further rows are missing.
    Pending(PendingBatch),
    /// All rows are answered: the batch can mask and unmask vectors.
    Ready(HolderBatch),
}

/// A prepared batch, which masks vectors and unmasks the host's answers. It uses each counter once.
pub struct HolderBatch {
    batch: BatchMasks,
    prepared: Zeroizing<Vec<u64>>,
    /// The masks of the tokens from `window_first`, one row for each.
    window: Zeroizing<Vec<u64>>,
    window_first: u32,
    next: u32,
    asked: Vec<(u32, u32)>,
    dropped: bool,
}

/// Masked vectors, to be sent to the host.
#[derive(Clone, PartialEq, Eq)]
pub struct MaskedVectors {
    /// The counter of the first vector; each further one has the next.
    pub counter: u64,
    /// The vectors one after the other, words mod 2^k.
    pub vectors: Vec<u64>,
}

struct BatchMasks {
    epoch: HostEpoch,
    index: u64,
    tokens: u32,
    columns: usize,
    rows: usize,
    bits: u32,
    masks: MaskStream,
}

impl<'k> MaskRequest<'k> {
    /// Draws the masks of batch `index` for one input, under the key holder's secret key. `epoch` is
    /// the host's.
    ///
    /// # Errors
    /// If key and terms are of different parameters.
    pub fn new(
        key: &'k SecretKey,
        terms: &InputTerms,
        epoch: HostEpoch,
        index: u64,
        rng: &mut Rng,
    ) -> Result<Self, MaskedError> {
        let context = key.context();
        let bits = context.parameter_set().plaintext_bits();
        check_count("bits of a word", terms.bits as usize, bits as usize)?;
        let batch = BatchMasks {
            epoch,
            index,
            tokens: context.n() as u32,
            columns: terms.columns,
            rows: terms.rows(),
            bits,
            masks: MaskStream::random(rng),
        };
        Ok(MaskRequest { encryptor: key.encryptor(rng.fork()), batch, column: 0 })
    }

    /// Encrypts the next ciphertexts, at most [`BLOCK`], in the order of the columns. The result is
    /// empty after the last.
    ///
    /// # Errors
    /// If encryption fails, which never happens for a key and terms that [`MaskRequest::new`] accepts.
    pub fn next_block(
        &mut self,
        meter: &mut StepMeter,
    ) -> Result<Vec<SeededCiphertext>, MaskedError> {
        let count = BLOCK.min(self.batch.columns - self.column);
        if count == 0 {
            return Ok(Vec::new());
        }
        let BatchMasks { masks, tokens, bits, .. } = &self.batch;
        let encryptor = &mut self.encryptor;
        let tile = self.column / BLOCK;
        let block = meter.time(DeltaStep::Encrypt, || {
            let columns = masks.column_masks(tile, 0..*tokens, *bits);
            let encrypted = columns[..count].iter().map(|column| encryptor.encrypt(column));
            encrypted.collect::<Result<Vec<_>, _>>()
        })?;
        meter.he_operations += count as u64;
        self.column += count;
        Ok(block)
    }

    /// Ends the request after all ciphertexts were sent.
    ///
    /// # Errors
    /// If some were not.
    pub fn finish(self) -> Result<PendingBatch, MaskedError> {
        check_count("columns sent", self.batch.columns, self.column)?;
        let words = self.batch.tokens as usize * self.batch.rows;
        Ok(PendingBatch { batch: self.batch, row: 0, prepared: Zeroizing::new(vec![0; words]) })
    }
}

impl PendingBatch {
    /// Decrypts the answers for the next rows. An error drops the batch.
    ///
    /// # Errors
    /// If there are more answers than rows or no answers, or if one does not have all N messages.
    pub fn accept_answers(
        mut self,
        key: &SecretKey,
        answers: &[SmallCiphertext],
        meter: &mut StepMeter,
    ) -> Result<BatchState, MaskedError> {
        let left = self.batch.rows - self.row;
        if answers.is_empty() || answers.len() > left {
            let got = answers.len();
            return Err(CountError { what: "answered rows", wanted: left, got }.into());
        }
        for answer in answers {
            check_count("messages of a row", self.batch.tokens as usize, answer.len())?;
            let messages = Zeroizing::new(meter.time(DeltaStep::Decrypt, || key.decrypt(answer))?);
            meter.he_operations += 1;
            let (rows, row) = (self.batch.rows, self.row);
            for (token, message) in self.prepared.chunks_exact_mut(rows).zip(messages.iter()) {
                token[row] = *message;
            }
            self.row += 1;
        }
        if self.row < self.batch.rows {
            return Ok(BatchState::Pending(self));
        }
        let mut ready = HolderBatch {
            batch: self.batch,
            prepared: self.prepared,
            window: Zeroizing::new(Vec::new()),
            window_first: 0,
            next: 0,
            asked: Vec::new(),
            dropped: false,
        };
        ready.precompute_masks();
        Ok(BatchState::Ready(ready))
    }

    /// The number of rows that are not answered yet.
    pub fn rows_left(&self) -> usize {
        self.batch.rows - self.row
    }
}

impl HolderBatch {
    /// The number of tokens that can still be masked.
    pub fn tokens_left(&self) -> usize {
        if self.dropped { 0 } else { (self.batch.tokens - self.next) as usize }
    }

    /// The epoch in which the batch was prepared; the batch is useless in another one.
    pub fn epoch(&self) -> HostEpoch {
        self.batch.epoch
    }

    /// Computes the masks of the next tokens in advance. Call it while nothing waits; otherwise
    /// [`HolderBatch::mask`] computes them.
    pub fn precompute_masks(&mut self) {
        let have = self.window_first + self.window_tokens();
        let tokens = WINDOW.min(self.batch.tokens - self.next);
        if have >= self.batch.tokens.min(self.next + tokens.div_ceil(2)) {
            return;
        }
        self.fill_mask_window(tokens);
    }

    /// Masks quantised vectors, which are given one after the other, with the next counters.
    ///
    /// # Errors
    /// If there is no vector, one is incomplete, or the batch has too few tokens left.
    pub fn mask(
        &mut self,
        values: &[i16],
        meter: &mut StepMeter,
    ) -> Result<MaskedVectors, MaskedError> {
        if self.dropped {
            return Err(MaskedError::BatchDropped);
        }
        let columns = self.batch.columns;
        let count = count_vectors(columns, values.len())?;
        if count > self.tokens_left() {
            return Err(MaskedError::Exhausted { wanted: count, left: self.tokens_left() });
        }
        let first = self.next;
        if first + count as u32 > self.window_first + self.window_tokens() {
            self.fill_mask_window((count as u32).max(WINDOW).min(self.batch.tokens - first));
        }
        let at = (first - self.window_first) as usize * columns;
        let masks = &mut self.window[at..][..values.len()];
        let word = low_mask(self.batch.bits);
        let vectors = meter.time(DeltaStep::Mask, || {
            let pairs = values.iter().zip(masks.iter());
            pairs.map(|(x, r)| (i64::from(*x) as u64).wrapping_sub(*r) & word).collect()
        });
        masks.zeroize();
        self.next += count as u32;
        self.asked.push((first, count as u32));
        Ok(MaskedVectors { counter: self.counter(first), vectors })
    }

    /// Computes `A · x mod 2^k` from the host's answers for the vectors that were masked with
    /// `counter` and the following counters. An error drops the batch.
    ///
    /// # Errors
    /// If no vectors were masked with this counter, or the answers are not the right number of words
    /// mod 2^k.
    pub fn unmask(
        &mut self,
        counter: u64,
        answers: &[u64],
        meter: &mut StepMeter,
    ) -> Result<Vec<u64>, MaskedError> {
        if self.dropped {
            return Err(MaskedError::BatchDropped);
        }
        let opened = self.unmask_answers(counter, answers, meter);
        if opened.is_err() {
            self.wipe();
        }
        opened
    }

    /// Wipes masks and answers. Afterwards the batch cannot mask vectors.
    pub(crate) fn wipe(&mut self) {
        self.dropped = true;
        self.window.zeroize();
        self.prepared.zeroize();
        self.asked.clear();
    }

    fn unmask_answers(
        &mut self,
        counter: u64,
        answers: &[u64],
        meter: &mut StepMeter,
    ) -> Result<Vec<u64>, MaskedError> {
        let asked = self.asked.iter().position(|(first, _)| self.counter(*first) == counter);
        let at = asked.ok_or(MaskedError::UnexpectedAnswer { counter })?;
        let (first, count) = self.asked.swap_remove(at);
        let BatchMasks { rows, bits, .. } = self.batch;
        check_count("words of the answer", count as usize * rows, answers.len())?;
        check_words("answer", answers, bits)?;
        let prepared = &mut self.prepared[first as usize * rows..][..answers.len()];
        let products = meter.time(DeltaStep::Unmask, || {
            let pairs = answers.iter().zip(prepared.iter());
            pairs.map(|(z, u)| z.wrapping_add(*u) & low_mask(bits)).collect()
        });
        prepared.zeroize();
        Ok(products)
    }

    /// Computes the masks of `tokens` tokens from the next one on.
    fn fill_mask_window(&mut self, tokens: u32) {
        let BatchMasks { columns, bits, .. } = self.batch;
        self.window.zeroize();
        self.window.resize(tokens as usize * columns, 0);
        let range = self.next..self.next + tokens;
        self.batch.masks.fill_row_masks(range, columns, bits, &mut self.window);
        self.window_first = self.next;
    }

    fn window_tokens(&self) -> u32 {
        (self.window.len() / self.batch.columns) as u32
    }

    fn counter(&self, token: u32) -> u64 {
        self.batch.index * u64::from(self.batch.tokens) + u64::from(token)
    }
}

impl fmt::Debug for BatchMasks {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "batch {} of {:?}, {} x {}", self.index, self.epoch, self.rows, self.columns)
    }
}

impl fmt::Debug for MaskRequest<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "MaskRequest({:?}, {} columns sent)", self.batch, self.column)
    }
}

impl fmt::Debug for PendingBatch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "PendingBatch({:?}, {} rows there)", self.batch, self.row)
    }
}

impl fmt::Debug for BatchState {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BatchState::Pending(awaiting) => awaiting.fmt(out),
            BatchState::Ready(batch) => batch.fmt(out),
        }
    }
}

impl fmt::Debug for HolderBatch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "HolderBatch({:?}, {} left)", self.batch, self.tokens_left())
    }
}

impl fmt::Debug for MaskedVectors {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "MaskedVectors(counter {}, {} words)", self.counter, self.vectors.len())
    }
}
