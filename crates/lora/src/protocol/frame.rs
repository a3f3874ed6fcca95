//! Frames: length, kind, request id and payload, written with one call.

use std::time::Duration;

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    time::timeout,
};

use super::{
    error::ProtocolError,
    kind::{ConnectionSide, FrameKind},
};

/// The time limit for the rest of a frame after its first bytes: the largest takes seconds on a slow
/// link.
pub const FRAME_DEADLINE: Duration = Duration::from_secs(30);

/// The length of a header: length (u32), kind (u8) and request id (u32), little-endian.
pub(crate) const HEADER_BYTES: usize = 9;

/// The part of the header that the length counts: kind and request id.
const COUNTED_BYTES: usize = 5;

/// The least capacity of one read; a masked vector of 1,536 elements has less than 8 KiB.
const READ_BYTES: usize = 16 * 1024;

/// The capacity above which a buffer is freed after a large frame.
const KEPT_BYTES: usize = 2 * 1024 * 1024;

/// A received frame, whose payload is in the reader's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The kind of the frame.
    pub kind: FrameKind,
    /// The id of the request that it belongs to.
    pub id: u32,
    /// The payload: a message of the type that belongs to the kind.
    pub payload: &'a [u8],
}

/// A buffer for one outgoing frame, which is reused for the next.
#[derive(Debug, Default)]
pub struct FrameBuffer {
    bytes: Vec<u8>,
}

impl FrameBuffer {
    /// Builds a frame whose payload `fill` appends, and returns the bytes to send.
    pub fn build_frame(
        &mut self,
        kind: FrameKind,
        id: u32,
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> &[u8] {
        if self.bytes.capacity() > KEPT_BYTES {
            self.bytes = Vec::new();
        }
        self.bytes.clear();
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.push(kind as u8);
        self.bytes.extend_from_slice(&id.to_le_bytes());
        fill(&mut self.bytes);
        let length = (self.bytes.len() - HEADER_BYTES + COUNTED_BYTES) as u32;
        self.bytes[..4].copy_from_slice(&length.to_le_bytes());
        &self.bytes
    }
}

/// Writes a frame with one call and flushes the stream.
///
/// # Errors
/// If the stream fails, or does not accept the frame within `deadline`.
pub async fn write_frame<W: AsyncWrite + Unpin>(
    stream: &mut W,
    frame: &[u8],
    deadline: Duration,
) -> Result<(), ProtocolError> {
    let sending = async {
        stream.write_all(frame).await?;
        stream.flush().await
    };
    match timeout(deadline, sending).await {
        Ok(sent) => Ok(sent?),
        Err(_) => Err(ProtocolError::Deadline { what: "sending a frame", deadline }),
    }
}

/// Splits the bytes that one side receives into frames, without I/O. Memory grows with the bytes that
/// arrive, not with the length that a header announces.
#[derive(Debug)]
pub struct FrameSplitter {
    side: ConnectionSide,
    buffer: Vec<u8>,
    /// The number of bytes at the start of `buffer` that belong to the last returned frame.
    taken: usize,
}

/// Reads frames of one side from a stream.
#[derive(Debug)]
pub struct FrameReader<R> {
    stream: R,
    frames: FrameSplitter,
}

/// The kind, request id and end of a frame at the start of the buffer.
type FrameBounds = (FrameKind, u32, usize);

impl FrameSplitter {
    /// Makes a splitter of the frames that `side` receives.
    pub fn new(side: ConnectionSide) -> Self {
        Self { side, buffer: Vec::with_capacity(READ_BYTES), taken: 0 }
    }

    /// Adds received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.discard_returned_frame();
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns whether no byte of the next frame was received.
    pub fn is_empty(&self) -> bool {
        self.buffer.len() == self.taken
    }

    /// Returns the next frame; `None` if more bytes are needed.
    ///
    /// # Errors
    /// If the kind or the length is not allowed. After an error no further frame can be read.
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, ProtocolError> {
        self.discard_returned_frame();
        let found = self.find_frame()?;
        Ok(found.map(|bounds| self.return_frame(bounds)))
    }

