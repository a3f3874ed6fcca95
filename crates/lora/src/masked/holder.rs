//! The key holder's half of the masked scheme.

use std::fmt;

use confide_rlwe::{Encryptor, Rng, SecretKey, SeededCiphertext, SmallCiphertext};
use zeroize::{Zeroize, Zeroizing};

use super::error::{BLOCK, MaskedError, check_words, count_vectors};
use crate::{
    count::{CountError, check_count},
    int_matrix::low_mask,
    mask::{Epoch, MaskStream},
    meter::{Meter, Step},
    terms::Terms,
};

/// The number of tokens whose masks are made ahead of use: 200 KB at a width of 1,536. The masks of
/// the others are kept as a key.
const WINDOW: u32 = 16;

/// A batch whose masks are being encrypted.
pub struct MaskRequest<'k> {
    encryptor: Encryptor<'k>,
    batch: Batch,
    column: usize,
}

/// A batch whose masks are at the host.
pub struct PendingBatch {
    batch: Batch,
    row: usize,
    /// The decrypted answers, `[token][row]`.
    prepared: Zeroizing<Vec<u64>>,
}

/// The state of a batch after answers were accepted.
pub enum BatchState {
    /// Rows are missing: further answers must be accepted.
    Pending(PendingBatch),
    /// Every row is there: the batch masks and unmasks vectors.
    Ready(HolderBatch),
}

