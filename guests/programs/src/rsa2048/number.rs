//! Numbers of 2,048 bits as limbs of 124 bits, each in 256 bits of its own.

#[cfg(feature = "host")]
use alloc::vec::Vec;

use confide_statement::MODULUS_BYTES;

use crate::{
    error::ProgramError,
    input::{Input, Source},
    machine::{Int256, U256},
};

/// Limbs of a number: 17 of 124 bits are 2,108 bits.
pub const LIMBS: usize = 17;

/// Bits of a limb.
const LIMB_BITS: usize = 124;

/// Words of a limb as it is read; those above are zero and stay so.
const LIMB_WORDS: usize = 4;

/// Bits of a limb's highest word.
const TOP_BITS: u32 = 28;

const NUMBER_WORDS: usize = MODULUS_BYTES / 4;

/// A number below 2^2108.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Number(pub(super) [U256; LIMBS]);

impl Number {
    pub(super) const ZERO: Self = Self([U256::ZERO; LIMBS]);

    pub(crate) fn from_be_bytes(bytes: &[u8; MODULUS_BYTES]) -> Self {
        // One word more, so that the highest limb has a word above it.
        let mut words = [0; NUMBER_WORDS + LIMB_WORDS];
        let (chunks, _) = bytes.as_chunks();
        for (word, chunk) in words.iter_mut().zip(chunks.iter().rev()) {
            *word = u32::from_be_bytes(*chunk);
        }
        let mut number = Number::ZERO;
        for (index, limb) in number.0.iter_mut().enumerate() {
            let (first, shift) = (LIMB_BITS * index / 32, LIMB_BITS * index % 32);
            for (place, word) in limb.0[..LIMB_WORDS].iter_mut().enumerate() {
                let pair = |at: usize| words.get(at).copied().unwrap_or(0);
                let (low, high) = (pair(first + place), pair(first + place + 1));
                *word = ((u64::from(high) << 32 | u64::from(low)) >> shift) as u32;
            }
            limb.0[LIMB_WORDS - 1] &= (1 << TOP_BITS) - 1;
        }
        number
    }

    /// Reads all limbs; each must be below 2^124.
    #[inline(always)]
    pub(super) fn read(
        &mut self,
        subject: &'static str,
        input: &mut Input<impl Source>,
    ) -> Result<(), ProgramError> {
        input.read_low_halves(subject, &mut self.0)?;
        let tops = self.0.iter().fold(0, |tops, limb| tops | limb.0[LIMB_WORDS - 1]);
        if tops >> TOP_BITS == 0 { Ok(()) } else { Err(ProgramError::Limb { subject }) }
    }

    /// Doubles `other` limb by limb into this, without the highest limb: no pair needs it doubled.
    #[inline(always)]
    pub(super) fn double<M: Int256>(&mut self, other: &Self) {
        for (double, limb) in self.0[..LIMBS - 1].iter_mut().zip(&other.0) {
            M::double(double, limb);
        }
    }

    /// Whether this is less than `other`.
    pub(super) fn is_below(&self, other: &Self) -> bool {
        for (limb, bound) in self.0.iter().zip(&other.0).rev() {
            for place in (0..LIMB_WORDS).rev() {
                if limb.0[place] != bound.0[place] {
                    return limb.0[place] < bound.0[place];
                }
            }
        }
        false
    }

    /// The number's words as an input has them.
    #[cfg(feature = "host")]
    pub(super) fn words(&self) -> Vec<u32> {
        self.0.iter().flat_map(|limb| limb.0[..LIMB_WORDS].iter().copied()).collect()
    }
}
