//! An answer of HTTP/1.1 (RFC 9112), read as its bytes come.
//!
//! Hand-made, because a client library hands bytes on through tasks of its own: what is stamped
//! there is when a task ran, not when the bytes came.

/// The most bytes of status line, fields and trailers together.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// The longest line with the size of a chunk, in bytes; extensions are skipped.
const SIZE_LINE_BYTES_MAX: usize = 1 << 10;
/// The longest answer, in bytes: a million tokens, each in an event of 250 bytes.
const BODY_BYTES_MAX: u64 = 256 << 20;

/// The reason for which an answer is not HTTP/1.1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HttpError {
    /// The first line is not a status line.
    #[error("status line: wanted HTTP/1.x and three digits")]
    StatusLine,
    /// A field that frames the body cannot be read.
    #[error("field {name} cannot be read")]
    Field {
        /// The name of the field.
        name: &'static str,
    },
    /// Head or trailers are too long.
    #[error("head is longer than {HEAD_BYTES_MAX} bytes")]
    HeadTooLong,
    /// The size of a chunk is not a hexadecimal number, or the chunk does not end where its size says.
    #[error("chunk cannot be read")]
    Chunk,
    /// The body is too long.
    #[error("body is longer than {BODY_BYTES_MAX} bytes")]
    BodyTooLong,
    /// Bytes came after the end of the answer.
    #[error("server sent bytes after the end of the answer")]
    Extra,
    /// The connection ended before the answer did.
    #[error("connection ended in the middle of the answer")]
    Early,
}

/// The reader of one answer. It hands on the bytes of the body without their framing.
#[derive(Debug)]
pub struct ResponseParser {
    state: ParserState,
    line: Vec<u8>,
    head_bytes: usize,
    body_bytes: u64,
    status: u16,
    framing: Framing,
    keep_alive: bool,
    event_stream: bool,
    queue_s: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ParserState {
    StatusLine,
    Fields,
    Length(u64),
    ToEnd,
    ChunkSize,
    Chunk(u64),
    ChunkEnd,
    Trailers,
    Completed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Chunked,
    Length(u64),
    ToEnd,
}

impl Default for ResponseParser {
    fn default() -> Self {
        Self {
            state: ParserState::StatusLine,
            line: Vec::new(),
            head_bytes: 0,
            body_bytes: 0,
            status: 0,
            framing: Framing::ToEnd,
            keep_alive: true,
            event_stream: false,
            queue_s: None,
        }
    }
}

impl ResponseParser {
    /// The status; 0 before it is known.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Whether the whole answer was read.
    pub fn is_done(&self) -> bool {
        self.state == ParserState::Completed
    }

    /// Whether the body says it is server-sent events.
    pub fn is_event_stream(&self) -> bool {
        self.event_stream
    }

    /// Whether the connection takes another request after this answer.
    pub fn keeps_alive(&self) -> bool {
        self.keep_alive && self.framing != Framing::ToEnd
    }

    /// The time that the request waited, in seconds, where the server says it
    /// (`server-timing: queue;dur=…`).
    pub fn queue_s(&self) -> Option<f64> {
        self.queue_s
    }

    /// Takes the bytes that came; `body` is given those of the body.
    ///
    /// # Errors
    /// [`HttpError`]; what comes after an error is not to be read.
    pub fn feed(&mut self, mut bytes: &[u8], mut body: impl FnMut(&[u8])) -> Result<(), HttpError> {
        while !bytes.is_empty() {
            match self.state {
                ParserState::Completed => return Err(HttpError::Extra),
                ParserState::ToEnd => {
                    self.count_body_bytes(bytes.len())?;
                    body(bytes);
                    return Ok(());
                }
                ParserState::Length(left) | ParserState::Chunk(left) => {
                    let here = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                    let (now, rest) = bytes.split_at(here);
                    self.count_body_bytes(here)?;
                    body(now);
                    bytes = rest;
                    self.set_bytes_left(left - here as u64);
                }
                _ => {
                    let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
                        return self.push(bytes);
                    };
                    let (now, rest) = bytes.split_at(end + 1);
                    self.push(now)?;
                    bytes = rest;
                    let line = std::mem::take(&mut self.line);
                    self.parse_line(strip_line_end(&line))?;
                }
            }
        }
        Ok(())
    }

    /// Takes note that the connection ended.
    ///
    /// # Errors
    /// [`HttpError::Early`] if the answer had not.
    pub fn end_of_input(&mut self) -> Result<(), HttpError> {
        match self.state {
            ParserState::Completed => Ok(()),
            ParserState::ToEnd => {
                self.state = ParserState::Completed;
                Ok(())
            }
            _ => Err(HttpError::Early),
        }
    }

