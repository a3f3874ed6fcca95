//! Fields of messages: little-endian integers, and byte strings after their length.

use super::error::ProtocolError;

/// Reads the fields of one message in order.
pub(crate) struct FieldReader<'a> {
    message: &'static str,
    rest: &'a [u8],
}

impl<'a> FieldReader<'a> {
    pub(crate) fn new(message: &'static str, payload: &'a [u8]) -> Self {
        Self { message, rest: payload }
    }

    pub(crate) fn field_error(&self, field: &'static str, wanted: &'static str) -> ProtocolError {
        ProtocolError::Field { message: self.message, field, wanted }
    }

    pub(crate) fn take_bytes(
        &mut self,
        field: &'static str,
        count: usize,
    ) -> Result<&'a [u8], ProtocolError> {
        let (taken, rest) = self
            .rest
            .split_at_checked(count)
            .ok_or_else(|| self.field_error(field, "more bytes, the message ends early"))?;
        self.rest = rest;
        Ok(taken)
    }

    pub(crate) fn take_array<const N: usize>(
        &mut self,
        field: &'static str,
    ) -> Result<[u8; N], ProtocolError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take_bytes(field, N)?);
        Ok(array)
    }

    pub(crate) fn take_u8(&mut self, field: &'static str) -> Result<u8, ProtocolError> {
        Ok(self.take_array::<1>(field)?[0])
    }

    pub(crate) fn take_u16(&mut self, field: &'static str) -> Result<u16, ProtocolError> {
        self.take_array(field).map(u16::from_le_bytes)
    }

    pub(crate) fn take_u32(&mut self, field: &'static str) -> Result<u32, ProtocolError> {
        self.take_array(field).map(u32::from_le_bytes)
    }

    pub(crate) fn take_u64(&mut self, field: &'static str) -> Result<u64, ProtocolError> {
        self.take_array(field).map(u64::from_le_bytes)
    }

    /// Reads a number that is finite and not below zero.
    pub(crate) fn take_non_negative(&mut self, field: &'static str) -> Result<f64, ProtocolError> {
        let value = self.take_array(field).map(f64::from_le_bytes)?;
        match value.is_finite() && value >= 0.0 {
            true => Ok(value),
            false => Err(self.field_error(field, "a finite number of at least 0")),
        }
    }

    /// Reads a length of one byte, then as many bytes.
    pub(crate) fn take_length_prefixed(
        &mut self,
        field: &'static str,
    ) -> Result<&'a [u8], ProtocolError> {
        let count = self.take_u8(field)?;
        self.take_bytes(field, count.into())
    }

    /// Reads a name: 1 to 128 bytes of visible ASCII.
    pub(crate) fn take_name(&mut self, field: &'static str) -> Result<&'a str, ProtocolError> {
        let bytes = self.take_length_prefixed(field)?;
        let text = std::str::from_utf8(bytes).ok().filter(|text| is_valid_name(text));
        text.ok_or_else(|| self.field_error(field, "1 to 128 visible ASCII characters"))
    }

    pub(crate) fn take_rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    pub(crate) fn expect_end(self) -> Result<(), ProtocolError> {
        match self.rest.is_empty() {
            true => Ok(()),
            false => Err(self.field_error("end", "no bytes after the last field")),
        }
    }
}

/// Returns whether a text can be sent as a name: 1 to 128 visible ASCII characters.
pub fn is_valid_name(text: &str) -> bool {
    (1..=128).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Appends a length in one byte, then the bytes, of which at most 255 are written.
pub(crate) fn put_length_prefixed(out: &mut Vec<u8>, bytes: &[u8]) {
    let count = bytes.len().min(255);
    out.push(count as u8);
    out.extend_from_slice(&bytes[..count]);
}
