//! The key of a keystream, and the number of words that are computed at a time.

/// The key of a generator, 32 bytes.
pub type Seed = [u8; 32];

/// The number of words that are computed at a time: 64 blocks.
pub(super) const STREAM_WORDS: usize = 512;
