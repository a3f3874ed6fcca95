//! Inputs: words and bytes in the order in which a program reads them, each within its limits.
//!
//! An input is a sequence of 32-bit words, little-endian. Bytes are filled up with zeros to whole
//! words. Nothing tells where a field ends but the fields before it, and nothing may follow the last.

use alloc::{string::String, vec::Vec};

use crate::{error::ProgramError, machine::U256};

/// Bytes of a word.
const WORD: usize = 4;

/// Where words come from: the zkVM's hint stream, or a slice.
pub trait Source {
    /// Fills `into` with the next words. Never asked for more than there are.
    fn words(&mut self, into: &mut [u32]);

    /// Returns the next `length` bytes, a multiple of four. Never asked for more than there are.
    fn bytes(&mut self, length: usize) -> Vec<u8>;
}

/// An input and how much of it is left.
pub struct Input<S> {
    source: S,
    remaining: usize,
}

impl<S: Source> Input<S> {
    /// Makes an input of `length` bytes.
    ///
    /// # Errors
    /// If that is not whole words.
    pub fn new(source: S, length: usize) -> Result<Self, ProgramError> {
        match length % WORD {
            0 => Ok(Self { source, remaining: length }),
            _ => Err(ProgramError::Padding { subject: "input" }),
        }
    }

    /// Checks that nothing is left.
    ///
    /// # Errors
    /// If something is left.
    pub fn finish(&self) -> Result<(), ProgramError> {
        match self.remaining {
            0 => Ok(()),
            got => Err(ProgramError::Trailing { got }),
        }
    }

    /// Fills `into` with the next words.
    #[inline(always)]
    pub(crate) fn words(
        &mut self,
        subject: &'static str,
        into: &mut [u32],
    ) -> Result<(), ProgramError> {
        self.take(subject, WORD * into.len())?;
        self.source.words(into);
        Ok(())
    }

    /// Fills the lower half of each number with the next four words.
    #[inline(always)]
    pub(crate) fn read_low_halves(
        &mut self,
        subject: &'static str,
        numbers: &mut [U256],
    ) -> Result<(), ProgramError> {
        self.take(subject, 4 * WORD * numbers.len())?;
        for number in numbers {
            self.source.words(&mut number.0[..4]);
        }
        Ok(())
    }

    pub(crate) fn u32(&mut self, subject: &'static str) -> Result<u32, ProgramError> {
        let mut word = [0];
        self.words(subject, &mut word)?;
        Ok(word[0])
    }

    /// Reads a number from `least` to `most`.
    pub(crate) fn u32_between(
        &mut self,
        subject: &'static str,
        least: u32,
        most: u32,
    ) -> Result<u32, ProgramError> {
        let value = self.u32(subject)?;
        if (least..=most).contains(&value) {
            return Ok(value);
        }
        let (least, most, got) = (least.into(), most.into(), value.into());
        Err(ProgramError::Limit { subject, least, most, got })
    }

    /// Reads two words, the low one first.
    pub(crate) fn i64(&mut self, subject: &'static str) -> Result<i64, ProgramError> {
        let mut words = [0; 2];
        self.words(subject, &mut words)?;
        Ok((u64::from(words[1]) << 32 | u64::from(words[0])) as i64)
    }

    /// Reads `length` bytes, and the zeros up to the end of their last word.
    pub(crate) fn bytes(
        &mut self,
        subject: &'static str,
        length: usize,
    ) -> Result<Vec<u8>, ProgramError> {
        let padded = length.next_multiple_of(WORD);
        self.take(subject, padded)?;
        let mut bytes = self.source.bytes(padded);
        if bytes[length..].iter().any(|byte| *byte != 0) {
            return Err(ProgramError::Padding { subject });
        }
        bytes.truncate(length);
        Ok(bytes)
    }

    pub(crate) fn array<const N: usize>(
        &mut self,
        subject: &'static str,
    ) -> Result<[u8; N], ProgramError> {
        let mut array = [0; N];
        array.copy_from_slice(&self.bytes(subject, N)?);
        Ok(array)
    }

    /// Reads a length from 1 to `most` and as many bytes of UTF-8.
    pub(crate) fn text(
        &mut self,
        subject: &'static str,
        most: usize,
    ) -> Result<String, ProgramError> {
        let length = self.u32_between(subject, 1, most as u32)? as usize;
        let text = String::from_utf8(self.bytes(subject, length)?);
        text.map_err(|_| ProgramError::Value { subject, wanted: "UTF-8" })
    }

    #[inline(always)]
    fn take(&mut self, subject: &'static str, wanted: usize) -> Result<(), ProgramError> {
        match self.remaining.checked_sub(wanted) {
            Some(rest) => {
                self.remaining = rest;
                Ok(())
            }
            None => Err(ProgramError::Truncated { subject, wanted, got: self.remaining }),
        }
    }
}
