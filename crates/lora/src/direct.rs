//! The direct scheme: every product under encryption, in one round trip, without preparation.
//!
//! The matrix is divided into tiles of `inputs x outputs`, with at most N entries. The key holder sends one
//! ciphertext for each tile of columns, entry `j` of the tile in coefficient `j`. The host has
//! `A[o][j]` of a tile in coefficient `(o + 1)·inputs − 1 − j`, so that the product has the tile's
//! part of `A[o]·x` in coefficient `(o + 1)·inputs − 1`. Every other pair of `o` and `j` is in another
//! coefficient, and terms that wrap at X^N = −1 are below `inputs − 1`. Products are summed over the
//! columns. Each sum is re-randomised with a flooded encryption of zero under the key holder's public
//! key and switched down to one limb. Only the wanted coefficients of its `c0` are sent.
//!
//! The weights of *all* rows of a tile add to the noise of each of its answers, which limits the number
//! of rows: [`tile_outputs_max`].

mod holder;
mod host;
mod tiling;

pub use holder::EncryptedProductHolder;
pub use host::EncryptedProductHost;
pub use tiling::{EncryptedProductError, derive_parameters, tiling_problem};

pub use crate::terms::tile_outputs_max;

#[cfg(test)]
mod tests;
