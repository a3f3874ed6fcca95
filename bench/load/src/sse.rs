//! Server-sent events (WHATWG HTML, section 9.2), read as their bytes come.

/// The longest line, in bytes: one event with a whole answer that was not cut into tokens.
const LINE_BYTES_MAX: usize = 4 << 20;

/// An event is longer than any honest one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("event is longer than {LINE_BYTES_MAX} bytes")]
pub struct EventTooLong;

/// The reader of a stream of events, of which it hands on the data.
#[derive(Debug, Default)]
pub struct EventStreamParser {
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    after_return: bool,
}

impl EventStreamParser {
    /// Takes the bytes that came; `each` is given the data of every event that is now whole.
    ///
    /// # Errors
    /// [`EventTooLong`], or the first error of `each`.
    pub fn feed<E: From<EventTooLong>>(
        &mut self,
        mut bytes: &[u8],
        mut each: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        while !bytes.is_empty() {
            if std::mem::take(&mut self.after_return) && bytes[0] == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            let end = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let Some(end) = end else { return self.push(bytes).map_err(E::from) };
            self.after_return = bytes[end] == b'\r';
            let now = &bytes[..end];
            bytes = &bytes[end + 1..];
            if self.line.is_empty() {
                self.parse_line(now, &mut each)?;
            } else {
                self.push(now)?;
                let line = std::mem::take(&mut self.line);
                self.parse_line(&line, &mut each)?;
                self.line = line;
                self.line.clear();
            }
        }
        Ok(())
    }

    fn push(&mut self, bytes: &[u8]) -> Result<(), EventTooLong> {
        self.line.extend_from_slice(bytes);
        if self.line.len() > LINE_BYTES_MAX { Err(EventTooLong) } else { Ok(()) }
    }

    fn parse_line<E: From<EventTooLong>>(
        &mut self,
        line: &[u8],
        each: &mut impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        if line.is_empty() {
            let told = if self.has_data { each(&self.data) } else { Ok(()) };
            self.data.clear();
            self.has_data = false;
            return told;
        }
        // Comments, ids and names of events are not needed here.
        let Some(value) = line.strip_prefix(b"data") else { return Ok(()) };
        let value = match value.split_first() {
            None => &[],
            Some((b':', rest)) => rest.strip_prefix(b" ").unwrap_or(rest),
            Some(_) => return Ok(()),
        };
        if std::mem::replace(&mut self.has_data, true) {
            self.data.push(b'\n');
        }
        self.data.extend_from_slice(value);
        if self.data.len() > LINE_BYTES_MAX { Err(EventTooLong.into()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8], size: usize) -> Result<Vec<String>, EventTooLong> {
        let (mut events, mut told) = (EventStreamParser::default(), Vec::new());
        for piece in bytes.chunks(size) {
            events.feed(piece, |data| {
                told.push(String::from_utf8_lossy(data).into_owned());
                Ok::<(), EventTooLong>(())
            })?;
        }
        Ok(told)
    }

    #[test]
    fn events_are_the_same_however_their_bytes_come() {
        let text = "data: {\"a\":1}\n\n: comment\nevent: x\r\ndata:b\rdata\ndata:  c\r\n\r\nid: 4\n\n\
                    dataset: no\ndata: [DONE]\n\ndata: cut";
        for size in 1..text.len() {
            let told = read(text.as_bytes(), size).unwrap();
            assert_eq!(told, ["{\"a\":1}", "b\n\n c", "[DONE]"], "{size}");
        }
    }

    #[test]
    fn an_event_without_an_end_is_refused_at_the_limit() {
        let line = vec![b'x'; LINE_BYTES_MAX + 1];
        assert_eq!(read(&line, 4096), Err(EventTooLong));
        let many = b"data: 0123456789abcdef\n".repeat(LINE_BYTES_MAX / 16);
        assert_eq!(read(&many, 4096), Err(EventTooLong));
    }
}
