//! Fields of a statement to bytes and back: each preceded by its length.

use alloc::{string::String, vec::Vec};

use crate::error::StatementError;

/// Length of a SHA-256 digest.
pub const DIGEST_BYTES: usize = 32;

/// The longest single field: a list of advisories. Anything longer is refused before it is looked at.
const FIELD_BYTES_MAX: usize = 8 * 1024;

/// Bytes of a length.
const LENGTH_BYTES: usize = 4;

/// Builds an encoding.
#[derive(Default)]
pub(crate) struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    pub(crate) fn field(&mut self, bytes: &[u8]) {
        self.field_from_parts(&[bytes]);
    }

    /// Writes one field made of several parts.
    pub(crate) fn field_from_parts(&mut self, parts: &[&[u8]]) {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        // A field beyond 4 GiB cannot be read again: decode refuses far shorter ones.
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        self.bytes.extend(length.to_be_bytes());
        for part in parts {
            self.bytes.extend_from_slice(part);
        }
    }

    pub(crate) fn u8(&mut self, value: u8) {
        self.field(&[value]);
    }

    pub(crate) fn u16(&mut self, value: u16) {
        self.field(&value.to_be_bytes());
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.field(&value.to_be_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.field(&value.to_be_bytes());
    }

    pub(crate) fn i64(&mut self, value: i64) {
        self.field(&value.to_be_bytes());
    }

    pub(crate) fn bool(&mut self, value: bool) {
        self.u8(value.into());
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// Reads an encoding, field after field.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn field(&mut self, subject: &'static str) -> Result<&'a [u8], StatementError> {
        let (length, rest) = self
            .rest
            .split_first_chunk::<LENGTH_BYTES>()
            .ok_or(StatementError::Truncated { subject })?;
        let length = u32::from_be_bytes(*length) as usize;
        if length > FIELD_BYTES_MAX {
            return Err(StatementError::TooLong { subject, limit: FIELD_BYTES_MAX, got: length });
        }
        let (field, rest) =
            rest.split_at_checked(length).ok_or(StatementError::Truncated { subject })?;
        self.rest = rest;
        Ok(field)
    }

    pub(crate) fn array<const N: usize>(
        &mut self,
        subject: &'static str,
    ) -> Result<[u8; N], StatementError> {
        let field = self.field(subject)?;
        let got = field.len();
        field.try_into().map_err(|_| StatementError::Length { subject, wanted: N, got })
    }

    pub(crate) fn u8(&mut self, subject: &'static str) -> Result<u8, StatementError> {
        self.array::<1>(subject).map(|[value]| value)
    }

    pub(crate) fn u16(&mut self, subject: &'static str) -> Result<u16, StatementError> {
        self.array(subject).map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self, subject: &'static str) -> Result<u32, StatementError> {
        self.array(subject).map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self, subject: &'static str) -> Result<u64, StatementError> {
        self.array(subject).map(u64::from_be_bytes)
    }

    pub(crate) fn i64(&mut self, subject: &'static str) -> Result<i64, StatementError> {
        self.array(subject).map(i64::from_be_bytes)
    }

    pub(crate) fn bool(&mut self, subject: &'static str) -> Result<bool, StatementError> {
        match self.u8(subject)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(StatementError::Value { subject, wanted: "0 or 1" }),
        }
    }

    /// Reads text of at most `limit` bytes.
    pub(crate) fn text(
        &mut self,
        subject: &'static str,
        limit: usize,
    ) -> Result<String, StatementError> {
        let field = self.field(subject)?;
        if field.len() > limit {
            return Err(StatementError::TooLong { subject, limit, got: field.len() });
        }
        let text = core::str::from_utf8(field);
        text.map(String::from).map_err(|_| StatementError::Value { subject, wanted: "UTF-8" })
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    /// Refuses bytes that are left.
    pub(crate) fn finish(self) -> Result<(), StatementError> {
        match self.rest.len() {
            0 => Ok(()),
            got => Err(StatementError::Trailing { got }),
        }
    }
}