/// A batch at work: masks vectors and opens what the host answers, each counter once.
pub struct HolderBatch {
    batch: Batch,
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

struct Batch {
    epoch: Epoch,
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
        terms: &Terms,
        epoch: Epoch,
        index: u64,
        rng: &mut Rng,
    ) -> Result<Self, MaskedError> {
        let context = key.context();
        let bits = context.set().plaintext_bits();
        check_count("bits of a word", terms.bits as usize, bits as usize)?;
        let batch = Batch {
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

    /// The next ciphertexts, at most [`BLOCK`], in the order of the columns; empty after the last.
    ///
    /// # Errors
    /// None for a key and terms that [`MaskRequest::new`] took.
    pub fn next_block(&mut self, meter: &mut Meter) -> Result<Vec<SeededCiphertext>, MaskedError> {
        let count = BLOCK.min(self.batch.columns - self.column);
        if count == 0 {
            return Ok(Vec::new());
        }
        let Batch { masks, tokens, bits, .. } = &self.batch;
        let encryptor = &mut self.encryptor;
        let tile = self.column / BLOCK;
        let block = meter.time(Step::Encrypt, || {
            let columns = masks.columns(tile, 0..*tokens, *bits);
            let encrypted = columns[..count].iter().map(|column| encryptor.encrypt(column));
            encrypted.collect::<Result<Vec<_>, _>>()
        })?;
        meter.he_operations += count as u64;
        self.column += count;
        Ok(block)
    }

    /// Ends the request once all ciphertexts are sent.
    ///
    /// # Errors
    /// If some are not.
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
    /// If there are more answers than rows, none at all, or one without all N messages.
    pub fn accept(
        mut self,
        key: &SecretKey,
        answers: &[SmallCiphertext],
        meter: &mut Meter,
    ) -> Result<BatchState, MaskedError> {
        let left = self.batch.rows - self.row;
        if answers.is_empty() || answers.len() > left {
            let got = answers.len();
            return Err(CountError { what: "answered rows", wanted: left, got }.into());
        }
        for answer in answers {
            check_count("messages of a row", self.batch.tokens as usize, answer.len())?;
            let messages = Zeroizing::new(meter.time(Step::Decrypt, || key.decrypt(answer))?);
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
        ready.refill();
        Ok(BatchState::Ready(ready))
    }

    /// The number of rows whose answers are still to come.
    pub fn rows_left(&self) -> usize {
        self.batch.rows - self.row
    }
}

impl HolderBatch {
    /// The number of tokens that can still be masked.
    pub fn tokens_left(&self) -> usize {
        if self.dropped { 0 } else { (self.batch.tokens - self.next) as usize }
    }

    /// The epoch that the batch was prepared under; it is worthless under another one.
    pub fn epoch(&self) -> Epoch {
        self.batch.epoch
    }

    /// Makes the masks of the next tokens ahead of use. Call it while nothing waits; otherwise
    /// [`HolderBatch::mask`] makes them.
    pub fn refill(&mut self) {
        let have = self.window_first + self.window_tokens();
        let tokens = WINDOW.min(self.batch.tokens - self.next);
        if have >= self.batch.tokens.min(self.next + tokens.div_ceil(2)) {
            return;
        }
        self.fill(tokens);
    }

    /// Masks vectors of the quantised input, one after the other, under the next counters.
    ///
    /// # Errors
    /// If there is no vector, one is not whole, or the batch has not as many tokens left.
    pub fn mask(
        &mut self,
        values: &[i16],
        meter: &mut Meter,
    ) -> Result<MaskedVectors, MaskedError> {
        if self.dropped {
            return Err(MaskedError::Dropped);
        }
        let columns = self.batch.columns;
        let count = count_vectors(columns, values.len())?;
        if count > self.tokens_left() {
            return Err(MaskedError::Exhausted { wanted: count, left: self.tokens_left() });
        }
        let first = self.next;
        if first + count as u32 > self.window_first + self.window_tokens() {
            self.fill((count as u32).max(WINDOW).min(self.batch.tokens - first));
        }
        let at = (first - self.window_first) as usize * columns;
        let masks = &mut self.window[at..][..values.len()];
        let word = low_mask(self.batch.bits);
        let vectors = meter.time(Step::Mask, || {
            let pairs = values.iter().zip(masks.iter());
            pairs.map(|(x, r)| (i64::from(*x) as u64).wrapping_sub(*r) & word).collect()
        });
        masks.zeroize();
        self.next += count as u32;
        self.asked.push((first, count as u32));
        Ok(MaskedVectors { counter: self.counter(first), vectors })
    }

    /// `A · x mod 2^k` of the vectors that were masked under `counter` and the following ones, from
    /// the host's answers. An error drops the batch.
    ///
    /// # Errors
    /// If nothing was asked under this counter, or the answers are not as many words mod 2^k.
    pub fn unmask(
        &mut self,
        counter: u64,
        answers: &[u64],
        meter: &mut Meter,
    ) -> Result<Vec<u64>, MaskedError> {
        if self.dropped {
            return Err(MaskedError::Dropped);
        }
        let opened = self.open_answers(counter, answers, meter);
        if opened.is_err() {
            self.drop_all();
        }
        opened
    }

    /// Wipes masks and answers; nothing can be masked afterwards.
    pub(crate) fn drop_all(&mut self) {
        self.dropped = true;
        self.window.zeroize();
        self.prepared.zeroize();
        self.asked.clear();
    }

    fn open_answers(
        &mut self,
        counter: u64,
        answers: &[u64],
        meter: &mut Meter,
    ) -> Result<Vec<u64>, MaskedError> {
        let asked = self.asked.iter().position(|(first, _)| self.counter(*first) == counter);
        let at = asked.ok_or(MaskedError::NotAsked { counter })?;
        let (first, count) = self.asked.swap_remove(at);
        let Batch { rows, bits, .. } = self.batch;
        check_count("words of the answer", count as usize * rows, answers.len())?;
        check_words("answer", answers, bits)?;
        let prepared = &mut self.prepared[first as usize * rows..][..answers.len()];
        let products = meter.time(Step::Unmask, || {
            let pairs = answers.iter().zip(prepared.iter());
            pairs.map(|(z, u)| z.wrapping_add(*u) & low_mask(bits)).collect()
        });
        prepared.zeroize();
        Ok(products)
    }

    /// A window of `tokens` from the next one.
    fn fill(&mut self, tokens: u32) {
        let Batch { columns, bits, .. } = self.batch;
        self.window.zeroize();
        self.window.resize(tokens as usize * columns, 0);
        let range = self.next..self.next + tokens;
        self.batch.masks.rows(range, columns, bits, &mut self.window);
        self.window_first = self.next;
    }

    fn window_tokens(&self) -> u32 {
        (self.window.len() / self.batch.columns) as u32
    }

    fn counter(&self, token: u32) -> u64 {
        self.batch.index * u64::from(self.batch.tokens) + u64::from(token)
    }
}

impl fmt::Debug for Batch {
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