    fn discard_returned_frame(&mut self) {
        if self.taken == self.buffer.len() {
            self.buffer.clear();
        } else {
            self.buffer.drain(..self.taken);
        }
        self.taken = 0;
        if self.buffer.capacity() > KEPT_BYTES && self.buffer.len() < READ_BYTES {
            self.buffer.shrink_to(READ_BYTES);
        }
    }

    /// Finds the frame at the start of the buffer; `None` before it is complete.
    fn find_frame(&self) -> Result<Option<FrameBounds>, ProtocolError> {
        let Some(header) = self.buffer.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let [l0, l1, l2, l3, kind, i0, i1, i2, i3] = *header;
        let got = u32::from_le_bytes([l0, l1, l2, l3]);
        let payload =
            (got as usize).checked_sub(COUNTED_BYTES).ok_or(ProtocolError::Short { got })?;
        let known = FrameKind::from_byte(kind).filter(|kind| kind.receiver() == self.side);
        let kind = known.ok_or(ProtocolError::FrameKind { got: kind })?;
        let wanted = kind.payload_max();
        if payload > wanted {
            return Err(ProtocolError::Length { kind, wanted, got: payload });
        }
        let end = HEADER_BYTES + payload;
        let is_complete = self.buffer.len() >= end;
        Ok(is_complete.then_some((kind, u32::from_le_bytes([i0, i1, i2, i3]), end)))
    }

    fn return_frame(&mut self, (kind, id, end): FrameBounds) -> Frame<'_> {
        self.taken = end;
        Frame { kind, id, payload: &self.buffer[HEADER_BYTES..end] }
    }
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    /// Makes a reader of the frames that `side` receives.
    pub fn new(stream: R, side: ConnectionSide) -> Self {
        Self { stream, frames: FrameSplitter::new(side) }
    }

    /// The underlying stream; bytes that were read ahead stay in the reader.
    pub fn stream_mut(&mut self) -> &mut R {
        &mut self.stream
    }

