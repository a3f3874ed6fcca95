//! The verifier's [`Crypto`] over what the VM is fast at: P-256 and SHA-256, and nothing else.
//!
//! DCAP evidence needs nothing else. Whatever asks for P-384 or RSA is refused by name, and SHA-384
//! ends the run: a proof of it cannot be made.

use core::{fmt, marker::PhantomData};

use confide_verifier::{Crypto, SignatureVerificationAlgorithm};
use rustls_pki_types::{AlgorithmIdentifier, InvalidSignature, alg_id};

use crate::p256::{self, Arithmetic};

/// The operations that the VM computes fast.
pub trait Machine: Arithmetic + Send + Sync + fmt::Debug + 'static {
    /// The compression function of SHA-256 (FIPS 180-4), block after block.
    fn sha256_blocks(state: &mut [u32; 8], blocks: &[[u8; 64]]);
}

/// Signature checks and hashes by a [`Machine`].
#[derive(Clone, Copy, Debug)]
pub struct GuestCrypto<M>(PhantomData<M>);

impl<M> GuestCrypto<M> {
    /// Makes the checks; they have no state.
    pub const fn new() -> Self {
        Self(PhantomData)
    }
}

impl<M> Default for GuestCrypto<M> {
    fn default() -> Self {
        Self::new()
    }
}

impl<M: Machine> Crypto for GuestCrypto<M> {
    fn verify_p256(&self, public_key: &[u8; 65], message: &[u8], signature: &[u8; 64]) -> bool {
        p256::verify::<M>(public_key, &sha256::<M>(&[message]), signature)
    }

    fn verify_p384(&self, _public_key: &[u8; 97], _message: &[u8], _signature: &[u8; 96]) -> bool {
        false
    }

    fn sha256(&self, parts: &[&[u8]]) -> [u8; 32] {
        sha256::<M>(parts)
    }

    /// # Panics
    ///
    /// Always: no evidence that this guest reads has a SHA-384 in it.
    fn sha384(&self, _parts: &[&[u8]]) -> [u8; 48] {
        panic!("SHA-384: not in this guest")
    }

    fn certificate_algorithm(&self) -> &'static dyn SignatureVerificationAlgorithm {
        &EcdsaP256::<M>(PhantomData)
    }

    fn p384_certificate_algorithm(&self) -> &'static dyn SignatureVerificationAlgorithm {
        &UnsupportedAlgorithm("P-384")
    }

    fn amd_certificate_algorithms(&self) -> [&'static dyn SignatureVerificationAlgorithm; 2] {
        [&UnsupportedAlgorithm("RSA"), &UnsupportedAlgorithm("RSA")]
    }
}

/// ECDSA P-256 with SHA-256, the signature as X.509 writes it (RFC 3279 section 2.2.3).
struct EcdsaP256<M>(PhantomData<M>);

impl<M: Machine> SignatureVerificationAlgorithm for EcdsaP256<M> {
    fn verify_signature(
        &self,
        public_key: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), InvalidSignature> {
        let key = public_key.try_into().map_err(|_| InvalidSignature)?;
        let signature = fixed_length_signature(signature).ok_or(InvalidSignature)?;
        match p256::verify::<M>(key, &sha256::<M>(&[message]), &signature) {
            true => Ok(()),
            false => Err(InvalidSignature),
        }
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        alg_id::ECDSA_P256
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        alg_id::ECDSA_SHA256
    }
}

impl<M> fmt::Debug for EcdsaP256<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ECDSA P-256 with SHA-256")
    }
}

/// An algorithm that DCAP evidence does not have.
struct UnsupportedAlgorithm(&'static str);

impl SignatureVerificationAlgorithm for UnsupportedAlgorithm {
    fn verify_signature(&self, _: &[u8], _: &[u8], _: &[u8]) -> Result<(), InvalidSignature> {
        Err(InvalidSignature)
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        AlgorithmIdentifier::from_slice(&[])
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        AlgorithmIdentifier::from_slice(&[])
    }
}

impl fmt::Debug for UnsupportedAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: not in this guest", self.0)
    }
}

