//! The block of ciphertexts and the tile of coefficients that all kernels share.

/// The number of ciphertexts of one block, which share the cost of loading and storing its sums.
pub(super) const BLOCK: usize = 128;
/// The number of coefficients that the kernels take at a time: two registers of eight words.
pub(super) const TILE: usize = 16;
