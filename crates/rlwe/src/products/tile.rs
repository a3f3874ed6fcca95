//! The sizes of a block of ciphertexts and of a tile of coefficients, which all kernels share.

/// The number of ciphertexts in a block. They share the cost of loading and storing the sums.
pub(super) const BLOCK: usize = 128;
/// The number of coefficients that a kernel computes at a time: two registers of eight words.
pub(super) const TILE: usize = 16;
