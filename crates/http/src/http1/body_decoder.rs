//! Bodies as they are received (RFC 9112 sections 6 and 7).

use bytes::{Buf, Bytes, BytesMut};
use http::HeaderMap;
use httparse::{EMPTY_HEADER, Status};

use super::{
    error::Http1Error,
    fields::{FIELDS_MAX, collect_fields, field_error},
    head_scanner::HeadLimits,
};

/// The largest number of hexadecimal digits of a chunk's size. 2^60 bytes are enough for a chunk.
const SIZE_DIGITS_MAX: u8 = 15;
/// The largest number of bytes of the extensions of all chunks of a body. Nobody uses them.
const EXTENSION_BYTES_MAX: usize = 16 * 1024;

/// The largest number of bytes of chunks that are joined, and of digits of their sizes.
const JOINED_BYTES_MAX: usize = 16 * 1024;
const SMALL_SIZE_DIGITS_MAX: usize = 4;

/// The framing of a body, which tells its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFraming {
    /// There is no body.
    Empty,
    /// The number of bytes is known.
    Length(u64),
    /// The body comes in chunks.
    Chunked,
    /// The body ends with the connection.
    UntilEnd,
}

/// Decodes one body.
#[derive(Debug)]
pub struct BodyDecoder {
    state: DecoderState,
    limits: HeadLimits,
    extension_bytes: usize,
    joins_chunks: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DecoderState {
    /// This many bytes follow, and then the end.
    Length(u64),
    UntilEnd,
    /// Digits of a chunk's size: the value and the number of digits so far.
    Size(u64, u8),
    /// White space after the size.
    SizeSpace(u64),
    /// Extensions of the chunk.
    Extension(u64),
    /// The line feed after a size.
    SizeFeed(u64),
    /// This many bytes of a chunk follow.
    Chunk(u64),
    /// The line end after a chunk's data.
    DataReturn,
    DataFeed,
    /// The trailers; the number of bytes in which no end of them begins.
    Trailers(usize),
    Complete,
    /// What follows the fault is part of no body.
    Failed(Http1Error),
}

/// A part of a body.
#[derive(Debug, PartialEq, Eq)]
pub enum BodyPiece {
    /// Some bytes, at least one.
    Data(Bytes),
    /// The trailers, at least one field. They end the body.
    Trailers(HeaderMap),
    /// The body is complete.
    End,
    /// More bytes have to be received.
    Incomplete,
}

impl BodyDecoder {
    /// A decoder of a body that ends as `framing` says. `limits` hold for its trailers.
    pub fn new(framing: BodyFraming, limits: HeadLimits) -> Self {
        let state = match framing {
            BodyFraming::Empty | BodyFraming::Length(0) => DecoderState::Complete,
            BodyFraming::Length(length) => DecoderState::Length(length),
            BodyFraming::Chunked => DecoderState::Size(0, 0),
            BodyFraming::UntilEnd => DecoderState::UntilEnd,
        };
        Self { state, limits, extension_bytes: 0, joins_chunks: false }
    }

    /// The decoder, which now makes one piece of small chunks that have come together: for those who
    /// pass them on and do not count them.
    pub fn joining_small_chunks(self) -> Self {
        Self { joins_chunks: true, ..self }
    }

    /// Whether the whole body has been decoded.
    pub fn is_complete(&self) -> bool {
        self.state == DecoderState::Complete
    }

    /// The number of bytes that follow, if it is known.
    pub fn remaining_bytes(&self) -> Option<u64> {
        match self.state {
            DecoderState::Length(left) => Some(left),
            DecoderState::Complete => Some(0),
            _ => None,
        }
    }

    /// Takes the next piece from `received`.
    ///
    /// # Errors
    /// [`Http1Error`] for chunks or trailers that are malformed or too long. The error stays.
    pub fn decode(&mut self, received: &mut BytesMut) -> Result<BodyPiece, Http1Error> {
        let decoded = self.decode_next(received);
        if let Err(fault) = decoded {
            self.state = DecoderState::Failed(fault);
        }
        decoded
    }

