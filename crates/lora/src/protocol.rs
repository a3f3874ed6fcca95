//! The blind protocol: frames between a key holder and an adapter host, over any byte stream.
//!
//! `docs/blind-protocol.md` has every byte. Nothing here computes: ciphertexts and masked vectors
//! are bytes to this module.

mod error;
mod fields;
mod frame;
mod message;
mod pack;
mod refusal;

pub use error::ProtocolError;
pub use frame::{Frame, FrameBuffer, FrameKind, FrameReader, HEADER_BYTES, Side, write_frame};
pub use message::{
    Apply, Attach, Attached, Block, Credit, Direct, DirectAnswer, Goodbye, GroupTerms, Hello,
    Prepare, Prepared, Products, Welcome, decode_terms, encode_terms,
};
pub use pack::{pack, packed_bytes, unpack};
pub use refusal::Refusal;

use std::time::Duration;

pub use crate::terms::Protect;

/// The version that this end speaks.
pub const VERSION: u16 = 1;

/// The first bytes of a connection, so that another protocol in the same channel is told apart.
pub const MAGIC: [u8; 8] = *b"CFDBLIND";

/// A frame that has begun has to be whole within this: the largest takes seconds on a slow link.
pub const FRAME_DEADLINE: Duration = Duration::from_secs(30);

/// How the host computes on what it cannot read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scheme {
    /// Masks prepared before tokens run; integers online.
    Masked,
    /// A ciphertext for each vector.
    Direct,
}

impl Scheme {
    /// The name in options, logs and records.
    pub fn name(self) -> &'static str {
        match self {
            Scheme::Masked => "masked",
            Scheme::Direct => "direct",
        }
    }
}
