//! Bodies of encapsulated exchanges: a request is encapsulated as it is sent, an answer opened as it
//! arrives.

use std::{
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use confide_encrypted_body::{
    ChunkReader, ControlData, EncryptedBodyError, MessageHead, MessageKind, MessageLimits,
    MessagePart, MessageReader, OhttpAnswerOpener, OhttpAnswerSecret, OhttpRequestSealer,
    TAG_BYTES, append_content, append_message_end,
};
use http::{HeaderName, HeaderValue, Response, StatusCode, response};
use http_body::{Body, Frame, SizeHint};

use crate::{answer_error::AnswerError, pool::AnswerBody, sealed_body::PartSealer};

/// The largest number of bytes of text in one chunk: every receiver takes as many.
const CHUNK_TEXT_BYTES_MAX: usize = 16 * 1024;
/// The largest number of bytes of a chunk of an answer. A gateway's have 16 KiB of text.
const CHUNK_BYTES_MAX: usize = 1024 * 1024 + TAG_BYTES;
/// Bounds of the head of an answer.
const HEAD_LIMITS: MessageLimits = MessageLimits { head_bytes: 64 * 1024, fields: 256 };

/// Encapsulates a request whole: its head, then its body.
pub(crate) struct MessageSealer {
    head: MessageHead,
    sealer: OhttpRequestSealer,
}

impl MessageSealer {
    pub(crate) fn new(head: MessageHead, sealer: OhttpRequestSealer) -> Self {
        Self { head, sealer }
    }

    fn seal_chunks(&mut self, text: &[u8], body: &mut Vec<u8>) -> Result<(), EncryptedBodyError> {
        let mut parts = text.chunks(CHUNK_TEXT_BYTES_MAX);
        parts.try_for_each(|part| self.sealer.seal_chunk(part, body))
    }
}

impl PartSealer for MessageSealer {
    fn seal_start(&mut self) -> Result<Vec<u8>, EncryptedBodyError> {
        let mut body = self.sealer.head().to_bytes();
        let head = self.head.encode_head();
        self.seal_chunks(&head, &mut body)?;
        Ok(body)
    }

    fn seal_piece(&mut self, text: &[u8]) -> Result<Vec<u8>, EncryptedBodyError> {
        let (mut message, mut body) = (Vec::new(), Vec::new());
        append_content(text, &mut message);
        self.seal_chunks(&message, &mut body)?;
        Ok(body)
    }

    fn seal_end(&mut self) -> Result<Vec<u8>, EncryptedBodyError> {
        let (mut message, mut body) = (Vec::new(), Vec::new());
        append_message_end(&mut message);
        self.sealer.seal_final_chunk(&message, &mut body)?;
        Ok(body)
    }
}

/// The content of an answer, opened as it arrives. It breaks off where it was changed or cut.
pub(crate) struct OpenedMessage {
    inner: AnswerBody,
    secret: OhttpAnswerSecret,
    nonce: Vec<u8>,
    /// What opens the chunks, once the nonce was read.
    opener: Option<OhttpAnswerOpener>,
    reader: ChunkReader,
    message: MessageReader,
    /// Bytes that were received and not yet read.
    received: Bytes,
    /// Whether the final chunk was opened.
    is_final: bool,
    is_ended: bool,
}

impl OpenedMessage {
    /// Opens an answer up to the end of its head.
    ///
    /// # Errors
    /// [`AnswerError`] if the answer begins with anything but an encapsulated head.
    pub(crate) async fn open(
        inner: AnswerBody,
        secret: OhttpAnswerSecret,
    ) -> Result<(MessageHead, Self), AnswerError> {
        let mut opened = Self {
            inner,
            reader: ChunkReader::new(secret.form(), CHUNK_BYTES_MAX),
            secret,
            nonce: Vec::new(),
            opener: None,
            message: MessageReader::new(MessageKind::Answer, HEAD_LIMITS),
            received: Bytes::new(),
            is_final: false,
            is_ended: false,
        };
        let head = poll_fn(|cx| opened.poll_head(cx)).await?;
        Ok((head, opened))
    }

    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<MessageHead, AnswerError>> {
        loop {
            if let Some(MessagePart::Head(head)) = self.next_part()? {
                return Poll::Ready(Ok(head));
            }
            if self.is_final {
                self.is_ended = true;
                let head = self.message.finish().map_err(AnswerError::Encryption)?;
                let missing = AnswerError::Encryption(EncryptedBodyError::MessageCut);
                return Poll::Ready(head.ok_or(missing));
            }
            ready!(self.poll_chunk(cx))?;
        }
    }

    fn poll_text(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, AnswerError>> {
        while !self.is_ended {
            if let Some(MessagePart::Content(piece)) = self.next_part()? {
                return Poll::Ready(Ok(Some(piece.into())));
            }
            if self.is_final {
                self.is_ended = true;
                self.message.finish().map_err(AnswerError::Encryption)?;
            } else {
                ready!(self.poll_chunk(cx))?;
            }
        }
        Poll::Ready(Ok(None))
    }

    fn next_part(&mut self) -> Result<Option<MessagePart>, AnswerError> {
        self.message.next_part().map_err(AnswerError::Encryption)
    }

    /// Opens the next chunk.
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), AnswerError>> {
        loop {
            if self.has_opener().map_err(AnswerError::Encryption)? {
                let mut bytes = &self.received[..];
                let chunk = self.reader.read(&mut bytes).map_err(AnswerError::Encryption)?;
                let taken = self.received.len() - bytes.len();
                self.received.advance(taken);
                if let (Some(chunk), Some(opener)) = (chunk, &mut self.opener) {
                    let text = opener.open_chunk(chunk).map_err(AnswerError::Encryption)?;
                    self.message.push(&text);
                    return Poll::Ready(Ok(()));
                }
            }
            match ready!(Pin::new(&mut self.inner).poll_frame(cx)).transpose()? {
                Some(frame) => self.received = frame.into_data().unwrap_or_default(),
                None => {
                    self.open_final_chunk().map_err(AnswerError::Encryption)?;
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }

    /// Whether chunks can be opened: not while bytes of the nonce are missing.
    fn has_opener(&mut self) -> Result<bool, EncryptedBodyError> {
        if self.opener.is_none() {
            let missing = self.secret.nonce_bytes() - self.nonce.len();
            let part = self.received.split_to(missing.min(self.received.len()));
            self.nonce.extend_from_slice(&part);
            if part.len() < missing {
                return Ok(false);
            }
            self.opener = Some(self.secret.open_answer(&self.nonce)?);
        }
        Ok(true)
    }

    fn open_final_chunk(&mut self) -> Result<(), EncryptedBodyError> {
        let chunk = self.reader.finish()?;
        let opener = self.opener.as_mut().ok_or(EncryptedBodyError::CutFrame)?;
        self.message.push(&opener.open_chunk(chunk)?);
        self.is_final = true;
        Ok(())
    }
}

impl Body for OpenedMessage {
    type Data = Bytes;
    type Error = AnswerError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, AnswerError>>> {
        let text = ready!(self.poll_text(cx));
        self.is_ended |= text.is_err();
        Poll::Ready(text.map(|text| text.map(Frame::data)).transpose())
    }

    fn is_end_stream(&self) -> bool {
        self.is_ended
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

/// The head of an answer that came in binary form.
///
/// # Errors
/// [`EncryptedBodyError::MessageMalformed`] if a part of it is not one of HTTP.
pub(crate) fn read_answer_head(head: &MessageHead) -> Result<response::Parts, EncryptedBodyError> {
    let malformed = |place| EncryptedBodyError::MessageMalformed { place };
    let ControlData::Answer { status } = head.control else { return Err(malformed("status")) };
    let mut answer = Response::new(());
    *answer.status_mut() = StatusCode::from_u16(status).map_err(|_| malformed("status"))?;
    for field in &head.fields {
        let name = HeaderName::from_bytes(&field.name);
        let name = name.map_err(|_| malformed("name of a field"))?;
        let value = HeaderValue::from_bytes(&field.value);
        let value = value.map_err(|_| malformed("value of a field"))?;
        let appended = answer.headers_mut().try_append(name, value);
        appended.map_err(|_| malformed("section of fields"))?;
    }
    Ok(answer.into_parts().0)
}