    fn decode_next(&mut self, received: &mut BytesMut) -> Result<BodyPiece, Http1Error> {
        loop {
            match self.state {
                DecoderState::Failed(fault) => return Err(fault),
                DecoderState::Complete => return Ok(BodyPiece::End),
                _ if received.is_empty() => return Ok(BodyPiece::Incomplete),
                DecoderState::UntilEnd => return Ok(BodyPiece::Data(received.split().freeze())),
                DecoderState::Length(left) => {
                    let (data, left) = split_at_most(received, left);
                    self.state = match left {
                        0 => DecoderState::Complete,
                        left => DecoderState::Length(left),
                    };
                    return Ok(BodyPiece::Data(data));
                }
                DecoderState::Chunk(left) => {
                    let (data, left) = split_at_most(received, left);
                    self.state = match left {
                        0 => DecoderState::DataReturn,
                        left => DecoderState::Chunk(left),
                    };
                    if left == 0 {
                        self.skip_line_end(received);
                    }
                    return Ok(BodyPiece::Data(self.join_small_chunks(data, received)));
                }
                DecoderState::Trailers(scanned) => return self.decode_trailers(received, scanned),
                _ => {
                    let byte = received.get_u8();
                    self.state = self.read_framing_byte(byte)?;
                }
            }
        }
    }

    /// Notes that the stream has ended, which completes a body without another end.
    ///
    /// # Errors
    /// [`Http1Error::CutShort`] if the body had an end of its own, which has not come.
    pub fn finish(&mut self) -> Result<(), Http1Error> {
        match self.state {
            DecoderState::Complete => Ok(()),
            DecoderState::UntilEnd => {
                self.state = DecoderState::Complete;
                Ok(())
            }
            DecoderState::Failed(fault) => Err(fault),
            _ => Err(Http1Error::CutShort),
        }
    }

    /// Reads what has come of the line end after a chunk and of the last chunk, so that the end of a
    /// body is known with its last data if both came together.
    fn skip_line_end(&mut self, received: &mut BytesMut) {
        if received.starts_with(b"\r\n0\r\n\r\n") {
            received.advance(b"\r\n0\r\n\r\n".len());
            self.state = DecoderState::Complete;
        } else if received.starts_with(b"\r\n") {
            received.advance(2);
            self.state = DecoderState::Size(0, 0);
        }
    }

    /// Joins the data of a chunk with that of the small chunks that have come whole after it, if they are
    /// to be joined.
    fn join_small_chunks(&mut self, first: Bytes, received: &mut BytesMut) -> Bytes {
        let mut joined = BytesMut::new();
        while self.joins_chunks
            && self.state == DecoderState::Size(0, 0)
            && let Some((start, size)) = find_whole_chunk(received)
            && first.len().max(joined.len()) + size <= JOINED_BYTES_MAX
        {
            if joined.is_empty() {
                joined.reserve(JOINED_BYTES_MAX.min(first.len() + received.len()));
                joined.extend_from_slice(&first);
            }
            joined.extend_from_slice(&received[start..start + size]);
            received.advance(start + size);
            self.skip_line_end(received);
        }
        if joined.is_empty() { first } else { joined.freeze() }
    }

    fn read_framing_byte(&mut self, byte: u8) -> Result<DecoderState, Http1Error> {
        let malformed = Err(Http1Error::Chunk);
        Ok(match (self.state, byte) {
            (DecoderState::Size(size, digits), b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                if digits == SIZE_DIGITS_MAX {
                    return malformed;
                }
                let digit = char::from(byte).to_digit(16).map_or(0, u64::from);
                DecoderState::Size(size * 16 + digit, digits + 1)
            }
            (DecoderState::Size(_, 0), _) => return malformed,
            (
                DecoderState::Size(size, _)
                | DecoderState::SizeSpace(size)
                | DecoderState::Extension(size),
                b'\r',
            ) => DecoderState::SizeFeed(size),
            (DecoderState::Size(size, _) | DecoderState::SizeSpace(size), b';') => {
                DecoderState::Extension(size)
            }
            (DecoderState::Size(size, _) | DecoderState::SizeSpace(size), b' ' | b'\t') => {
                self.count_extension_byte()?;
                DecoderState::SizeSpace(size)
            }
            (DecoderState::Extension(size), byte) if byte != b'\n' => {
                self.count_extension_byte()?;
                DecoderState::Extension(size)
            }
            (DecoderState::SizeFeed(0), b'\n') => DecoderState::Trailers(0),
            (DecoderState::SizeFeed(size), b'\n') => DecoderState::Chunk(size),
            (DecoderState::DataReturn, b'\r') => DecoderState::DataFeed,
            (DecoderState::DataFeed, b'\n') => DecoderState::Size(0, 0),
            _ => return malformed,
        })
    }

