//! The constants with which messages are encoded.

use crate::modulus::Shoup;

/// The constants with which a message is encoded: see [`crate::Context`].
#[derive(Clone, Copy)]
pub(crate) struct Encoding {
    /// q mod t.
    pub(crate) q_mod_t: u64,
    /// t / 2.
    pub(crate) half: u64,
    /// t − 1.
    pub(crate) mask: u64,
    /// t^−1 modulo the prime.
    pub(crate) inverse: Shoup,
}
