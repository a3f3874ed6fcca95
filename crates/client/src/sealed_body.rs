//! Encrypted exchanges: a request is encrypted as it is sent, the body of an answer decrypted as it
//! arrives.

use std::{
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use confide_encrypted_body::{
    AnswerOpener, BodyEnd, EncryptedBodyError, FrameReader, RequestSealer, TAG_BYTES,
};
use http_body::{Body, Frame, SizeHint};

use crate::{
    answer_error::AnswerError,
    pool::AnswerBody,
    request_body::{BodyError, RequestBody},
};

/// The largest number of bytes of text in one frame of a request.
const FRAME_TEXT_BYTES_MAX: usize = 64 * 1024;
/// The largest number of bytes of a frame of an answer. A gateway's have 64 KiB of text.
const FRAME_BYTES_MAX: usize = 1024 * 1024 + TAG_BYTES;

/// Encrypts the parts of a request in one of the two forms.
pub(crate) trait PartSealer: Unpin {
    /// What comes before the body.
    fn seal_start(&mut self) -> Result<Vec<u8>, EncryptedBodyError>;

    /// A piece of the body.
    fn seal_piece(&mut self, text: &[u8]) -> Result<Vec<u8>, EncryptedBodyError>;

    /// The end of the body.
    fn seal_end(&mut self) -> Result<Vec<u8>, EncryptedBodyError>;
}

/// A request's body alone. Its end is a final frame.
impl PartSealer for RequestSealer {
    fn seal_start(&mut self) -> Result<Vec<u8>, EncryptedBodyError> {
        Ok(Vec::new())
    }

    fn seal_piece(&mut self, text: &[u8]) -> Result<Vec<u8>, EncryptedBodyError> {
        let mut body = Vec::new();
        for piece in text.chunks(FRAME_TEXT_BYTES_MAX) {
            self.seal_frame(piece, &mut body)?;
        }
        Ok(body)
    }

    fn seal_end(&mut self) -> Result<Vec<u8>, EncryptedBodyError> {
        let mut body = Vec::new();
        self.seal_final_frame(b"", &mut body)?;
        Ok(body)
    }
}

/// A request, encrypted as it is sent.
pub(crate) struct SealedRequestBody<S> {
    inner: RequestBody,
    sealer: S,
    is_started: bool,
    is_ended: bool,
}

impl<S: PartSealer> SealedRequestBody<S> {
    pub(crate) fn new(inner: RequestBody, sealer: S) -> Self {
        Self { inner, sealer, is_started: false, is_ended: false }
    }
}

impl<S: PartSealer> Body for SealedRequestBody<S> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        while !self.is_ended {
            let sealed = if self.is_started {
                match ready!(Pin::new(&mut self.inner).poll_frame(cx)).transpose()? {
                    // Trailers of local programs are not sent.
                    Some(frame) => {
                        self.sealer.seal_piece(&frame.into_data().unwrap_or_default())?
                    }
                    None => {
                        self.is_ended = true;
                        self.sealer.seal_end()?
                    }
                }
            } else {
                self.is_started = true;
                self.sealer.seal_start()?
            };
            if !sealed.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(sealed.into()))));
            }
        }
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        self.is_ended
    }
}

/// The body of an answer, decrypted as it arrives. It breaks off where it was changed or cut.
pub(crate) struct OpenedAnswerBody {
    inner: AnswerBody,
    opener: AnswerOpener,
    reader: FrameReader,
    /// Bytes that were received and not yet read.
    received: Bytes,
    /// The text of the first frames, until it is read.
    first: Option<Bytes>,
    is_ended: bool,
}

impl OpenedAnswerBody {
    /// The end is demanded whatever the head of the answer announces.
    pub(crate) fn new(inner: AnswerBody, opener: AnswerOpener) -> Self {
        let reader = FrameReader::new(BodyEnd::FinalFrame, FRAME_BYTES_MAX);
        Self { inner, opener, reader, received: Bytes::new(), first: None, is_ended: false }
    }

    /// Waits for the first text that can be decrypted, or for the final frame of an answer without
    /// text. It has to be awaited once, before the body is read.
    ///
    /// # Errors
    /// [`AnswerError`] if the answer begins with anything else.
    pub(crate) async fn open_first_text(&mut self) -> Result<(), AnswerError> {
        self.first = poll_fn(|cx| self.poll_text(cx)).await?;
        self.is_ended = self.first.is_none();
        Ok(())
    }

    fn poll_text(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, AnswerError>> {
        loop {
            let mut bytes = &self.received[..];
            let frame = self.reader.read(&mut bytes).map_err(AnswerError::Encryption)?;
            let taken = self.received.len() - bytes.len();
            self.received.advance(taken);
            if let Some(frame) = frame {
                let text = self.opener.open_frame(frame).map_err(AnswerError::Encryption)?;
                if !text.is_empty() {
                    return Poll::Ready(Ok(Some(text.into())));
                }
                continue;
            }
            match ready!(Pin::new(&mut self.inner).poll_frame(cx)).transpose()? {
                Some(frame) => self.received = frame.into_data().unwrap_or_default(),
                None => {
                    self.reader.finish().map_err(AnswerError::Encryption)?;
                    return Poll::Ready(Ok(None));
                }
            }
        }
    }
}

impl Body for OpenedAnswerBody {
    type Data = Bytes;
    type Error = AnswerError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, AnswerError>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        if self.is_ended {
            return Poll::Ready(None);
        }
        let text = ready!(self.poll_text(cx));
        self.is_ended = !matches!(text, Ok(Some(_)));
        Poll::Ready(text.map(|text| text.map(Frame::data)).transpose())
    }

    fn is_end_stream(&self) -> bool {
        self.is_ended && self.first.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}
