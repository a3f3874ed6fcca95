//! The system's randomness, in the form that hpke takes.

use std::convert::Infallible;

use hpke::rand_core::{TryCryptoRng, TryRng};

/// The system's randomness by the cryptographic library.
pub(crate) struct SystemRandom;

impl TryRng for SystemRandom {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        let mut bytes = [0; 4];
        self.try_fill_bytes(&mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        let mut bytes = [0; 8];
        self.try_fill_bytes(&mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        aws_lc_rs::rand::fill(bytes).expect("the system has randomness");
        Ok(())
    }
}

impl TryCryptoRng for SystemRandom {}