    fn count_extension_byte(&mut self) -> Result<(), Http1Error> {
        self.extension_bytes += 1;
        match self.extension_bytes > EXTENSION_BYTES_MAX {
            true => Err(Http1Error::TrailersTooLong { limit: EXTENSION_BYTES_MAX }),
            false => Ok(()),
        }
    }

    fn decode_trailers(
        &mut self,
        received: &mut BytesMut,
        scanned: usize,
    ) -> Result<BodyPiece, Http1Error> {
        let limit = self.limits.bytes;
        if received.starts_with(b"\r\n") {
            received.advance(2);
            self.state = DecoderState::Complete;
            return Ok(BodyPiece::End);
        }
        let from = scanned.min(received.len());
        let end = received[from..].windows(4).position(|bytes| bytes == b"\r\n\r\n");
        let Some(end) = end else {
            self.state = DecoderState::Trailers(received.len().saturating_sub(3));
            return match received.len() < limit {
                true => Ok(BodyPiece::Incomplete),
                false => Err(Http1Error::TrailersTooLong { limit }),
            };
        };
        let length = from + end + 4;
        if length > limit {
            return Err(Http1Error::TrailersTooLong { limit });
        }
        let trailers = received.split_to(length).freeze();
        // A bare line feed ends a line for some readers only (RFC 9112 section 2.2).
        if trailers.windows(2).any(|pair| pair[1] == b'\n' && pair[0] != b'\r') {
            return Err(Http1Error::Chunk);
        }
        self.state = DecoderState::Complete;
        let fields_max = self.limits.fields.min(FIELDS_MAX);
        let mut room = [EMPTY_HEADER; FIELDS_MAX];
        let parsed = httparse::parse_headers(&trailers, &mut room[..fields_max]);
        match parsed.map_err(|error| field_error(error, fields_max, Http1Error::Chunk))? {
            Status::Complete((parsed, fields)) if parsed == length => {
                let fields = collect_fields(&trailers, fields).map_err(|_| Http1Error::Chunk)?;
                Ok(BodyPiece::Trailers(fields))
            }
            _ => Err(Http1Error::Chunk),
        }
    }
}

/// The beginning and the number of bytes of the next chunk's data, if all of it has come, is small and
/// has a size line without extensions, as every program writes it.
fn find_whole_chunk(received: &[u8]) -> Option<(usize, usize)> {
    let line = received.iter().take(SMALL_SIZE_DIGITS_MAX + 1).position(|&byte| byte == b'\r')?;
    let digits = std::str::from_utf8(&received[..line]).ok()?;
    // The standard library would take a sign.
    let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let size = usize::from_str_radix(digits, 16).ok().filter(|&size| is_hex && size > 0)?;
    let start = line + 2;
    let has_line_ends = received.get(line..start)? == b"\r\n"
        && received.get(start + size..start + size + 2)? == b"\r\n";
    has_line_ends.then_some((start, size))
}

/// Takes at most `left` bytes, and returns them with the number of bytes that still follow.
fn split_at_most(received: &mut BytesMut, left: u64) -> (Bytes, u64) {
    let taken = usize::try_from(left).map_or(received.len(), |left| left.min(received.len()));
    (received.split_to(taken).freeze(), left - taken as u64)
}
