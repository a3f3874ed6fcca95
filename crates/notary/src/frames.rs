//! The frames of a notary's answer, which is streamed before its statement is signed.
//!
//! A frame is a byte for its kind, its length as big-endian u32, and its content (`docs/notary.md`,
//! "The answer").

use crate::{
    limits::{FRAME_BYTES_MAX, RESPONSE_HEAD_BYTES_MAX},
    refusal::Refusal,
};

/// The largest [`Frame::Signed`] in bytes: a statement with its signature and its seed.
pub const SIGNED_BYTES_MAX: usize = 64 * 1024;

/// The largest [`Frame::Refused`] in bytes: a refusal as JSON.
const REFUSED_BYTES_MAX: usize = 4 * 1024;

/// The length of a frame's kind and length in bytes.
const PREFIX_BYTES: usize = 5;

/// One frame. [`Frame::Signed`] or [`Frame::Refused`] is the last one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// The head of the answer, as the transcript has it: the first frame, once.
    Head(Vec<u8>),
    /// A piece of the answer's body, decoded.
    Body(Vec<u8>),
    /// The notary's statement ([`crate::SignedStatement`], encoded): the last frame.
    Signed(Vec<u8>),
    /// The reason why there is no statement: the last frame.
    Refused(Refusal),
}

/// The reason for which frames cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// A frame has an unknown kind.
    #[error("frame has kind {got}, wanted 1 to 4")]
    Kind {
        /// The kind.
        got: u8,
    },
    /// A frame is longer than its kind allows.
    #[error("frame of kind {kind} is {got} long, wanted at most {wanted}")]
    TooLong {
        /// The frame's kind.
        kind: u8,
        /// The limit.
        wanted: usize,
        /// The length in bytes.
        got: usize,
    },
    /// A refusal cannot be read.
    #[error("refusal is not readable")]
    Refusal,
    /// A frame after the last one, a body before the head, or a second head.
    #[error("frame of kind {kind} came out of order")]
    Order {
        /// The frame's kind.
        kind: u8,
    },
    /// The answer ended without a statement or a refusal.
    #[error("answer ended without a statement")]
    Truncated,
}

impl Frame {
    /// Encodes the frame.
    pub fn encode(&self) -> Vec<u8> {
        let refused;
        let content = match self {
            Frame::Head(bytes) | Frame::Body(bytes) | Frame::Signed(bytes) => bytes.as_slice(),
            Frame::Refused(refusal) => {
                refused = refusal.to_json();
                refused.as_bytes()
            }
        };
        // Content that is too long for its kind is refused by the reader.
        let length = u32::try_from(content.len()).unwrap_or(u32::MAX).to_be_bytes();
        [&[self.kind()][..], &length, content].concat()
    }

    fn kind(&self) -> u8 {
        match self {
            Frame::Head(_) => HEAD,
            Frame::Body(_) => BODY,
            Frame::Signed(_) => SIGNED,
            Frame::Refused(_) => REFUSED,
        }
    }
}

const HEAD: u8 = 1;
const BODY: u8 = 2;
const SIGNED: u8 = 3;
const REFUSED: u8 = 4;

/// Reads frames from pieces of any length, and checks their order.
#[derive(Default)]
pub struct FrameReader {
    buffer: Vec<u8>,
    state: ReaderState,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum ReaderState {
    #[default]
    Begin,
    Body,
    End,
}

impl FrameReader {
    /// Appends a piece, and returns the frames that it completes. At most one frame is buffered.
    ///
    /// # Errors
    /// [`FrameError`] if a frame is of an unknown kind, too long, or out of order.
    pub fn push(&mut self, mut piece: &[u8]) -> Result<Vec<Frame>, FrameError> {
        let mut frames = Vec::new();
        while !piece.is_empty() {
            let missing = PREFIX_BYTES.saturating_sub(self.buffer.len());
            piece = self.fill_buffer(piece, missing);
            let Some((kind, length)) = self.parse_prefix()? else { break };
            piece = self.fill_buffer(piece, PREFIX_BYTES + length - self.buffer.len());
            if self.buffer.len() < PREFIX_BYTES + length {
                break;
            }
            let content = self.buffer.split_off(PREFIX_BYTES);
            self.buffer.clear();
            frames.push(self.decode_frame(kind, content)?);
        }
        Ok(frames)
    }

    /// Checks at the end of the answer that its last frame has arrived.
    ///
    /// # Errors
    /// [`FrameError::Truncated`] if it has not.
    pub fn finish(self) -> Result<(), FrameError> {
        match self.state {
            ReaderState::End if self.buffer.is_empty() => Ok(()),
            _ => Err(FrameError::Truncated),
        }
    }

