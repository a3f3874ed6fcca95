//! The masked scheme: encryption in advance, integers online.
//!
//! A *batch* is N tokens, where N is the degree of the ring. In advance, the key holder draws a mask
//! `r` for each token and column and sends `Enc(r_j)` for every column `j`, with token `n` in
//! coefficient `n`. The host answers every row with `Enc(Σ_j A_ij·r_j − s_i)`, flooded and
//! re-randomised under the key holder's public key; it derives `s` from the key of its process. Online,
//! for token `n`, the key holder sends `y = x − r mod 2^k` and the host answers `z = A·y + s mod 2^k`.
//! The key holder adds the decrypted answer of the batch, which results in `A·x mod 2^k`.
//!
//! The words that the host sees are uniform, whatever `x` is. The key holder learns only `A·x`: without
//! `s`, the N answers of a batch would be N equations about A before any token.
//!
//! ```text
//! key holder: MaskRequest -> PendingBatch -> HolderBatch: mask, unmask, one counter after the other
//! host:       CounterSequence -> HostPreparation -> HostAnswers -> CounterSequence: apply
//! ```
//!
//! Tokens have *counters*: the `n`th token of batch `b` has `b·N + n`. Each end uses a counter once.
//! All state is in memory and cannot be saved: a restarted process has another epoch, other keys, and
//! starts with counter 0.

mod error;
mod holder;
mod host;
mod noise;

pub use error::{BLOCK, MaskedError, ROWS_MAX};
pub use holder::{BatchState, HolderBatch, MaskRequest, MaskedVectors, PendingBatch};
pub use host::{ApplyJob, CounterSequence, HostAnswers, HostPreparation, HostWeights};

#[cfg(test)]
mod tests;