/// Reads r, then s, 32 bytes each, from `SEQUENCE { INTEGER, INTEGER }` in its one DER spelling.
fn fixed_length_signature(der: &[u8]) -> Option<[u8; 64]> {
    let [0x30, length, content @ ..] = der else { return None };
    if usize::from(*length) != content.len() || *length > 0x7f {
        return None;
    }
    let (r, rest) = read_der_integer(content)?;
    let (s, rest) = read_der_integer(rest)?;
    let mut fixed = [0; 64];
    fixed[32 - r.len()..32].copy_from_slice(r);
    fixed[64 - s.len()..].copy_from_slice(s);
    rest.is_empty().then_some(fixed)
}

/// Reads a non-negative INTEGER of at most 32 bytes, without its sign's zero; gives the rest too.
fn read_der_integer(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let [0x02, length, rest @ ..] = der else { return None };
    let (content, rest) = rest.split_at_checked(usize::from(*length))?;
    let digits = match content {
        [0, next, ..] if *next < 0x80 => return None,
        [0, digits @ ..] => digits,
        [0x01..=0x7f, ..] => content,
        _ => return None,
    };
    (digits.len() <= 32).then_some((digits, rest))
}

/// SHA-256 over the parts, one after the other. Whole blocks are hashed where they lie.
fn sha256<M: Machine>(parts: &[&[u8]]) -> [u8; 32] {
    let mut state = SHA256_START;
    let mut pending = Pending { bytes: [0; 64], length: 0 };
    let mut total: u64 = 0;
    for part in parts {
        total += part.len() as u64;
        let (blocks, rest) = pending.fill::<M>(&mut state, part).as_chunks();
        M::sha256_blocks(&mut state, blocks);
        pending.append_bytes(rest);
    }
    pending.finish::<M>(&mut state, total);
    let mut digest = [0; 32];
    for (bytes, word) in digest.as_chunks_mut().0.iter_mut().zip(state) {
        *bytes = word.to_be_bytes();
    }
    digest
}

/// Less than a block of input, aligned for the VM.
#[repr(align(4))]
struct Pending {
    bytes: [u8; 64],
    length: usize,
}

impl Pending {
    /// Completes the block that is pending, if one is, and gives what is left of `part`.
    fn fill<'p, M: Machine>(&mut self, state: &mut [u32; 8], part: &'p [u8]) -> &'p [u8] {
        if self.length == 0 {
            return part;
        }
        let (head, rest) = part.split_at(part.len().min(64 - self.length));
        self.append_bytes(head);
        if self.length == 64 {
            M::sha256_blocks(state, core::slice::from_ref(&self.bytes));
            self.length = 0;
        }
        rest
    }

    fn append_bytes(&mut self, more: &[u8]) {
        self.bytes[self.length..][..more.len()].copy_from_slice(more);
        self.length += more.len();
    }

    fn finish<M: Machine>(&mut self, state: &mut [u32; 8], total: u64) {
        self.append_bytes(&[0x80]);
        self.bytes[self.length..].fill(0);
        if self.length > 56 {
            M::sha256_blocks(state, core::slice::from_ref(&self.bytes));
            self.bytes.fill(0);
        }
        self.bytes[56..].copy_from_slice(&(total * 8).to_be_bytes());
        M::sha256_blocks(state, core::slice::from_ref(&self.bytes));
    }
}

/// State of SHA-256 before the first block: FIPS 180-4 section 5.3.3.
const SHA256_START: [u32; 8] = [
    0x6a09_e667,
    0xbb67_ae85,
    0x3c6e_f372,
    0xa54f_f53a,
    0x510e_527f,
    0x9b05_688c,
    0x1f83_d9ab,
    0x5be0_cd19,
];
