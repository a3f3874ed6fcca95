//! Bodies as they are sent (RFC 9112 sections 6 and 7).

use bytes::{Buf, Bytes};
use http::HeaderMap;

use super::{error::Http1Error, request_head::encode_fields, write_queue::WriteQueue};

const LAST_CHUNK: &[u8] = b"0\r\n";
const LINE_END: &[u8] = b"\r\n";

/// Encodes one body, whose end is told by its length or by a last chunk.
#[derive(Debug)]
pub struct BodyEncoder {
    /// The number of bytes that follow; `None` for chunks.
    left: Option<u64>,
    is_complete: bool,
}

impl BodyEncoder {
    /// An encoder of a body with this number of bytes, or in chunks.
    pub fn new(length: Option<u64>) -> Self {
        Self { left: length, is_complete: length == Some(0) }
    }

    /// Whether the body is complete, so that nothing may follow.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Queues some bytes of the body.
    ///
    /// # Errors
    /// [`Http1Error::AnnouncedLength`] if there are more bytes than announced.
    pub fn encode(&mut self, data: Bytes, queue: &mut WriteQueue) -> Result<(), Http1Error> {
        if data.is_empty() {
            return Ok(());
        }
        let Some(left) = self.left else {
            queue.push(format!("{:x}\r\n", data.len()).as_bytes());
            queue.push_data(data);
            queue.push(LINE_END);
            return Ok(());
        };
        let left = left.checked_sub(data.remaining() as u64).ok_or(Http1Error::AnnouncedLength)?;
        self.left = Some(left);
        self.is_complete = left == 0;
        queue.push_data(data);
        Ok(())
    }

    /// Queues the end of the body, with trailers if it is sent in chunks.
    ///
    /// # Errors
    /// [`Http1Error::AnnouncedLength`] if there were fewer bytes than announced.
    pub fn finish(
        &mut self,
        trailers: &HeaderMap,
        queue: &mut WriteQueue,
    ) -> Result<(), Http1Error> {
        if self.is_complete {
            return Ok(());
        }
        if self.left.is_some() {
            return Err(Http1Error::AnnouncedLength);
        }
        self.is_complete = true;
        queue.push(LAST_CHUNK);
        encode_fields(trailers, queue);
        queue.push(LINE_END);
        Ok(())
    }
}
