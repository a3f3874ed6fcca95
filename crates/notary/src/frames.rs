//! What a notary answers: frames, so that an answer streams before its statement is signed.
//!
//! A frame is a byte that says its kind, its length as big-endian u32, and its content
//! (`docs/notary.md`, "The answer").

use crate::{
    limits::{FRAME_BYTES_MAX, RESPONSE_HEAD_BYTES_MAX},
    refusal::Refusal,
};

/// The largest size in bytes of [`Frame::Signed`]: a statement with its signature and what opens it.
pub const SIGNED_BYTES_MAX: usize = 64 * 1024;

/// The largest size in bytes of [`Frame::Refused`]: a refusal as JSON.
const REFUSED_BYTES_MAX: usize = 4 * 1024;

/// Bytes of a frame's kind and length.
const PREFIX_BYTES: usize = 5;

/// One frame. After [`Frame::Signed`] or [`Frame::Refused`] there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// The head of the answer, as the transcript has it: the first frame, once.
    Head(Vec<u8>),
    /// A piece of the answer's body, decoded.
    Body(Vec<u8>),
    /// The notary's statement ([`crate::Signed`], encoded): the last frame.
    Signed(Vec<u8>),
    /// The reason why there is no statement: the last frame.
    Refused(Refusal),
}

/// Why frames cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// A kind that has no meaning.
    #[error("frame has kind {got}, wanted 1 to 4")]
    Kind {
        /// The kind that came.
        got: u8,
    },
    /// A frame longer than its kind may be.
    #[error("frame of kind {kind} is {got} long, wanted at most {wanted}")]
    TooLong {
        /// The frame's kind.
        kind: u8,
        /// The limit.
        wanted: usize,
        /// The length that came, in bytes.
        got: usize,
    },
    /// A refusal that cannot be read.
    #[error("refusal is not readable")]
    Refusal,
    /// A frame after the last one, a body before its head, or a second head.
    #[error("frame of kind {kind} came out of order")]
    Order {
        /// The frame's kind.
        kind: u8,
    },
    /// The answer ended in the middle, without a statement and without a refusal.
    #[error("answer ended without a statement")]
    Truncated,
}

impl Frame {
    /// Encodes the frame as it is on the wire.
    pub fn encode(&self) -> Vec<u8> {
        let refused;
        let content = match self {
            Frame::Head(bytes) | Frame::Body(bytes) | Frame::Signed(bytes) => bytes.as_slice(),
            Frame::Refused(refusal) => {
                refused = refusal.to_json();
                refused.as_bytes()
            }
        };
        // Longer content than any kind may have is refused by whoever reads the length.
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

/// Reads frames from pieces of any length, in the one order that an answer has.
#[derive(Default)]
pub struct FrameReader {
    buffer: Vec<u8>,
    state: ExchangeStage,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum ExchangeStage {
    #[default]
    Begin,
    Body,
    End,
}

impl FrameReader {
    /// Takes a piece, gives the frames that it completes. What is kept is bounded by one frame.
    ///
    /// # Errors
    /// [`FrameError`] if a frame is of an unknown kind, too long, or out of order.
    pub fn push(&mut self, mut piece: &[u8]) -> Result<Vec<Frame>, FrameError> {
        let mut frames = Vec::new();
        while !piece.is_empty() {
            let missing = PREFIX_BYTES.saturating_sub(self.buffer.len());
            piece = self.take(piece, missing);
            let Some((kind, length)) = self.prefix()? else { break };
            piece = self.take(piece, PREFIX_BYTES + length - self.buffer.len());
            if self.buffer.len() < PREFIX_BYTES + length {
                break;
            }
            let content = self.buffer.split_off(PREFIX_BYTES);
            self.buffer.clear();
            frames.push(self.frame(kind, content)?);
        }
        Ok(frames)
    }

    /// Ends the answer: an error unless the last frame has come.
    ///
    /// # Errors
    /// [`FrameError`] unless the last frame has come.
    pub fn finish(self) -> Result<(), FrameError> {
        match self.state {
            ExchangeStage::End if self.buffer.is_empty() => Ok(()),
            _ => Err(FrameError::Truncated),
        }
    }

    fn take<'a>(&mut self, piece: &'a [u8], bytes: usize) -> &'a [u8] {
        let (taken, rest) = piece.split_at(bytes.min(piece.len()));
        self.buffer.extend_from_slice(taken);
        rest
    }

    /// Reads kind and length, where they are there; they are checked before any content is kept.
    fn prefix(&self) -> Result<Option<(u8, usize)>, FrameError> {
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
            (ExchangeStage::Begin, HEAD | REFUSED) => true,
            (ExchangeStage::Body, kind) => kind != HEAD,
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

    fn frame(&mut self, kind: u8, content: Vec<u8>) -> Result<Frame, FrameError> {
        self.state =
            if matches!(kind, HEAD | BODY) { ExchangeStage::Body } else { ExchangeStage::End };
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
