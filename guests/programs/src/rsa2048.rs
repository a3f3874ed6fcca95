//! A signature of RSA-2048 with PKCS#1 v1.5 and SHA-256 (RFC 8017 section 8.2.2), e = 65537.
//!
//! Sixteen squarings and one multiplication modulo N. The prover hints each quotient q and remainder
//! r; what is checked is a * b = q * N + r **over the integers**: numbers are 17 limbs of 124 bits,
//! the products of each column are summed in 256 bits, which they cannot overflow (below), the low
//! 124 bits of a column must be zero once q * N and r are taken away, and what is above is carried.
//! The last carry must be zero. Every remainder must be below N; the last is the encoded message.
//!
//! No overflow: limbs are below 2^124, a column has at most 17 products of 2^248, so its sum lies
//! within 2^253 either way, and the carry into it within 2^130.

mod columns;
mod number;

#[cfg(feature = "host")]
use alloc::vec::Vec;

use confide_statement::{DIGEST_BYTES, MODULUS_BYTES, Rsa2048, Statement};

use crate::{
    error::ProgramError,
    input::{Input, Source},
    machine::{Int256, Sha256},
};
use columns::{Identity, product_is, square_is};
pub use number::LIMBS;
use number::Number;

/// The longest message: one for which a proof still takes minutes.
pub const MESSAGE_BYTES_MAX: u32 = 64 * 1024;

/// Multiplications modulo N: 65537 is 2^16 + 1.
pub const STEPS: u32 = 17;

/// What stands before the digest in the encoded message: DER of SHA-256's DigestInfo (RFC 8017
/// section 9.2, note 1).
const DIGEST_INFO: [u8; 19] = [
    0x30, 0x31, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01, 0x05,
    0x00, 0x04, 0x20,
];

/// Input: the message's length, the message, the modulus (256 bytes, big-endian), the signature (17
/// limbs, four words each, the lowest first); then for each squaring its quotient and remainder as
/// limbs, and for the last multiplication its quotient.
///
/// # Errors
/// If the input is not as above, a hint is not the right one, or the signature does not hold.
pub fn rsa2048<M: Int256 + Sha256>(
    input: &mut Input<impl Source>,
) -> Result<Statement, ProgramError> {
    let length = input.u32_between("message", 0, MESSAGE_BYTES_MAX)? as usize;
    let message = input.bytes("message", length)?;
    let claim = Rsa2048 { modulus: input.array("modulus")?, message_sha256: M::sha256(&message) };
    let statement = Statement::Rsa2048(claim.clone());
    statement.check()?;

    let modulus = Number::from_be_bytes(&claim.modulus);
    let (mut signature, mut quotient) = (Number::ZERO, Number::ZERO);
    signature.read("signature", input)?;
    if !signature.is_below(&modulus) {
        return Err(ProgramError::NotReduced { subject: "signature" });
    }
    let (mut first, mut second, mut doubles) = (signature.clone(), Number::ZERO, Number::ZERO);
    let (mut power, mut remainder) = (&mut first, &mut second);
    for step in 0..STEPS - 1 {
        quotient.read("quotient", input)?;
        remainder.read("remainder", input)?;
        if !remainder.is_below(&modulus) {
            return Err(ProgramError::NotReduced { subject: "remainder" });
        }
        doubles.double::<M>(power);
        let (a, b, q, n, r) = (&*power, &doubles, &quotient, &modulus, &*remainder);
        if !square_is::<M>(&Identity { a, b, q, n, r }) {
            return Err(ProgramError::Identity { step });
        }
        core::mem::swap(&mut power, &mut remainder);
    }
    quotient.read("quotient", input)?;
    input.finish()?;
    // Below every modulus of 2,048 bits: its first byte is zero.
    let encoded = Number::from_be_bytes(&encoded_message(&claim.message_sha256));
    let last = Identity { a: power, b: &signature, q: &quotient, n: &modulus, r: &encoded };
    if !product_is::<M>(&last) {
        return Err(ProgramError::Identity { step: STEPS - 1 });
    }
    Ok(statement)
}

/// EMSA-PKCS1-v1_5: 00 01 FF … FF 00, DigestInfo, digest.
pub(crate) fn encoded_message(digest: &[u8; DIGEST_BYTES]) -> [u8; MODULUS_BYTES] {
    const INFO_AT: usize = MODULUS_BYTES - DIGEST_BYTES - DIGEST_INFO.len();
    let mut encoded = [0xff; MODULUS_BYTES];
    (encoded[0], encoded[1], encoded[INFO_AT - 1]) = (0, 1, 0);
    encoded[INFO_AT..MODULUS_BYTES - DIGEST_BYTES].copy_from_slice(&DIGEST_INFO);
    encoded[MODULUS_BYTES - DIGEST_BYTES..].copy_from_slice(digest);
    encoded
}

/// The words of a number as an input has them.
#[cfg(feature = "host")]
pub(crate) fn input_words(bytes: &[u8; MODULUS_BYTES]) -> Vec<u32> {
    Number::from_be_bytes(bytes).words()
}
