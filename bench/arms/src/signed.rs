//! A message with a signature made here: the floor of an appraisal.

use aws_lc_rs::{
    rand::SystemRandom,
    signature::{EcdsaKeyPair, EcdsaSigningAlgorithm, KeyPair},
};
use confide_arm_line::Outcome;

/// The verification of one signature with a key that is read already.
pub(crate) struct SignedMessage {
    verify: Box<dyn Fn() -> bool + Send + Sync>,
}

impl SignedMessage {
    /// Signs `message` with a new key. `prepare` reads the public key and the signature, both of
    /// fixed length, and gives their verification.
    pub(crate) fn new<const KEY: usize, const SIGNATURE: usize>(
        algorithm: &'static EcdsaSigningAlgorithm,
        message: &[u8],
        prepare: impl FnOnce(&[u8; KEY], [u8; SIGNATURE]) -> Option<Box<dyn Fn() -> bool + Send + Sync>>,
    ) -> Outcome<Self> {
        let key = EcdsaKeyPair::generate(algorithm).map_err(|_| "aws-lc-rs made no key")?;
        let signature = key.sign(&SystemRandom::new(), message);
        let signature = signature.map_err(|_| "aws-lc-rs made no signature")?;
        let verify = prepare(key.public_key().as_ref().try_into()?, signature.as_ref().try_into()?);
        Ok(Self { verify: verify.ok_or("a public key made here is refused")? })
    }

    pub(crate) fn verify(&self) -> Outcome {
        if !(self.verify)() {
            return Err("a signature made here does not verify".into());
        }
        Ok(())
    }
}