    /// Reads the next frame. `deadline` limits the wait for its first bytes, and `what` names the
    /// frame in the error; the rest has to arrive within [`FRAME_DEADLINE`].
    ///
    /// # Errors
    /// If the stream ends, a deadline passes, or the kind or the length is not allowed. After an error
    /// no further frame can be read.
    pub async fn read_next(
        &mut self,
        what: &'static str,
        deadline: Duration,
    ) -> Result<Frame<'_>, ProtocolError> {
        self.frames.discard_returned_frame();
        let late = |what, deadline| move |_| ProtocolError::Deadline { what, deadline };
        while self.frames.is_empty() {
            let read = timeout(deadline, self.stream.read_buf(&mut self.frames.buffer));
            if read.await.map_err(late(what, deadline))?? == 0 {
                return Err(ProtocolError::StreamEnded { within_frame: false });
            }
        }
        let bounds = match self.frames.find_frame()? {
            Some(bounds) => bounds,
            None => timeout(FRAME_DEADLINE, self.read_until_complete())
                .await
                .map_err(late("the rest of a frame", FRAME_DEADLINE))??,
        };
        Ok(self.frames.return_frame(bounds))
    }

    async fn read_until_complete(&mut self) -> Result<FrameBounds, ProtocolError> {
        loop {
            let buffer = &mut self.frames.buffer;
            buffer.reserve(READ_BYTES);
            if self.stream.read_buf(buffer).await? == 0 {
                return Err(ProtocolError::StreamEnded { within_frame: true });
            }
            if let Some(bounds) = self.frames.find_frame()? {
                return Ok(bounds);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(5);

    #[tokio::test]
    async fn frames_come_out_as_they_went_in_however_they_are_cut() {
        let mut buffer = FrameBuffer::default();
        let payload: Vec<u8> = (0..100_000u32).map(|i| i as u8).collect();
        let mut wire = buffer.build_frame(FrameKind::Goodbye, 7, |out| out.push(1)).to_vec();
        wire.extend_from_slice(buffer.build_frame(FrameKind::Block, 8, |out| out.extend(&payload)));
        wire.extend_from_slice(buffer.build_frame(FrameKind::Goodbye, 9, |_| ()));
        for cut in [1, 8, 9, 10, 4096, wire.len()] {
            let (mut near, far) = tokio::io::duplex(cut);
            let sent = wire.clone();
            let sending = tokio::spawn(async move { near.write_all(&sent).await });
            let mut reader = FrameReader::new(far, ConnectionSide::Host);
            let first = reader.read_next("a frame", SOON).await.unwrap();
            assert_eq!((first.kind, first.id, first.payload), (FrameKind::Goodbye, 7, &[1][..]));
            let second = reader.read_next("a frame", SOON).await.unwrap();
            assert_eq!((second.kind, second.id), (FrameKind::Block, 8));
            assert!(second.payload == payload);
            let third = reader.read_next("a frame", SOON).await.unwrap();
            assert_eq!((third.kind, third.id, third.payload), (FrameKind::Goodbye, 9, &[][..]));
            sending.await.unwrap().unwrap();
            let ended = reader.read_next("a frame", SOON).await.unwrap_err();
            assert!(matches!(ended, ProtocolError::StreamEnded { within_frame: false }), "{ended}");
        }
    }

    #[test]
    fn a_splitter_returns_frames_wherever_the_bytes_are_cut() {
        let mut buffer = FrameBuffer::default();
        let mut wire = buffer.build_frame(FrameKind::Goodbye, 7, |out| out.push(1)).to_vec();
        wire.extend_from_slice(buffer.build_frame(FrameKind::Block, 8, |out| out.extend([3; 99])));
        for cut in [1, 8, 9, 10, 11, wire.len()] {
            let mut splitter = FrameSplitter::new(ConnectionSide::Host);
            let mut found = Vec::new();
            for part in wire.chunks(cut) {
                splitter.push(part);
                assert!(!splitter.is_empty());
                while let Some(frame) = splitter.next_frame().unwrap() {
                    found.push((frame.kind, frame.id, frame.payload.to_vec()));
                }
            }
            let wanted = [(FrameKind::Goodbye, 7, vec![1]), (FrameKind::Block, 8, vec![3; 99])];
            assert_eq!(found, wanted, "cut into {cut}");
            assert!(splitter.is_empty());
        }
    }

    #[tokio::test]
    async fn what_is_no_frame_of_this_side_is_refused_before_its_payload_comes() {
        type Expected = fn(&ProtocolError) -> bool;
        let cases: [(&[u8], Expected); 5] = [
            (&[4, 0, 0, 0, 1, 0, 0, 0, 0], |e| matches!(e, ProtocolError::Short { got: 4 })),
            (&[5, 0, 0, 0, 0x33, 0, 0, 0, 0], |e| {
                matches!(e, ProtocolError::FrameKind { got: 0x33 })
            }),
            (&[5, 0, 0, 0, 0x86, 0, 0, 0, 0], |e| {
                matches!(e, ProtocolError::FrameKind { got: 0x86 })
            }),
            (&[255, 255, 255, 255, 1, 0, 0, 0, 0], |e| {
                matches!(e, ProtocolError::Length { kind: FrameKind::Hello, .. })
            }),
            (&[7, 0, 0, 0, 7, 0, 0, 0, 0], |e| {
                matches!(e, ProtocolError::Length { kind: FrameKind::Goodbye, wanted: 1, got: 2 })
            }),
        ];
        for (bytes, expected) in cases {
            let mut reader = FrameReader::new(bytes, ConnectionSide::Host);
            let read = reader.read_next("a frame", SOON).await;
            let error = read.map(|frame| frame.kind).unwrap_err();
            assert!(expected(&error), "{error}");
        }
        let mut reader = FrameReader::new(&[9, 0, 0, 0, 5][..], ConnectionSide::Host);
        let cut = reader.read_next("a frame", SOON).await;
        assert!(matches!(cut, Err(ProtocolError::StreamEnded { within_frame: true })));
    }

    #[tokio::test(start_paused = true)]
    async fn silence_before_and_within_a_frame_has_an_end() {
        let (mut near, far) = tokio::io::duplex(64);
        let mut reader = FrameReader::new(far, ConnectionSide::Host);
        let silent = reader.read_next("a frame", SOON).await.map(|frame| frame.kind);
        assert!(matches!(silent, Err(ProtocolError::Deadline { what: "a frame", .. })));
        near.write_all(&[5, 0]).await.unwrap();
        let stuck = reader.read_next("a frame", SOON).await.map(|frame| frame.kind);
        assert!(matches!(stuck, Err(ProtocolError::Deadline { what: "the rest of a frame", .. })));
    }
}
