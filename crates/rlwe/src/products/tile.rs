//! The block of ciphertexts and the tile of coefficients that all kernels share.

/// Ciphertexts of one block: what a block's sums cost to load and store is shared by this many.
pub(super) const BLOCK: usize = 128;
/// Coefficients that the kernels take at a time: two registers of eight words.
pub(super) const TILE: usize = 16;
