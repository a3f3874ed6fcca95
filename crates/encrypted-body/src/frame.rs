//! Frames: the length of a ciphertext in four bytes, big-endian, and the ciphertext with its tag.
//!
//! A frame of length 0 has no ciphertext. In EHBP it means nothing; where a final frame was
//! announced, it says that the next frame is the final one.

use crate::{
    ciphertext_buffer::{CiphertextBuffer, take_part},
    error::EncryptedBodyError,
    fields::BodyEnd,
};

/// The number of bytes of a frame's length.
pub const LENGTH_BYTES: usize = 4;
/// The number of bytes of a tag of AES-256-GCM.
pub const TAG_BYTES: usize = 16;
/// The number of bytes that a frame has in addition to its plaintext.
pub const FRAME_OVERHEAD_BYTES: usize = LENGTH_BYTES + TAG_BYTES;

/// The associated data of a final frame; that of others is empty.
const FINAL_AAD: &[u8] = b"final";

/// The associated data of a frame.
pub(crate) fn frame_aad(is_final: bool) -> &'static [u8] {
    if is_final { FINAL_AAD } else { b"" }
}

/// Appends what announces the final frame.
pub fn mark_final_frame(body: &mut Vec<u8>) {
    body.extend([0; LENGTH_BYTES]);
}

/// A frame that was read: its ciphertext and tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedFrame {
    /// The ciphertext, with the tag at its end.
    pub ciphertext: Vec<u8>,
    /// Whether the frame claims to be the final one. Opening it shows whether the claim is true.
    pub is_final: bool,
}

/// Finds the frames in the bytes of a body, which come in pieces of any length. It holds the bytes of
/// one frame at most.
#[derive(Debug)]
pub struct FrameReader {
    end: BodyEnd,
    frame_bytes_max: usize,
    prefix: [u8; LENGTH_BYTES],
    prefix_bytes: usize,
    /// The length of the frame whose ciphertext is being read.
    length: Option<usize>,
    ciphertext: CiphertextBuffer,
    is_final: bool,
    progress: ReadProgress,
}

/// How far a body was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadProgress {
    NoFrame,
    SomeFrames,
    FinalFrame,
}

impl FrameReader {
    /// A reader of frames of at most `frame_bytes_max` bytes of ciphertext with tag.
    pub fn new(end: BodyEnd, frame_bytes_max: usize) -> Self {
        Self {
            end,
            frame_bytes_max,
            prefix: [0; LENGTH_BYTES],
            prefix_bytes: 0,
            length: None,
            ciphertext: CiphertextBuffer::default(),
            is_final: false,
            progress: ReadProgress::NoFrame,
        }
    }

    /// Reads from `bytes`, which it shortens, up to the end of a frame, or until no bytes are left.
    ///
    /// # Errors
    /// [`EncryptedBodyError`] for a frame that is too long or too short, and for bytes after the final
    /// one. Nothing more can be read then.
    pub fn read(&mut self, bytes: &mut &[u8]) -> Result<Option<SealedFrame>, EncryptedBodyError> {
        while !bytes.is_empty() {
            if self.progress == ReadProgress::FinalFrame {
                return Err(EncryptedBodyError::AfterFinalFrame);
            }
            match self.length {
                None => self.read_prefix(bytes)?,
                Some(length) => {
                    let part = take_part(bytes, length - self.ciphertext.len());
                    self.ciphertext.append(part, length);
                    if self.ciphertext.len() == length {
                        return Ok(Some(self.take_frame()));
                    }
                }
            }
        }
        Ok(None)
    }

    /// Changes the bound for the frames that follow.
    pub fn set_frame_bytes_max(&mut self, frame_bytes_max: usize) {
        self.frame_bytes_max = frame_bytes_max;
    }

    /// The memory in bytes that the reader may hold after it has read `more` bytes.
    pub fn capacity_after(&self, more: usize) -> usize {
        self.ciphertext.capacity_after(more, self.frame_bytes_max)
    }

    /// Checks at the end of the body that it is complete, as far as that can be told.
    ///
    /// # Errors
    /// [`EncryptedBodyError::CutFrame`] inside a frame, [`EncryptedBodyError::NoFrame`] without any,
    /// and [`EncryptedBodyError::FinalFrameMissing`] where one was announced.
    pub fn finish(&self) -> Result<(), EncryptedBodyError> {
        if self.prefix_bytes > 0 || self.length.is_some() {
            return Err(EncryptedBodyError::CutFrame);
        }
        match (self.end, self.progress) {
            (_, ReadProgress::FinalFrame) | (BodyEnd::Unmarked, ReadProgress::SomeFrames) => Ok(()),
            (BodyEnd::Unmarked, ReadProgress::NoFrame) => Err(EncryptedBodyError::NoFrame),
            (BodyEnd::FinalFrame, _) => Err(EncryptedBodyError::FinalFrameMissing),
        }
    }

    /// Whether the final frame was read.
    pub fn is_complete(&self) -> bool {
        self.progress == ReadProgress::FinalFrame
    }

