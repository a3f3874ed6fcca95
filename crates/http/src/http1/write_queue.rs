//! The bytes of a message that wait to be written.

use std::io::IoSlice;

use bytes::{Buf, Bytes, BytesMut};

/// The largest number of bytes that are copied next to others, so that they are one piece.
const COPIED_BYTES_MAX: usize = 2048;

/// The number of bytes for which room is made at first: those of a head.
const HEAD_BYTES: usize = 512;

/// Bytes that wait to be written: heads and small pieces in a buffer, and at most one large piece of
/// a body, which is not copied.
#[derive(Debug, Default)]
pub struct WriteQueue {
    before: BytesMut,
    large: Bytes,
    after: BytesMut,
}

impl WriteQueue {
    /// Queues a copy of `bytes`.
    pub fn push(&mut self, bytes: &[u8]) {
        let buffer = if self.large.is_empty() { &mut self.before } else { &mut self.after };
        if buffer.capacity() == 0 {
            buffer.reserve(HEAD_BYTES);
        }
        buffer.extend_from_slice(bytes);
    }

    /// Queues a piece of a body. It is not copied if it is large and the only one.
    pub fn push_data(&mut self, data: Bytes) {
        if data.len() <= COPIED_BYTES_MAX || !self.large.is_empty() {
            self.push(&data);
        } else {
            self.large = data;
        }
    }

    /// Gives memory back that a head does not need. Nothing may wait.
    pub fn release_large_buffers(&mut self) {
        if self.is_empty() && self.before.capacity().max(self.after.capacity()) > COPIED_BYTES_MAX {
            *self = Self::default();
        }
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        !self.has_remaining()
    }
}

impl Buf for WriteQueue {
    fn remaining(&self) -> usize {
        self.before.len() + self.large.len() + self.after.len()
    }

    fn chunk(&self) -> &[u8] {
        [&self.before[..], &self.large, &self.after]
            .into_iter()
            .find(|part| !part.is_empty())
            .unwrap_or_default()
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let parts = [&self.before[..], &self.large, &self.after];
        let parts = parts.into_iter().filter(|part| !part.is_empty());
        let mut count = 0;
        for (slice, part) in slices.iter_mut().zip(parts) {
            *slice = IoSlice::new(part);
            count += 1;
        }
        count
    }

    fn advance(&mut self, written: usize) {
        let mut left = written;
        let mut take = |length: usize| {
            let taken = left.min(length);
            left -= taken;
            taken
        };
        let taken = take(self.before.len());
        self.before.advance(taken);
        let taken = take(self.large.len());
        self.large.advance(taken);
        if self.large.is_empty() {
            // Later pieces must not get before earlier ones.
            self.large = Bytes::new();
            if !self.after.is_empty() && self.before.is_empty() {
                std::mem::swap(&mut self.before, &mut self.after);
            }
        }
        let taken = take(self.before.len());
        self.before.advance(taken);
        assert_eq!(left, 0, "more was written than waited");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_leave_in_the_order_in_which_they_came() {
        let large = Bytes::from(vec![b'x'; COPIED_BYTES_MAX + 1]);
        let mut wanted = b"head".to_vec();
        wanted.extend_from_slice(&large);
        wanted.extend_from_slice(b"tail");
        wanted.extend_from_slice(&large);
        wanted.extend_from_slice(b"end");
        for step in [1, 3, 4, 5, 2048, 2053, 2057, 10_000] {
            let mut queue = WriteQueue::default();
            queue.push(b"head");
            queue.push_data(large.clone());
            queue.push(b"tail");
            queue.push_data(large.clone());
            queue.push(b"end");
            assert_eq!(queue.remaining(), wanted.len());
            let mut written = Vec::new();
            while queue.has_remaining() {
                let mut slices = [IoSlice::new(&[]); 3];
                let count = queue.chunks_vectored(&mut slices);
                let bytes: Vec<u8> =
                    slices[..count].iter().flat_map(|slice| slice.iter()).copied().collect();
                assert_eq!(queue.chunk()[0], bytes[0]);
                let taken = bytes.len().min(step);
                written.extend_from_slice(&bytes[..taken]);
                queue.advance(taken);
            }
            assert!(queue.is_empty());
            assert!(written == wanted, "step {step}");
        }
    }

    #[test]
    fn a_piece_that_comes_while_another_is_half_written_leaves_after_it() {
        let mut queue = WriteQueue::default();
        queue.push(b"ab");
        queue.push_data(Bytes::from(vec![b'x'; COPIED_BYTES_MAX + 1]));
        queue.push(b"cd");
        queue.advance(2 + COPIED_BYTES_MAX + 1 + 1);
        queue.push(b"ef");
        assert_eq!(queue.copy_to_bytes(queue.remaining()), &b"def"[..]);
    }
}
