//! The key of a keystream, and how much of it is made at a time.

/// Key of a generator.
pub type Seed = [u8; 32];

/// Words made at a time: 64 blocks.
pub(super) const STREAM_WORDS: usize = 512;
