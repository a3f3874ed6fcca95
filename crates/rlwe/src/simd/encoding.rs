//! The constants of the encoding of messages.

use crate::modulus::ShoupFactor;

/// The constants of the encoding modulo one prime: see [`crate::Context`].
#[derive(Clone, Copy)]
pub(crate) struct EncodingConstants {
    /// q mod t.
    pub(crate) q_mod_t: u64,
    /// t / 2.
    pub(crate) half: u64,
    /// t − 1.
    pub(crate) mask: u64,
    /// t^−1 modulo the prime.
    pub(crate) inverse: ShoupFactor,
}
