//! The frames or chunks of an encrypted body as they arrive, within the bounds of memory.

use std::{
    error::Error,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use confide_encrypted_body::{
    ChunkReader, EncryptedBodyError, FrameReader, SealedFrame, TAG_BYTES,
};
use http_body::Body;

use crate::{
    body::LimitedBody, buffer::BudgetShare, client_body::ClientBody,
    encrypted_body_fault::EncryptedBodyFault, limits::GatewayLimits, refusal::RequestRefusal,
    trailers::TrailerRule,
};

/// The largest number of bytes of a frame after the first, and of any chunk, which is decrypted
/// between two pieces of other streams: some 0.5 ms. Clients either send one frame or small ones.
pub(crate) const LATER_FRAME_BYTES_MAX: usize = 1024 * 1024 + TAG_BYTES;
/// How many times as long as a body its encrypted form may be: a client that puts every token into a
/// frame of its own needs more than the bytes of its text.
const EXPANSION_MAX: u64 = 2;

pub(crate) type BodyError = Box<dyn Error + Send + Sync>;

/// An encrypted body, whose bytes are bounded by what their texts may have.
pub(crate) fn limit_encrypted(body: ClientBody, limits: &GatewayLimits) -> LimitedBody<ClientBody> {
    let bytes = limits.request_body_bytes.saturating_mul(EXPANSION_MAX);
    LimitedBody::new(body, bytes, limits.request_body_pace, TrailerRule::Drop)
}

/// Finds frames or chunks in the bytes of a body.
pub(crate) trait SealedReader {
    /// Reads from `bytes`, which it shortens, up to the end of a frame.
    fn read(&mut self, bytes: &mut &[u8]) -> Result<Option<SealedFrame>, EncryptedBodyError>;

    /// The memory in bytes that the reader may hold after it has read `more` bytes.
    fn capacity_after(&self, more: usize) -> usize;

    /// The frame that ends with the body, if the form has one, once it is known to be complete.
    fn finish(&mut self) -> Result<Option<SealedFrame>, EncryptedBodyError>;
}

impl SealedReader for FrameReader {
    fn read(&mut self, bytes: &mut &[u8]) -> Result<Option<SealedFrame>, EncryptedBodyError> {
        FrameReader::read(self, bytes)
    }

    fn capacity_after(&self, more: usize) -> usize {
        FrameReader::capacity_after(self, more)
    }

    fn finish(&mut self) -> Result<Option<SealedFrame>, EncryptedBodyError> {
        FrameReader::finish(self).map(|()| None)
    }
}

impl SealedReader for ChunkReader {
    fn read(&mut self, bytes: &mut &[u8]) -> Result<Option<SealedFrame>, EncryptedBodyError> {
        ChunkReader::read(self, bytes)
    }

    fn capacity_after(&self, more: usize) -> usize {
        ChunkReader::capacity_after(self, more)
    }

    fn finish(&mut self) -> Result<Option<SealedFrame>, EncryptedBodyError> {
        ChunkReader::finish(self).map(Some)
    }
}

/// The frames of a body as they arrive.
pub(crate) struct SealedSource<R> {
    body: LimitedBody<ClientBody>,
    pub(crate) reader: R,
    /// Bytes that were received and not yet read.
    received: Bytes,
    pub(crate) share: BudgetShare,
    is_ended: bool,
}

impl<R: SealedReader> SealedSource<R> {
    /// The frames of a body of which `received` has been read.
    pub(crate) fn new(
        body: LimitedBody<ClientBody>,
        received: Bytes,
        reader: R,
        share: BudgetShare,
    ) -> Self {
        Self { body, reader, received, share, is_ended: false }
    }

    pub(crate) async fn next_frame(&mut self) -> Result<SealedFrame, RequestRefusal> {
        let frame = std::future::poll_fn(|cx| self.poll_frame(cx)).await;
        let frame = frame.map_err(|error| RequestRefusal::from_broken_body(&*error))?;
        frame.ok_or_else(|| EncryptedBodyFault::Truncated.into())
    }

    /// The next frame; `None` at the end of a body that is complete, as far as that can be told.
    pub(crate) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<SealedFrame>, BodyError>> {
        while !self.is_ended {
            let mut bytes = &self.received[..];
            self.share.grow_to(self.reader.capacity_after(bytes.len()))?;
            let found = self.reader.read(&mut bytes)?;
            let taken = self.received.len() - bytes.len();
            self.received.advance(taken);
            if found.is_some() {
                return Poll::Ready(Ok(found));
            }
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(frame) => self.received = frame?.into_data().unwrap_or_default(),
                None => {
                    self.is_ended = true;
                    return Poll::Ready(Ok(self.reader.finish()?));
                }
            }
        }
        Poll::Ready(Ok(None))
    }

    /// The share of what was read, in place of which a new one begins.
    pub(crate) fn take_share(&mut self) -> BudgetShare {
        let next = self.share.begin_next();
        std::mem::replace(&mut self.share, next)
    }
}

/// A decrypted text, which counts against the bounds of memory until its last clone is dropped.
pub(crate) fn count_text(text: Vec<u8>, share: BudgetShare) -> Bytes {
    Bytes::from_owner(CountedText { text, _share: share })
}

struct CountedText {
    text: Vec<u8>,
    _share: BudgetShare,
}

impl AsRef<[u8]> for CountedText {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}