    fn read_prefix(&mut self, bytes: &mut &[u8]) -> Result<(), EncryptedBodyError> {
        let part = take_part(bytes, LENGTH_BYTES - self.prefix_bytes);
        self.prefix[self.prefix_bytes..][..part.len()].copy_from_slice(part);
        self.prefix_bytes += part.len();
        if self.prefix_bytes < LENGTH_BYTES {
            return Ok(());
        }
        self.prefix_bytes = 0;
        let length = u32::from_be_bytes(self.prefix) as usize;
        match (length, self.end) {
            (0, BodyEnd::Unmarked) => Ok(()),
            (0, BodyEnd::FinalFrame) if !self.is_final => {
                self.is_final = true;
                Ok(())
            }
            (got, _) if got < TAG_BYTES => Err(EncryptedBodyError::FrameTooShort { got }),
            (got, _) if got > self.frame_bytes_max => {
                Err(EncryptedBodyError::FrameTooLong { got, max: self.frame_bytes_max })
            }
            _ => {
                self.length = Some(length);
                Ok(())
            }
        }
    }

    fn take_frame(&mut self) -> SealedFrame {
        self.length = None;
        self.progress = match self.is_final {
            true => ReadProgress::FinalFrame,
            false => ReadProgress::SomeFrames,
        };
        let ciphertext = self.ciphertext.take();
        SealedFrame { ciphertext, is_final: self.is_final }
    }
}

/// Encrypts the frames of one body in their order.
pub(crate) trait FrameSealer {
    /// Encrypts the text of the next frame in place and returns its tag.
    fn seal(&mut self, text: &mut [u8], aad: &[u8]) -> Result<[u8; TAG_BYTES], EncryptedBodyError>;
}

/// Decrypts the frames of one body in their order.
pub(crate) trait FrameOpener {
    /// Decrypts the next ciphertext, at whose end its tag is, in place; the text then stands in
    /// front.
    fn open(&mut self, sealed: &mut [u8], aad: &[u8]) -> Result<(), EncryptedBodyError>;
}

/// Appends the next frame to `body`; a final one with what announces it. After an error, `body` is
/// what it was before.
pub(crate) fn append_frame(
    body: &mut Vec<u8>,
    plaintext: &[u8],
    is_final: bool,
    sealer: &mut (impl FrameSealer + ?Sized),
) -> Result<(), EncryptedBodyError> {
    let length = u32::try_from(plaintext.len() + TAG_BYTES);
    let length = length.map_err(|_| EncryptedBodyError::Encryption)?;
    body.reserve(LENGTH_BYTES + FRAME_OVERHEAD_BYTES + plaintext.len());
    let before = body.len();
    if is_final {
        mark_final_frame(body);
    }
    body.extend(length.to_be_bytes());
    append_ciphertext(body, plaintext, frame_aad(is_final), sealer)
        .inspect_err(|_| body.truncate(before))
}

/// Appends the next ciphertext with its tag to `body`, which is what it was before after an error.
pub(crate) fn append_ciphertext(
    body: &mut Vec<u8>,
    plaintext: &[u8],
    aad: &[u8],
    sealer: &mut (impl FrameSealer + ?Sized),
) -> Result<(), EncryptedBodyError> {
    let begin = body.len();
    body.extend_from_slice(plaintext);
    match sealer.seal(&mut body[begin..], aad) {
        Ok(tag) => {
            body.extend(tag);
            Ok(())
        }
        Err(error) => {
            // The text must not leave unencrypted.
            body.truncate(begin);
            Err(error)
        }
    }
}

/// Decrypts the next frame.
pub(crate) fn open_frame(
    frame: SealedFrame,
    opener: &mut (impl FrameOpener + ?Sized),
) -> Result<Vec<u8>, EncryptedBodyError> {
    open_ciphertext(frame.ciphertext, frame_aad(frame.is_final), opener)
}

/// Decrypts the next ciphertext.
pub(crate) fn open_ciphertext(
    mut ciphertext: Vec<u8>,
    aad: &[u8],
    opener: &mut (impl FrameOpener + ?Sized),
) -> Result<Vec<u8>, EncryptedBodyError> {
    let length = ciphertext.len().checked_sub(TAG_BYTES);
    let length = length.ok_or(EncryptedBodyError::Decryption)?;
    opener.open(&mut ciphertext, aad)?;
    ciphertext.truncate(length);
    Ok(ciphertext)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cannot encrypt.
    struct Exhausted;

    impl FrameSealer for Exhausted {
        fn seal(&mut self, _: &mut [u8], _: &[u8]) -> Result<[u8; TAG_BYTES], EncryptedBodyError> {
            Err(EncryptedBodyError::TooManyFrames)
        }
    }

    #[test]
    fn a_text_that_cannot_be_encrypted_is_not_left_in_the_body() {
        for is_final in [false, true] {
            let mut body = b"before".to_vec();
            let refused = append_frame(&mut body, b"text", is_final, &mut Exhausted);
            assert_eq!(refused, Err(EncryptedBodyError::TooManyFrames));
            assert_eq!(body, b"before");
        }
    }
}
