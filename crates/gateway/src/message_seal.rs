//! Answers to encapsulated requests: a message in binary form, encapsulated as it streams, or whole.

use bytes::Bytes;
use confide_encrypted_body::{
    EncryptedBodyError, MessageHead, OhttpAnswerSealer, OhttpForm, append_content,
    append_message_end,
};

use crate::{buffer::BudgetShare, sealed_source::BodyError};

/// The largest number of bytes of text in one chunk: every receiver takes as many.
const CHUNK_TEXT_BYTES_MAX: usize = 16 * 1024;
/// The largest number of bytes of an answer that is not sent in chunks, and so has to be held.
const WHOLE_ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;

/// What encapsulates the rest of an answer.
pub(crate) struct MessageSeal {
    /// What comes before the content, until it is sent: the nonce, and the head of the message.
    pub(crate) nonce: Vec<u8>,
    pub(crate) head: Option<MessageHead>,
    pub(crate) sealer: OhttpAnswerSealer,
    pub(crate) form: OhttpForm,
    /// The content of an answer that is not sent in chunks, so far.
    pub(crate) content: Vec<u8>,
    pub(crate) share: BudgetShare,
    /// Whether the content of the inner answer is left out.
    pub(crate) is_bodiless: bool,
    pub(crate) is_ended: bool,
}

impl MessageSeal {
    /// Encapsulates a piece of the content, which is the last one if `is_last`. The first piece brings
    /// the head with it.
    pub(crate) fn seal_piece(&mut self, text: &[u8], is_last: bool) -> Result<Bytes, BodyError> {
        self.is_ended = is_last;
        match self.form {
            OhttpForm::Chunked => Ok(self.seal_chunks(text, is_last)?),
            OhttpForm::SingleChunk => self.seal_whole(text, is_last),
        }
    }

    fn seal_chunks(&mut self, text: &[u8], is_last: bool) -> Result<Bytes, EncryptedBodyError> {
        let mut body = std::mem::take(&mut self.nonce);
        if let Some(head) = self.head.take() {
            for part in head.encode_head().chunks(CHUNK_TEXT_BYTES_MAX) {
                self.sealer.seal_chunk(part, &mut body)?;
            }
        }
        let mut message = Vec::with_capacity(text.len() + 8);
        append_content(text, &mut message);
        if is_last {
            append_message_end(&mut message);
        }
        let mut parts = message.chunks(CHUNK_TEXT_BYTES_MAX).peekable();
        while let Some(part) = parts.next() {
            match is_last && parts.peek().is_none() {
                true => self.sealer.seal_final_chunk(part, &mut body)?,
                false => self.sealer.seal_chunk(part, &mut body)?,
            }
        }
        Ok(body.into())
    }

    fn seal_whole(&mut self, text: &[u8], is_last: bool) -> Result<Bytes, BodyError> {
        let length = self.content.len() + text.len();
        if length > WHOLE_ANSWER_BYTES_MAX {
            return Err("the answer is too long for one that is not sent in chunks".into());
        }
        // The message is a copy, and so is its encapsulation.
        self.share.grow_to(3 * length)?;
        self.content.extend_from_slice(text);
        let Some(head) = self.head.take_if(|_| is_last) else { return Ok(Bytes::new()) };
        let message = head.encode_message(&std::mem::take(&mut self.content));
        let mut body = std::mem::take(&mut self.nonce);
        self.sealer.seal_final_chunk(&message, &mut body)?;
        Ok(body.into())
    }
}
