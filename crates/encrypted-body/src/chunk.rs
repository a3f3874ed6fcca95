//! Chunks of OHTTP: the length of a ciphertext as a variable-length integer, and the ciphertext with
//! its tag. A length of 0 announces the final chunk, which extends to the end of the body. A whole
//! message has no lengths and is one chunk.

use crate::{
    ciphertext_buffer::{CiphertextBuffer, take_part},
    error::EncryptedBodyError,
    frame::{
        FrameOpener, FrameSealer, SealedFrame, TAG_BYTES, append_ciphertext, frame_aad,
        open_ciphertext,
    },
    ohttp_form::OhttpForm,
    varint::{VARINT_BYTES_MAX, append_varint, decode_varint, varint_bytes},
};

/// The associated data of a chunk. A whole message has none, since its only ciphertext cannot be cut.
fn chunk_aad(form: OhttpForm, is_final: bool) -> &'static [u8] {
    frame_aad(is_final && form == OhttpForm::Chunked)
}

/// Appends a chunk that is not the final one; nothing for an empty text, since a chunk without text
/// is refused.
pub(crate) fn append_chunk(
    form: OhttpForm,
    body: &mut Vec<u8>,
    text: &[u8],
    sealer: &mut (impl FrameSealer + ?Sized),
) -> Result<(), EncryptedBodyError> {
    if form == OhttpForm::SingleChunk {
        return Err(EncryptedBodyError::Encryption);
    }
    if text.is_empty() {
        return Ok(());
    }
    let before = body.len();
    append_varint(text.len() + TAG_BYTES, body);
    append_ciphertext(body, text, chunk_aad(form, false), sealer)
        .inspect_err(|_| body.truncate(before))
}

/// Appends the final chunk, with what announces it.
pub(crate) fn append_final_chunk(
    form: OhttpForm,
    body: &mut Vec<u8>,
    text: &[u8],
    sealer: &mut (impl FrameSealer + ?Sized),
) -> Result<(), EncryptedBodyError> {
    let before = body.len();
    if form == OhttpForm::Chunked {
        append_varint(0, body);
    }
    append_ciphertext(body, text, chunk_aad(form, true), sealer)
        .inspect_err(|_| body.truncate(before))
}

/// Decrypts the next chunk.
pub(crate) fn open_chunk(
    form: OhttpForm,
    chunk: SealedFrame,
    opener: &mut (impl FrameOpener + ?Sized),
) -> Result<Vec<u8>, EncryptedBodyError> {
    let SealedFrame { ciphertext, is_final } = chunk;
    let text = open_ciphertext(ciphertext, chunk_aad(form, is_final), opener)?;
    match text.is_empty() && !is_final {
        true => Err(EncryptedBodyError::Decryption),
        false => Ok(text),
    }
}

/// Finds the chunks in the bytes of a body, which come in pieces of any length. It holds the bytes of
/// one chunk at most.
#[derive(Debug)]
pub struct ChunkReader {
    chunk_bytes_max: usize,
    prefix: [u8; VARINT_BYTES_MAX],
    prefix_bytes: usize,
    length: ChunkLength,
    ciphertext: CiphertextBuffer,
}

/// The length of the chunk that is being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChunkLength {
    Unread,
    Bytes(usize),
    /// The final chunk has what is left of the body.
    Remainder,
}

impl ChunkReader {
    /// A reader of chunks of at most `chunk_bytes_max` bytes of ciphertext with tag.
    pub fn new(form: OhttpForm, chunk_bytes_max: usize) -> Self {
        let length = match form {
            OhttpForm::SingleChunk => ChunkLength::Remainder,
            OhttpForm::Chunked => ChunkLength::Unread,
        };
        let prefix = [0; VARINT_BYTES_MAX];
        let ciphertext = CiphertextBuffer::default();
        Self { chunk_bytes_max, prefix, prefix_bytes: 0, length, ciphertext }
    }

    /// Reads from `bytes`, which it shortens, up to the end of a chunk that is not the final one, or
    /// until no bytes are left.
    ///
    /// # Errors
    /// [`EncryptedBodyError`] for a chunk that is too long or too short. Nothing more can be read then.
    pub fn read(&mut self, bytes: &mut &[u8]) -> Result<Option<SealedFrame>, EncryptedBodyError> {
        while !bytes.is_empty() {
            match self.length {
                ChunkLength::Unread => self.read_length(bytes)?,
                ChunkLength::Remainder => {
                    let got = self.ciphertext.len().saturating_add(bytes.len());
                    if got > self.chunk_bytes_max {
                        let max = self.chunk_bytes_max;
                        return Err(EncryptedBodyError::FrameTooLong { got, max });
                    }
                    let part = take_part(bytes, usize::MAX);
                    self.ciphertext.append(part, self.chunk_bytes_max);
                }
                ChunkLength::Bytes(length) => {
                    let part = take_part(bytes, length - self.ciphertext.len());
                    self.ciphertext.append(part, length);
                    if self.ciphertext.len() == length {
                        self.length = ChunkLength::Unread;
                        let ciphertext = self.ciphertext.take();
                        return Ok(Some(SealedFrame { ciphertext, is_final: false }));
                    }
                }
            }
        }
        Ok(None)
    }

    /// The memory in bytes that the reader may hold after it has read `more` bytes.
    pub fn capacity_after(&self, more: usize) -> usize {
        self.ciphertext.capacity_after(more, self.chunk_bytes_max)
    }

    /// Takes the final chunk at the end of the body.
    ///
    /// # Errors
    /// [`EncryptedBodyError::CutFrame`] inside a chunk, and [`EncryptedBodyError::FinalFrameMissing`]
    /// if no final chunk was announced.
    pub fn finish(&mut self) -> Result<SealedFrame, EncryptedBodyError> {
        match self.length {
            ChunkLength::Unread if self.prefix_bytes == 0 => {
                Err(EncryptedBodyError::FinalFrameMissing)
            }
            ChunkLength::Remainder if self.ciphertext.len() >= TAG_BYTES => {
                let ciphertext = self.ciphertext.take();
                Ok(SealedFrame { ciphertext, is_final: true })
            }
            _ => Err(EncryptedBodyError::CutFrame),
        }
    }

    fn read_length(&mut self, bytes: &mut &[u8]) -> Result<(), EncryptedBodyError> {
        let Some(first) = self.prefix[..self.prefix_bytes].first().or(bytes.first()) else {
            return Ok(());
        };
        let wanted = varint_bytes(*first);
        let part = take_part(bytes, wanted - self.prefix_bytes);
        self.prefix[self.prefix_bytes..][..part.len()].copy_from_slice(part);
        self.prefix_bytes += part.len();
        if self.prefix_bytes < wanted {
            return Ok(());
        }
        self.prefix_bytes = 0;
        let length = decode_varint(&self.prefix[..wanted]);
        let got = usize::try_from(length).unwrap_or(usize::MAX);
        self.length = match got {
            0 => ChunkLength::Remainder,
            // A chunk without text is refused too, but only its tag shows that it was sent so.
            1..TAG_BYTES => return Err(EncryptedBodyError::FrameTooShort { got }),
            _ if got > self.chunk_bytes_max => {
                let max = self.chunk_bytes_max;
                return Err(EncryptedBodyError::FrameTooLong { got, max });
            }
            _ => ChunkLength::Bytes(got),
        };
        Ok(())
    }
}
