//! The unit in which matrices and vectors lie in memory.

/// The number of entries in a lane: one register of 512 bits, or two of 256.
pub(super) const LANE: usize = 32;

/// The number of bits of a digit of the vector.
pub(super) const DIGIT_BITS: u32 = 11;

/// The number of digits of an entry of the vector.
pub(super) const DIGITS: usize = 3;

/// As many entries of a row, or one digit of as many entries of a vector.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(align(64))]
pub(super) struct Lane(pub(super) [i16; LANE]);
