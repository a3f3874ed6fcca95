//! Commitments to the bytes of an exchange, and openings of parts of them.
//!
//! Each direction is cut into chunks, which are the salted leaves of a tree. The salts follow from a
//! [`Seed`], so that its holder can open any part and the others stay hidden. A
//! [`CommittedDirection`] opens; a [`DirectionHasher`] computes the same [`DirectionCommitment`]
//! while the bytes arrive. `docs/disclosure.md` specifies every byte.
//!
//! The crate reads no clock, network or file.

#![deny(missing_docs)]

mod codec;
mod direction_hasher;
mod excerpt;
mod seed;
mod transcript;
mod tree;

pub use codec::{FormatError, Reader, Writer};
pub use direction_hasher::DirectionHasher;
pub use excerpt::{EXCERPT_BYTES_MAX, EXCERPT_MAGIC, Excerpt, OpenedBody};
pub use seed::{SALT_BYTES, SEED_BYTES, SaltPurpose, Seed};
pub use transcript::{
    CHUNK_BYTES, CommittedDirection, Direction, DirectionCommitment, LengthOpening, OpenedLeaf,
    OpeningError, ShownBytes, TRANSCRIPT_BYTES_MAX, TranscriptError, TranscriptOpening,
    read_siblings, write_siblings,
};
pub use tree::{DEPTH_MAX, Hash, MerkleTree, compute_root};

/// Compiles and runs the example of README.md.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
