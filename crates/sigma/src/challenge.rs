//! Challenges: a hash over all public values of a proof (docs/sigma-proofs.md, "Challenges").

use sha2::{Digest, Sha256};

use crate::error::SigmaError;

/// The length of a challenge in bytes: soundness 2^-128.
pub(crate) const CHALLENGE_LENGTH: usize = 16;

/// The greatest length of a proof's context in bytes, enough for a tag and some roots.
pub(crate) const CONTEXT_LENGTH_MAX: usize = 1024;

/// Computes a challenge: the first 16 bytes of SHA-256 over tag and parts, each after its length.
pub(crate) fn challenge(tag: &str, parts: &[&[u8]]) -> [u8; CHALLENGE_LENGTH] {
    let mut hash = Sha256::new();
    update_framed(&[tag.as_bytes()], |bytes| hash.update(bytes));
    update_framed(parts, |bytes| hash.update(bytes));
    let mut out = [0; CHALLENGE_LENGTH];
    out.copy_from_slice(&hash.finalize()[..CHALLENGE_LENGTH]);
    out
}

/// Passes each part to `update`, after its length in four bytes, most significant first.
pub(crate) fn update_framed(parts: &[&[u8]], mut update: impl FnMut(&[u8])) {
    for part in parts {
        // No part reaches 4 GiB: the lengths of proofs, keys and contexts are checked before.
        update(&(part.len() as u32).to_be_bytes());
        update(part);
    }
}

pub(crate) fn check_context(context: &[u8]) -> Result<(), SigmaError> {
    match context.len() {
        got if got > CONTEXT_LENGTH_MAX => {
            Err(SigmaError::TooLong { what: "context", max: CONTEXT_LENGTH_MAX, got })
        }
        _ => Ok(()),
    }
}
