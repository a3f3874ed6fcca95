//! The unit in which matrices and vectors are stored.

/// The number of entries in a lane: one register of 512 bits, or two of 256.
pub(super) const LANE: usize = 32;

/// The number of bits of a digit of the vector.
pub(super) const DIGIT_BITS: u32 = 11;

/// The number of digits of an entry of the vector.
pub(super) const DIGITS: usize = 3;

/// 32 entries of a row, or one digit of 32 entries of a vector.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(align(64))]
pub(super) struct Lane(pub(super) [i16; LANE]);
