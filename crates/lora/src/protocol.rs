//! The blind protocol: frames between a key holder and an adapter host, over any byte stream.
//!
//! `docs/blind-protocol.md` specifies every byte. This module does not compute: it treats ciphertexts
//! and masked vectors as bytes.

mod error;
mod fields;
mod frame;
mod kind;
mod message;
mod pack;
mod refusal;
mod scheme;
mod version;

pub use error::ProtocolError;
pub use fields::is_valid_name;
pub(crate) use frame::HEADER_BYTES;
pub use frame::{FRAME_DEADLINE, Frame, FrameBuffer, FrameReader, FrameSplitter, write_frame};
pub use kind::{ConnectionSide, FrameKind};
pub use message::{
    Attach, AttachAnswer, BlockCredit, CiphertextAnswer, CiphertextBlock, CiphertextRequest,
    Goodbye, GroupTerms, Hello, MaskedAnswer, MaskedRequest, PrepareRequest, PreparedRows, Welcome,
    decode_terms, encode_terms,
};
pub use pack::{is_packed, pack, packed_bytes, unpack};
pub use refusal::Refusal;
pub use scheme::Scheme;
pub use version::{MAGIC, VERSION};

pub use crate::terms::ProtectedMatrices;