    fn fill_buffer<'a>(&mut self, piece: &'a [u8], bytes: usize) -> &'a [u8] {
        let (taken, rest) = piece.split_at(bytes.min(piece.len()));
        self.buffer.extend_from_slice(taken);
        rest
    }

    /// Parses kind and length, once they have arrived; they are checked before content is buffered.
    fn parse_prefix(&self) -> Result<Option<(u8, usize)>, FrameError> {
        let Some((&[kind, a, b, c, d], _)) = self.buffer.split_first_chunk() else {
            return Ok(None);
        };
        let wanted = match kind {
            HEAD => RESPONSE_HEAD_BYTES_MAX,
            BODY => FRAME_BYTES_MAX,
            SIGNED => SIGNED_BYTES_MAX,
            REFUSED => REFUSED_BYTES_MAX,
            got => return Err(FrameError::Kind { got }),
        };
        let fits = match (self.state, kind) {
            (ReaderState::Begin, HEAD | REFUSED) => true,
            (ReaderState::Body, kind) => kind != HEAD,
            _ => false,
        };
        if !fits {
            return Err(FrameError::Order { kind });
        }
        let got = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
        match got > wanted {
            true => Err(FrameError::TooLong { kind, wanted, got }),
            false => Ok(Some((kind, got))),
        }
    }

    fn decode_frame(&mut self, kind: u8, content: Vec<u8>) -> Result<Frame, FrameError> {
        self.state = if matches!(kind, HEAD | BODY) { ReaderState::Body } else { ReaderState::End };
        match kind {
            HEAD => Ok(Frame::Head(content)),
            BODY => Ok(Frame::Body(content)),
            SIGNED => Ok(Frame::Signed(content)),
            _ => serde_json::from_slice(&content)
                .map(Frame::Refused)
                .map_err(|_| FrameError::Refusal),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames() -> Vec<Frame> {
        vec![
            Frame::Head(b"HTTP/1.1 200\r\n\r\n".to_vec()),
            Frame::Body(vec![7; FRAME_BYTES_MAX]),
            Frame::Body(Vec::new()),
            Frame::Signed(vec![1, 2, 3]),
        ]
    }

    #[test]
    fn frames_come_back_whatever_their_pieces() {
        let bytes: Vec<u8> = frames().iter().flat_map(Frame::encode).collect();
        for piece in [1, 4, 6, 1000, bytes.len()] {
            let mut reader = FrameReader::default();
            let mut got = Vec::new();
            for piece in bytes.chunks(piece) {
                got.extend(reader.push(piece).unwrap());
            }
            assert_eq!(got, frames());
            reader.finish().unwrap();
        }
    }

    #[test]
    fn the_longest_refusal_is_a_frame() {
        let frame = Frame::Refused(Refusal::new("busy", "\u{1}".repeat(600)));
        let mut reader = FrameReader::default();
        assert_eq!(reader.push(&frame.encode()), Ok(vec![frame]));
    }

    #[test]
    fn a_refusal_comes_back() {
        let frame = Frame::Refused(Refusal::new("busy", "all taken"));
        let mut reader = FrameReader::default();
        assert_eq!(reader.push(&frame.encode()).unwrap(), std::slice::from_ref(&frame));
        assert_eq!(reader.push(&frame.encode()), Err(FrameError::Order { kind: REFUSED }));
    }

    #[test]
    fn frames_out_of_order_or_too_long_are_refused() {
        let read = |frames: &[Frame]| {
            let bytes: Vec<u8> = frames.iter().flat_map(Frame::encode).collect();
            let mut reader = FrameReader::default();
            reader.push(&bytes).and_then(|_| reader.finish())
        };
        let [head, body, _, signed] = frames().try_into().unwrap();
        assert_eq!(read(std::slice::from_ref(&body)), Err(FrameError::Order { kind: BODY }));
        assert_eq!(read(std::slice::from_ref(&signed)), Err(FrameError::Order { kind: SIGNED }));
        assert_eq!(read(&[head.clone(), head.clone()]), Err(FrameError::Order { kind: HEAD }));
        let after = read(&[head.clone(), signed, body.clone()]);
        assert_eq!(after, Err(FrameError::Order { kind: BODY }));
        assert_eq!(read(&[head.clone(), body]), Err(FrameError::Truncated));
        let long = Frame::Body(vec![0; FRAME_BYTES_MAX + 1]);
        assert!(matches!(read(&[head, long]), Err(FrameError::TooLong { .. })));
        let mut reader = FrameReader::default();
        assert_eq!(reader.push(&[9; 5]), Err(FrameError::Kind { got: 9 }));
    }
}
