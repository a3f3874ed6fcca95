//! Little-endian fields, taken from the front of some bytes.

use crate::parse_error::ParseError;

/// A cursor over a byte slice: the bytes before its position have been read.
#[derive(Clone, Copy)]
pub(crate) struct ByteReader<'a> {
    all: &'a [u8],
    position: usize,
}

impl<'a> ByteReader<'a> {
    pub(crate) fn new(all: &'a [u8]) -> Self {
        Self { all, position: 0 }
    }

    /// Takes the next `wanted` bytes.
    ///
    /// # Errors
    /// [`ParseError::Truncated`] if fewer are left.
    pub(crate) fn take(
        &mut self,
        subject: &'static str,
        wanted: usize,
    ) -> Result<&'a [u8], ParseError> {
        let Some(taken) = self.remaining().get(..wanted) else {
            return Err(ParseError::Truncated { subject, wanted, got: self.remaining().len() });
        };
        self.position += wanted;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(
        &mut self,
        subject: &'static str,
    ) -> Result<&'a [u8; N], ParseError> {
        let taken = self.take(subject, N)?;
        taken.first_chunk().ok_or(ParseError::Truncated { subject, wanted: N, got: taken.len() })
    }

    pub(crate) fn u16(&mut self, subject: &'static str) -> Result<u16, ParseError> {
        self.array(subject).map(|bytes| u16::from_le_bytes(*bytes))
    }

    pub(crate) fn u24(&mut self, subject: &'static str) -> Result<usize, ParseError> {
        let [a, b, c] = *self.array(subject)?;
        Ok(usize::from(a) | usize::from(b) << 8 | usize::from(c) << 16)
    }

    pub(crate) fn u32(&mut self, subject: &'static str) -> Result<usize, ParseError> {
        self.array(subject).map(|bytes| u32::from_le_bytes(*bytes) as usize)
    }

    /// The number of bytes that have been read.
    pub(crate) fn position(&self) -> usize {
        self.position
    }

    /// The bytes that have been read.
    pub(crate) fn consumed_bytes(&self) -> &'a [u8] {
        self.all.get(..self.position).unwrap_or_default()
    }

    /// The bytes that have not been read.
    pub(crate) fn remaining(&self) -> &'a [u8] {
        self.all.get(self.position..).unwrap_or_default()
    }

    /// Checks that every byte has been read.
    ///
    /// # Errors
    /// [`ParseError::Length`] if some are left.
    pub(crate) fn finish(self, subject: &'static str) -> Result<(), ParseError> {
        if self.remaining().is_empty() {
            return Ok(());
        }
        Err(ParseError::Length { subject, wanted: self.position, got: self.all.len() })
    }
}
