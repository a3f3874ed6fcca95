//! The frames of docs/worker.md: a length, a kind and a payload.

/// The longest frame in bytes, without its length field.
pub const FRAME_BYTES_MAX: usize = 16 << 20;

/// The kinds of frames, by number.
pub mod kind {
    /// The first frame, from `confide serve`.
    pub const HELLO: u8 = 0x01;
    /// The request of a generation.
    pub const GENERATE: u8 = 0x02;
    /// The cancel of a generation.
    pub const CANCEL: u8 = 0x03;
    /// The load of an adapter.
    pub const LOAD_ADAPTER: u8 = 0x04;
    /// The unload of an adapter.
    pub const UNLOAD_ADAPTER: u8 = 0x05;
    /// The answer to a need frame: the deltas of a layer.
    pub const DELTAS: u8 = 0x06;
    /// The request of a status.
    pub const ASK_STATUS: u8 = 0x07;
    /// The worker's description of itself, which answers the hello.
    pub const WELCOME: u8 = 0x81;
    /// The tokens of one step.
    pub const TOKENS: u8 = 0x82;
    /// The end of a generation.
    pub const ENDED: u8 = 0x83;
    /// The input of a layer, for an adapter at `confide serve`.
    pub const NEED: u8 = 0x84;
    /// The answer to a load or an unload.
    pub const ADAPTER: u8 = 0x85;
    /// The answer to the request of a status.
    pub const STATUS: u8 = 0x86;
    /// The refusal of a generation before its start.
    pub const REFUSED: u8 = 0x87;
}

/// The reason why bytes from the worker are not a valid frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The kind is unknown, or is not one that a worker sends.
    #[error("frame of kind {kind:#04x}: not a kind that a worker sends")]
    Kind {
        /// The kind of the frame.
        kind: u8,
    },
    /// The frame is too long for its kind, or too short to have one.
    #[error("frame of kind {kind:#04x}: wanted at most {limit} bytes, got {got}")]
    Length {
        /// The kind of the frame.
        kind: u8,
        /// The limit, in bytes.
        limit: usize,
        /// The announced length, in bytes.
        got: usize,
    },
    /// The payload does not have the form of its kind.
    #[error("frame of kind {kind:#04x}: {reason}")]
    Payload {
        /// The kind of the frame.
        kind: u8,
        /// What is wrong with the payload.
        reason: String,
    },
}

/// A frame, without its length field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The kind of the frame.
    pub kind: u8,
    /// The bytes after the kind.
    pub payload: &'a [u8],
}

impl Frame<'_> {
    /// Encodes the frame, including its length field.
    ///
    /// # Panics
    /// If the payload exceeds [`FRAME_BYTES_MAX`]; the caller has to check this limit.
    pub fn encode(&self) -> Vec<u8> {
        let length = self.payload.len() + 1;
        assert!(length <= FRAME_BYTES_MAX, "a payload of {length} bytes");
        let mut bytes = Vec::with_capacity(length + 4);
        bytes.extend_from_slice(&(length as u32).to_le_bytes());
        bytes.push(self.kind);
        bytes.extend_from_slice(self.payload);
        bytes
    }
}

/// Splits the bytes from the worker into frames. Memory grows with the received bytes, not with an
/// announced length.
#[derive(Debug, Default)]
pub struct FrameReader {
    bytes: Vec<u8>,
    /// The index of the first byte that was not returned.
    read: usize,
}

impl FrameReader {
    /// Adds received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.read > 0 {
            self.bytes.drain(..self.read);
            self.read = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the next complete frame; `None` if more bytes are needed.
    ///
    /// # Errors
    /// [`FrameError::Kind`] or [`FrameError::Length`]. Nothing after such a frame can be read.
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, FrameError> {
        let rest = &self.bytes[self.read..];
        let [first, second, third, fourth, kind, ..] = *rest else { return Ok(None) };
        let length = u32::from_le_bytes([first, second, third, fourth]) as usize;
        let limit = payload_limit(kind).ok_or(FrameError::Kind { kind })? + 1;
        if length == 0 || length > limit {
            return Err(FrameError::Length { kind, limit, got: length });
        }
        if rest.len() < length + 4 {
            return Ok(None);
        }
        let start = self.read;
        self.read += length + 4;
        Ok(Some(Frame { kind, payload: &self.bytes[start + 5..self.read] }))
    }
}

/// The longest payload of a kind that the worker sends, in bytes; `None` for other kinds.
fn payload_limit(kind: u8) -> Option<usize> {
    Some(match kind {
        kind::WELCOME | kind::ENDED | kind::ADAPTER | kind::STATUS => 1 << 20,
        kind::TOKENS => 2 + 8 * 0xffff,
        kind::NEED => FRAME_BYTES_MAX - 1,
        kind::REFUSED => 64 << 10,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_whole_wherever_the_bytes_are_cut() {
        let frames =
            [(kind::REFUSED, b"{}".as_slice()), (kind::TOKENS, &[7; 300]), (kind::ENDED, b"")];
        let bytes: Vec<u8> = frames
            .iter()
            .flat_map(|(kind, payload)| Frame { kind: *kind, payload }.encode())
            .collect();
        for cut in [1, 2, 5, 7, 100, bytes.len()] {
            let mut reader = FrameReader::default();
            let mut found = Vec::new();
            for part in bytes.chunks(cut) {
                reader.push(part);
                while let Some(frame) = reader.next_frame().expect("a frame") {
                    found.push((frame.kind, frame.payload.to_vec()));
                }
            }
            let wanted: Vec<_> =
                frames.iter().map(|(kind, payload)| (*kind, payload.to_vec())).collect();
            assert_eq!(found, wanted, "cut into {cut}");
        }
    }

    #[test]
    fn lengths_and_kinds_are_refused_before_the_payload_came() {
        let refused = |length: u32, kind: u8| {
            let mut reader = FrameReader::default();
            reader.push(&length.to_le_bytes());
            assert_eq!(reader.next_frame(), Ok(None));
            reader.push(&[kind]);
            reader.next_frame().expect_err("refused")
        };
        for kind in [0, kind::HELLO, kind::DELTAS, 0x80, 0x88, 0xff] {
            assert_eq!(refused(1, kind), FrameError::Kind { kind });
        }
        for (length, kind) in [
            (0, kind::TOKENS),
            (u32::MAX, kind::NEED),
            (FRAME_BYTES_MAX as u32 + 1, kind::NEED),
            ((1 << 20) + 2, kind::ENDED),
        ] {
            assert!(matches!(refused(length, kind), FrameError::Length { .. }), "{length} {kind}");
        }
    }
}
