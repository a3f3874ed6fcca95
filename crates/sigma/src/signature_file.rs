//! The encoding of a signature proof in a file.

use crate::{
    challenge::CONTEXT_LENGTH_MAX,
    error::SigmaError,
    hash::HashFunction,
    signature::{SignatureProof, SignatureScheme},
};

/// The first bytes of every signature proof.
pub const SIGNATURE_PROOF_MAGIC: &[u8] = b"confide sigma v1\n";

/// The greatest length of a body: the challenges and eight responses modulo 4096 bits.
const BODY_LENGTH_MAX: usize = 16 + 8 * 512;

/// The greatest length of a salt: the rest of a modulus of 4096 bits with a digest of 32 bytes.
const SALT_LENGTH_MAX: usize = 512 - 32 - 2;

/// The greatest length of a proof file, in bytes.
pub(crate) const SIGNATURE_PROOF_LENGTH_MAX: usize = SIGNATURE_PROOF_MAGIC.len()
    + 2
    + 32
    + 64
    + 2
    + SALT_LENGTH_MAX
    + 2
    + CONTEXT_LENGTH_MAX
    + BODY_LENGTH_MAX;

impl SignatureProof {
    /// Encodes the proof as a file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let context = (self.context.len() as u16).to_be_bytes();
        [SIGNATURE_PROOF_MAGIC, &self.encode_claim(), &context, &self.context, &self.body].concat()
    }

    /// Decodes a proof file, without checking the proof.
    ///
    /// # Errors
    ///
    /// [`SigmaError::Malformed`] or [`SigmaError::TooLong`] if the bytes are not a proof file.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, SigmaError> {
        if bytes.len() > SIGNATURE_PROOF_LENGTH_MAX {
            let max = SIGNATURE_PROOF_LENGTH_MAX;
            return Err(SigmaError::TooLong { what: "signature proof", max, got: bytes.len() });
        }
        parse(bytes).ok_or(SigmaError::Malformed { what: "signature proof" })
    }
}

fn parse(bytes: &[u8]) -> Option<SignatureProof> {
    let mut rest = bytes.strip_prefix(SIGNATURE_PROOF_MAGIC)?;
    let [scheme, hash] = *take_array(&mut rest)?;
    let hash = HashFunction::from_code(hash)?;
    let key_id = *take_array(&mut rest)?;
    let digest = take(&mut rest, hash.length())?.to_vec();
    let scheme = match scheme {
        1 => SignatureScheme::Pkcs1,
        2 => SignatureScheme::Pss { salt: take_counted(&mut rest, SALT_LENGTH_MAX)?.to_vec() },
        3 => SignatureScheme::Ecdsa,
        _ => return None,
    };
    let context = take_counted(&mut rest, CONTEXT_LENGTH_MAX)?.to_vec();
    let body = (rest.len() <= BODY_LENGTH_MAX).then(|| rest.to_vec())?;
    Some(SignatureProof { scheme, hash, key_id, digest, context, body })
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(count)?;
    *rest = left;
    Some(taken)
}

fn take_array<'a, const N: usize>(rest: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    take(rest, N)?.try_into().ok()
}

fn take_counted<'a>(rest: &mut &'a [u8], max: usize) -> Option<&'a [u8]> {
    let count = usize::from(u16::from_be_bytes(*take_array(rest)?));
    (count <= max).then(|| take(rest, count))?
}
