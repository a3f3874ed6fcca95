//! Bodies that keep bytes back until their time has come.

use bytes::Bytes;
use http_body_util::{Either, Full};

/// A body that may have read more of the model server's answer than it has given out.
pub(crate) trait HoldBytes {
    /// The bytes that it has read and not given out, in order. Their first one follows the last one
    /// that was given out.
    fn held_bytes(&self) -> [&[u8]; 2];
}

impl HoldBytes for Full<Bytes> {
    fn held_bytes(&self) -> [&[u8]; 2] {
        [&[], &[]]
    }
}

impl<L: HoldBytes, R: HoldBytes> HoldBytes for Either<L, R> {
    fn held_bytes(&self) -> [&[u8]; 2] {
        match self {
            Self::Left(body) => body.held_bytes(),
            Self::Right(body) => body.held_bytes(),
        }
    }
}
