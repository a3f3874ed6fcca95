//! The end of a head (RFC 9112 section 2.1), among the bytes received so far.

use bytes::{Buf, Bytes, BytesMut};

use super::error::Http1Error;

/// The largest head that is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadLimits {
    /// The largest number of bytes of the first line and the fields together.
    pub bytes: usize,
    /// The largest number of fields, at most 1,024.
    pub fields: usize,
}

/// Finds heads. Each byte is looked at a bounded number of times, however small the pieces are in
/// which the bytes come.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeadScanner {
    limits: HeadLimits,
    /// The number of bytes in which no end of a head begins.
    scanned: usize,
    /// The number of times that an incomplete head was looked at.
    looks: u8,
}

impl HeadScanner {
    pub(super) fn new(limits: HeadLimits) -> Self {
        Self { limits, scanned: 0, looks: 0 }
    }

    pub(super) fn limits(&self) -> HeadLimits {
        self.limits
    }

    /// Whether an incomplete head was looked at for the first time just now.
    pub(super) fn is_first_look(&self) -> bool {
        self.looks == 1
    }

    /// Takes the next head from `received`, with the empty line that ends it; `None` if it is not
    /// complete yet. Empty lines before it are skipped (RFC 9112 section 2.2).
    ///
    /// # Errors
    /// [`Http1Error::HeadTooLong`], and [`Http1Error::Head`] if it does not begin with `beginning`.
    pub(super) fn take_head(
        &mut self,
        received: &mut BytesMut,
        beginning: Option<&[u8]>,
    ) -> Result<Option<Bytes>, Http1Error> {
        if self.scanned == 0 {
            skip_empty_lines(received);
            if received[..] == *b"\r" {
                return Ok(None);
            }
        }
        // A few bytes may have come before, and too few to see.
        if self.scanned < beginning.map_or(0, <[u8]>::len) {
            let mut pairs = received.iter().zip(beginning.unwrap_or_default());
            if pairs.any(|(got, wanted)| got != wanted) {
                return Err(Http1Error::Head);
            }
        }
        let limit = self.limits.bytes;
        match find_head_end(received, self.scanned) {
            Some(length) if length <= limit => {
                (self.scanned, self.looks) = (0, 0);
                Ok(Some(received.split_to(length).freeze()))
            }
            None if received.len() < limit => {
                // An end may have begun with the last two bytes.
                self.scanned = received.len().saturating_sub(2);
                self.looks = self.looks.saturating_add(u8::from(!received.is_empty()));
                Ok(None)
            }
            _ => Err(Http1Error::HeadTooLong { limit }),
        }
    }
}

fn skip_empty_lines(received: &mut BytesMut) {
    loop {
        let skipped = match received[..] {
            [b'\n', ..] => 1,
            [b'\r', b'\n', ..] => 2,
            _ => return,
        };
        received.advance(skipped);
    }
}

/// The number of bytes of the head, with the empty line that ends it. An end is looked for from
/// `from` on.
fn find_head_end(received: &[u8], from: usize) -> Option<usize> {
    let mut start = from;
    while let Some(feed) = memchr::memchr(b'\n', &received[start..]) {
        let next = start + feed + 1;
        match received[next..] {
            [b'\n', ..] => return Some(next + 1),
            [b'\r', b'\n', ..] => return Some(next + 2),
            _ => start = next,
        }
    }
    None
}
