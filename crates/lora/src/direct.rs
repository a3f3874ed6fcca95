//! The direct scheme: one round trip, nothing ahead of time, every product under encryption.
//!
//! The matrix is cut into tiles of `inputs x outputs`, at most N entries. The key holder sends one
//! ciphertext for each tile of columns, entry `j` of the tile in coefficient `j`. The host has
//! `A[o][j]` of a tile in coefficient `(o + 1)·inputs − 1 − j`, so that the product has the tile's
//! part of `A[o]·x` in coefficient `(o + 1)·inputs − 1`: every other pair of `o` and `j` falls
//! elsewhere, and what wraps round X^N = −1 falls below `inputs − 1`. Products are summed over the
//! columns; each sum is made fresh by an encryption of zero under the key holder's public key, flooded
//! and switched down to one limb. Only the wanted coefficients of its `c0` are sent.
//!
//! The weights of *all* rows of a tile enter the noise of each of its answers, so there is a greatest
//! number of rows: [`outputs_max`].

mod cut;
mod holder;
mod host;

pub use cut::{DirectError, job, parameters};
pub use holder::DirectHolder;
pub use host::DirectHost;

pub use crate::terms::outputs_max;

#[cfg(test)]
mod tests;
