//! The masked scheme: encryption ahead of time, integers online.
//!
//! A *batch* is N tokens, N being the degree of the ring. Ahead of time the key holder draws a mask
//! `r` for each token and column and sends `Enc(r_j)` for every column `j`, token `n` in coefficient
//! `n`. The host answers every row with `Enc(Σ_j A_ij·r_j − s_i)`, flooded and made fresh under the key
//! holder's public key; `s` comes from the key of its process. Online, for token `n`, the host is sent
//! `y = x − r mod 2^k` and answers `z = A·y + s mod 2^k`; the key holder adds what it decrypted and has
//! `A·x mod 2^k`.
//!
//! What the host sees is uniform whatever `x` is. What the key holder sees is `A·x` and nothing else:
//! without `s`, the N answers of one batch would be N equations about A before any token.
//!
//! ```text
//! key holder: MaskRequest -> PendingBatch -> HolderBatch: mask, unmask, one counter after the other
//! host:       HostSequence -> HostPreparation -> HostAnswers -> HostSequence: apply
//! ```
//!
//! Tokens have *counters*: the `n`th token of batch `b` has `b·N + n`. Each end uses a counter once.
//! Everything is in memory and nothing of it can be written out: who starts again starts with another
//! epoch, other keys and counter 0.

mod error;
mod holder;
mod host;
mod noise;

pub use error::{BLOCK, MaskedError, ROWS_MAX};
pub use holder::{BatchState, HolderBatch, MaskRequest, MaskedVectors, PendingBatch};
pub use host::{ApplyJob, HostAnswers, HostInput, HostPreparation, HostSequence};

#[cfg(test)]
mod tests;
