//! RSA-4096 from a seed, and RSASSA-PSS with SHA-384 whose salt is a hash.
//!
//! The modulus has four primes of 1,024 bits (RFC 8017 section 3.2 allows more than two): they are
//! found some fifteen times as fast as two of 2,048, and from outside the key is like any other.
//! Nothing runs in constant time: these keys are simulated, and their seed is in a file.

use crypto_bigint::{
    Limb, NonZero, Odd, U1024, U4096,
    modular::{FixedMontyForm, FixedMontyParams},
};
use sha2::{Digest, Sha256, Sha384};
use zeroize::{Zeroize, Zeroizing};

use crate::asn1;

/// The bytes of a signature, and of the modulus.
pub(crate) const BYTES: usize = 512;
const PRIMES: usize = 4;
const PUBLIC_EXPONENT: u32 = 65_537;
/// The length of SHA-384, which is also that of the salt.
const HASH_BYTES: usize = 48;

/// A private key in parts, one for each prime.
pub(crate) struct RsaKey {
    factors: [PrimeFactor; PRIMES],
    salt_seed: [u8; 32],
    modulus: [u8; BYTES],
}

/// A prime, the private exponent modulo one less, and Garner's coefficient.
struct PrimeFactor {
    prime: Odd<U1024>,
    exponent: U1024,
    /// The inverse of the product of the primes before this one.
    coefficient: U1024,
}

impl Drop for RsaKey {
    fn drop(&mut self) {
        self.salt_seed.zeroize();
        for factor in &mut self.factors {
            factor.exponent = U1024::ZERO;
        }
    }
}

impl RsaKey {
    /// The key of `label` under `seed`: always the same one.
    pub(crate) fn derive(seed: &[u8; 32], label: &str) -> Self {
        let mut product = U4096::ONE;
        let factors = std::array::from_fn(|index| {
            let prime = find_prime(seed, label, index as u8);
            let before = product.rem_vartime(prime.as_nz_ref());
            let params = FixedMontyParams::new_vartime(prime);
            let inverse = FixedMontyForm::new(&before, &params).invert_vartime();
            // Different primes have no common factor.
            let coefficient = inverse.into_option().expect("distinct primes").retrieve();
            product = product.wrapping_mul(&prime.get());
            PrimeFactor { prime, exponent: private_exponent(&prime), coefficient }
        });
        let mut modulus = [0; BYTES];
        modulus.copy_from_slice(product.to_be_bytes().as_ref());
        Self { factors, salt_seed: *derive_stream(seed, label, 0xff, 0), modulus }
    }

    /// The RSAPublicKey: modulus and exponent.
    pub(crate) fn public_key(&self) -> Vec<u8> {
        let exponent = asn1::integer(&PUBLIC_EXPONENT.to_be_bytes());
        asn1::sequence(&[&asn1::integer(&self.modulus), &exponent])
    }

    /// Signs by RSASSA-PSS, SHA-384, MGF1 with SHA-384 and 48 bytes of salt (RFC 8017 section
    /// 8.1.1).
    pub(crate) fn sign_pss(&self, message: &[u8]) -> [u8; BYTES] {
        let hash = Sha384::digest(message);
        let salt = Sha384::new()
            .chain_update(b"confide SIMULATED salt v1\0")
            .chain_update(self.salt_seed)
            .chain_update(hash)
            .finalize();
        let encoded = encode_pss(&hash, &salt);
        let mut signature = [0; BYTES];
        let value = self.apply_private_key(&U4096::from_be_slice(&encoded));
        signature.copy_from_slice(value.to_be_bytes().as_ref());
        signature
    }

    /// Applies the private key: RFC 8017 section 5.1.2, step 2b, for more than two primes.
    fn apply_private_key(&self, message: &U4096) -> U4096 {
        let (mut result, mut product) = (U4096::ZERO, U4096::ONE);
        for factor in &self.factors {
            let params = FixedMontyParams::new_vartime(factor.prime);
            let monty = |value: &U1024| FixedMontyForm::new(value, &params);
            let reduced = message.rem_vartime(factor.prime.as_nz_ref());
            let part = monty(&reduced).pow_vartime(&factor.exponent);
            let so_far = monty(&result.rem_vartime(factor.prime.as_nz_ref()));
            let step = part.sub(&so_far).mul(&monty(&factor.coefficient)).retrieve();
            result = result.wrapping_add(&product.wrapping_mul(&step));
            product = product.wrapping_mul(&factor.prime.get());
        }
        result
    }
}

/// Encodes by EMSA-PSS (RFC 8017 section 9.1.1) for a modulus of 4,096 bits.
fn encode_pss(hash: &[u8], salt: &[u8]) -> [u8; BYTES] {
    const DB_BYTES: usize = BYTES - HASH_BYTES - 1;
    let binding = Sha384::new().chain_update([0; 8]).chain_update(hash).chain_update(salt);
    let binding = binding.finalize();
    let mut encoded = [0; BYTES];
    encoded[DB_BYTES - HASH_BYTES - 1] = 1;
    encoded[DB_BYTES - HASH_BYTES..DB_BYTES].copy_from_slice(salt);
    for (counter, block) in (0_u32..).zip(encoded[..DB_BYTES].chunks_mut(HASH_BYTES)) {
        let mask = Sha384::new().chain_update(binding).chain_update(counter.to_be_bytes());
        block.iter_mut().zip(mask.finalize()).for_each(|(byte, mask)| *byte ^= mask);
    }
    // The encoded message has one bit less than the modulus.
    encoded[0] &= 0x7f;
    encoded[DB_BYTES..BYTES - 1].copy_from_slice(&binding);
    encoded[BYTES - 1] = 0xbc;
    encoded
}