    fn count_body_bytes(&mut self, bytes: usize) -> Result<(), HttpError> {
        self.body_bytes += bytes as u64;
        if self.body_bytes > BODY_BYTES_MAX { Err(HttpError::BodyTooLong) } else { Ok(()) }
    }

    fn push(&mut self, bytes: &[u8]) -> Result<(), HttpError> {
        self.line.extend_from_slice(bytes);
        let in_body = matches!(self.state, ParserState::ChunkSize | ParserState::ChunkEnd);
        if in_body {
            return if self.line.len() > SIZE_LINE_BYTES_MAX {
                Err(HttpError::Chunk)
            } else {
                Ok(())
            };
        }
        self.head_bytes += bytes.len();
        if self.head_bytes > HEAD_BYTES_MAX { Err(HttpError::HeadTooLong) } else { Ok(()) }
    }

    fn set_bytes_left(&mut self, left: u64) {
        self.state = match (self.state, left) {
            (ParserState::Length(_), 0) => ParserState::Completed,
            (ParserState::Length(_), left) => ParserState::Length(left),
            (_, 0) => ParserState::ChunkEnd,
            (_, left) => ParserState::Chunk(left),
        };
    }

    fn parse_line(&mut self, line: &[u8]) -> Result<(), HttpError> {
        match self.state {
            ParserState::StatusLine => self.parse_status_line(line),
            ParserState::Fields if line.is_empty() => {
                self.finish_head();
                Ok(())
            }
            ParserState::Fields => self.parse_field(line),
            ParserState::ChunkSize => self.parse_chunk_size(line),
            ParserState::ChunkEnd if line.is_empty() => {
                self.state = ParserState::ChunkSize;
                Ok(())
            }
            ParserState::ChunkEnd => Err(HttpError::Chunk),
            // No trailer is needed here.
            _ if line.is_empty() => {
                self.state = ParserState::Completed;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn parse_status_line(&mut self, line: &[u8]) -> Result<(), HttpError> {
        let rest = line.strip_prefix(b"HTTP/1.").ok_or(HttpError::StatusLine)?;
        let (b'0'..=b'1', b' ', digits) =
            (*rest.first().unwrap_or(&0), *rest.get(1).unwrap_or(&0), rest.get(2..5))
        else {
            return Err(HttpError::StatusLine);
        };
        let digits = digits.filter(|digits| digits.iter().all(u8::is_ascii_digit));
        let digits = digits.ok_or(HttpError::StatusLine)?;
        self.status = digits.iter().fold(0, |sum, digit| sum * 10 + u16::from(digit - b'0'));
        self.keep_alive = rest[0] == b'1';
        self.state = ParserState::Fields;
        Ok(())
    }

    fn parse_field(&mut self, line: &[u8]) -> Result<(), HttpError> {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else {
            return Err(HttpError::Field { name: "without a colon" });
        };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.eq_ignore_ascii_case(b"transfer-encoding") {
            if !value.eq_ignore_ascii_case(b"chunked") {
                return Err(HttpError::Field { name: "transfer-encoding" });
            }
            self.framing = Framing::Chunked;
        } else if name.eq_ignore_ascii_case(b"content-length") {
            let text = std::str::from_utf8(value).ok().filter(|text| !text.starts_with('+'));
            let length = text.and_then(|text| text.parse().ok());
            let length = length.ok_or(HttpError::Field { name: "content-length" })?;
            // RFC 9112 section 6.3: chunked overrides a length.
            if self.framing != Framing::Chunked {
                self.framing = Framing::Length(length);
            }
        } else if name.eq_ignore_ascii_case(b"connection") {
            let close = value.split(|byte| *byte == b',');
            self.keep_alive &=
                !close.into_iter().any(|word| word.trim_ascii().eq_ignore_ascii_case(b"close"));
        } else if name.eq_ignore_ascii_case(b"content-type") {
            let kind = value.split(|byte| *byte == b';').next().unwrap_or_default();
            self.event_stream = kind.trim_ascii().eq_ignore_ascii_case(b"text/event-stream");
        } else if name.eq_ignore_ascii_case(b"server-timing") {
            self.queue_s = parse_queue_s(value).or(self.queue_s);
        }
        Ok(())
    }

    fn finish_head(&mut self) {
        self.state = match (self.status, self.framing) {
            // An interim answer: the real one follows (RFC 9110 section 15.2).
            (100..=199, _) => ParserState::StatusLine,
            (204 | 304, _) | (_, Framing::Length(0)) => ParserState::Completed,
            (_, Framing::Chunked) => ParserState::ChunkSize,
            (_, Framing::Length(length)) => ParserState::Length(length),
            (_, Framing::ToEnd) => ParserState::ToEnd,
        };
    }

    fn parse_chunk_size(&mut self, line: &[u8]) -> Result<(), HttpError> {
        let digits = line.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        let text = std::str::from_utf8(digits).ok();
        let text = text.filter(|text| text.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let size = text.and_then(|text| u64::from_str_radix(text, 16).ok());
        self.state = match size.ok_or(HttpError::Chunk)? {
            0 => ParserState::Trailers,
            size => ParserState::Chunk(size),
        };
        Ok(())
    }
}

/// The line without its end.
fn strip_line_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Reads `queue;dur=12.5`, in milliseconds, among the metrics of a Server-Timing field (W3C), and gives seconds.
fn parse_queue_s(value: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(value).ok()?;
    let metric = text.split(',').map(str::trim).find(|metric| {
        metric.split(';').next().is_some_and(|name| name.trim().eq_ignore_ascii_case("queue"))
    })?;
    let dur = metric.split(';').find_map(|part| part.trim().strip_prefix("dur="))?;
    let ms: f64 = dur.trim().parse().ok()?;
    (ms.is_finite() && ms >= 0.0).then_some(ms / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads `bytes` in pieces of `size` bytes.
    fn read(bytes: &[u8], size: usize) -> Result<(ResponseParser, Vec<u8>), HttpError> {
        let (mut answer, mut body) = (ResponseParser::default(), Vec::new());
        for piece in bytes.chunks(size) {
            answer.feed(piece, |part| body.extend_from_slice(part))?;
        }
        Ok((answer, body))
    }

    const CHUNKED: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\
        Content-Type: text/event-stream; charset=utf-8\r\nserver-timing: cache, queue;dur=12.5\r\n\
        Transfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n1\r\n!\r\n0\r\nx-after: 1\r\n\r\n";

    #[test]
    fn a_chunked_answer_is_the_same_however_its_bytes_come() {
        for size in 1..CHUNKED.len() {
            let (answer, body) = read(CHUNKED, size).unwrap();
            assert_eq!((answer.status(), &body[..]), (200, &b"hello!"[..]));
            assert!(answer.is_done() && answer.is_event_stream() && answer.keeps_alive());
            assert_eq!(answer.queue_s(), Some(0.0125));
        }
    }

    #[test]
    fn a_length_and_the_end_of_the_connection_frame_a_body_too() {
        let length = b"HTTP/1.1 429 Busy\r\ncontent-length: 3\r\nconnection: close\r\n\r\nno!";
        let (answer, body) = read(length, 2).unwrap();
        assert_eq!((answer.status(), &body[..], answer.is_done()), (429, &b"no!"[..], true));
        assert!(!answer.keeps_alive());
        let (mut answer, body) = read(b"HTTP/1.0 200 OK\n\nall", 4).unwrap();
        assert_eq!((&body[..], answer.is_done()), (&b"all"[..], false));
        answer.end_of_input().unwrap();
        assert!(answer.is_done() && !answer.keeps_alive());
    }

    #[test]
    fn what_is_no_http_is_a_typed_error() {
        let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        let long = format!("HTTP/1.1 200 OK\r\nx: {}", "y".repeat(HEAD_BYTES_MAX));
        for (text, wanted) in [
            ("SSH-2.0\r\n".to_owned(), HttpError::StatusLine),
            ("HTTP/1.1 2x0 OK\r\n".to_owned(), HttpError::StatusLine),
            ("HTTP/1.1\r\n".to_owned(), HttpError::StatusLine),
            (format!("{head}x\r\n"), HttpError::Chunk),
            (format!("{head}1\r\nabc\r\n"), HttpError::Chunk),
            (format!("{head}{}\r\n", "f".repeat(17)), HttpError::Chunk),
            (format!("{head}0\r\n\r\nmore"), HttpError::Extra),
            (format!("{head}ffffffff"), HttpError::Early),
            (long, HttpError::HeadTooLong),
            (
                "HTTP/1.1 200 OK\r\ncontent-length: -1\r\n".into(),
                HttpError::Field { name: "content-length" },
            ),
        ] {
            let got = read(text.as_bytes(), 7).and_then(|(mut answer, _)| answer.end_of_input());
            assert_eq!(got, Err(wanted), "{}", &text[..text.len().min(80)]);
        }
    }
}
