//! Reading a quote from its front.

use alloc::format;

use super::CERTIFICATION_LENGTH_MAX;
use crate::parse_error::ParseError;

/// `N` bytes at `AT` of an array of `LEN`; that they lie inside is checked when it is compiled.
pub(super) fn view<const LEN: usize, const AT: usize, const N: usize>(
    bytes: &[u8; LEN],
) -> &[u8; N] {
    const { assert!(AT + N <= LEN) };
    match bytes[AT..].first_chunk() {
        Some(field) => field,
        None => unreachable!("bounds are checked at compile time"),
    }
}

pub(super) struct Reader<'a> {
    pub(super) all: &'a [u8],
    pub(super) at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn take(
        &mut self,
        subject: &'static str,
        length: usize,
    ) -> Result<&'a [u8], ParseError> {
        let rest = self.all.get(self.at..).unwrap_or_default();
        let Some(taken) = rest.get(..length) else {
            return Err(ParseError::Truncated { subject, wanted: length, got: rest.len() });
        };
        self.at += length;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(
        &mut self,
        subject: &'static str,
    ) -> Result<&'a [u8; N], ParseError> {
        let taken = self.take(subject, N)?;
        taken.first_chunk().ok_or(ParseError::Truncated { subject, wanted: N, got: taken.len() })
    }

    pub(super) fn u16(&mut self, subject: &'static str) -> Result<u16, ParseError> {
        Ok(u16::from_le_bytes(*self.array(subject)?))
    }

    pub(super) fn u32(&mut self, subject: &'static str) -> Result<usize, ParseError> {
        Ok(u32::from_le_bytes(*self.array(subject)?) as usize)
    }

    pub(super) fn certification(
        &mut self,
        wanted: u16,
        wanted_name: &'static str,
    ) -> Result<&'a [u8], ParseError> {
        let subject = "certification data type";
        let kind = self.u16(subject)?;
        if kind != wanted {
            let got = format!("{kind}");
            return Err(ParseError::Unsupported { subject, wanted: wanted_name, got });
        }
        let got = self.u32("certification data length")?;
        if got > CERTIFICATION_LENGTH_MAX {
            let limit = CERTIFICATION_LENGTH_MAX;
            return Err(ParseError::TooLong { subject: "certification data", limit, got });
        }
        self.take("certification data", got)
    }

    pub(super) fn consumed(&self) -> &'a [u8] {
        self.all.get(..self.at).unwrap_or_default()
    }

    pub(super) fn finish(self, subject: &'static str) -> Result<(), ParseError> {
        if self.at == self.all.len() {
            return Ok(());
        }
        Err(ParseError::Length { subject, wanted: self.at, got: self.all.len() })
    }
}