/// The inverse of 65537 modulo `prime - 1`.
fn private_exponent(prime: &Odd<U1024>) -> U1024 {
    let order = prime.get().wrapping_sub(&U1024::ONE);
    let e = NonZero::new(Limb::from_u32(PUBLIC_EXPONENT)).expect("it is not zero");
    let (quotient, remainder) = order.div_rem_limb(e);
    let (e, remainder) = (u64::from(PUBLIC_EXPONENT), remainder.0);
    // The k for which 1 + k * order is a multiple of e; then d is that multiple over e.
    let k = (1..e).find(|k| (k * remainder + 1) % e == 0).expect("the order is no multiple of e");
    let carry = U1024::from_u64((k * remainder + 1) / e);
    quotient.wrapping_mul(&U1024::from_u64(k)).wrapping_add(&carry)
}

/// The first prime from a start that the seed names.
fn find_prime(seed: &[u8; 32], label: &str, index: u8) -> Odd<U1024> {
    let mut bytes = Zeroizing::new([0; 128]);
    for (block, chunk) in (0..).zip(bytes.chunks_mut(32)) {
        chunk.copy_from_slice(&*derive_stream(seed, label, index, block));
    }
    // Four factors from 7/8 of 2^1024 on have a product of exactly 4,096 bits.
    bytes[0] |= 0xe0;
    bytes[127] |= 1;
    let start = U1024::from_be_slice(&*bytes);
    let composite = sieve(&start);
    let candidates = (0..).zip(composite).filter(|(_, composite)| !composite);
    let mut candidates = candidates.map(|(step, _)| start.wrapping_add(&U1024::from_u32(2 * step)));
    let prime = candidates.find(is_prime);
    // Primes of this size lie 710 apart; 8,192 odd numbers hold one but for a chance of e^-23.
    Odd::new(prime.expect("a prime is near")).into_option().expect("it is odd")
}

/// For each odd number from `start` on, whether it has a small factor.
fn sieve(start: &U1024) -> Vec<bool> {
    const SPAN: usize = 8192;
    const LIMIT: u32 = 8192;
    let mut composite = vec![false; SPAN];
    for small in (3..LIMIT)
        .step_by(2)
        .filter(|n| (3..).step_by(2).take_while(|d| d * d <= *n).all(|d| n % d != 0))
    {
        let divisor = NonZero::new(Limb::from_u32(small)).expect("it is not zero");
        let remainder = start.rem_limb(divisor).0 as usize;
        let small = small as usize;
        // The least step with remainder + 2 * step = 0 modulo `small`.
        let missing = (small - remainder) % small;
        let first = if missing.is_multiple_of(2) { missing / 2 } else { (missing + small) / 2 };
        composite.iter_mut().skip(first).step_by(small).for_each(|slot| *slot = true);
    }
    composite
}

/// Whether a number is prime by Fermat's test to base 2, which a random number of this size fails
/// to deceive (Damgard, Landrock and Pomerance, 1993), and 65537 has an inverse.
fn is_prime(candidate: &U1024) -> bool {
    let e = NonZero::new(Limb::from_u32(PUBLIC_EXPONENT)).expect("it is not zero");
    if candidate.rem_limb(e) == Limb::ONE {
        return false;
    }
    let Some(odd) = Odd::new(*candidate).into_option() else { return false };
    let params = FixedMontyParams::new_vartime(odd);
    let order = candidate.wrapping_sub(&U1024::ONE);
    FixedMontyForm::new(&U1024::from_u32(2), &params).pow_vartime(&order).retrieve() == U1024::ONE
}

fn derive_stream(seed: &[u8; 32], label: &str, index: u8, block: u8) -> Zeroizing<[u8; 32]> {
    Zeroizing::new(
        Sha256::new()
            .chain_update(b"confide SIMULATED rsa key v1\0")
            .chain_update(label)
            .chain_update([0, index, block])
            .chain_update(seed)
            .finalize()
            .into(),
    )
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::signature::{RSA_PSS_2048_8192_SHA384, UnparsedPublicKey};

    use super::*;

    #[test]
    fn another_library_verifies_what_a_derived_key_signs() {
        let key = RsaKey::derive(&[3; 32], "ark");
        let signature = key.sign_pss(b"message");
        let public = key.public_key();
        let public = UnparsedPublicKey::new(&RSA_PSS_2048_8192_SHA384, &public);
        assert!(public.verify(b"message", &signature).is_ok());
        assert!(public.verify(b"massage", &signature).is_err());
        assert_eq!(signature, RsaKey::derive(&[3; 32], "ark").sign_pss(b"message"));
    }
}
