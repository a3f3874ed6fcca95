//! The verifier's cryptography in Rust alone.

use confide_verification::ReceiptCrypto;
use confide_verifier::{Crypto, SignatureVerificationAlgorithm};
use ed25519_dalek::{Signature, VerifyingKey};
use p256::ecdsa::signature::Verifier;
use sha2::{Digest, Sha256, Sha384};

use crate::provider::signatures::{AMD_RSA_PSS, ECDSA_P256_SHA256, ECDSA_P384_SHA384};

/// The prime 2^255 - 19 in little-endian order.
const FIELD_PRIME: [u8; 32] = {
    let mut prime = [0xff; 32];
    prime[0] = 0xed;
    prime[31] = 0x7f;
    prime
};

/// Signature checks and hashes by RustCrypto's crates.
#[derive(Clone, Copy, Debug, Default)]
pub struct RustCrypto;

impl Crypto for RustCrypto {
    fn verify_p256(&self, public_key: &[u8; 65], message: &[u8], signature: &[u8; 64]) -> bool {
        let key = p256::ecdsa::VerifyingKey::from_sec1_bytes(public_key);
        let signature = p256::ecdsa::Signature::from_slice(signature);
        matches!((key, signature), (Ok(key), Ok(it)) if key.verify(message, &it).is_ok())
    }

    fn verify_p384(&self, public_key: &[u8; 97], message: &[u8], signature: &[u8; 96]) -> bool {
        let key = p384::ecdsa::VerifyingKey::from_sec1_bytes(public_key);
        let signature = p384::ecdsa::Signature::from_slice(signature);
        matches!((key, signature), (Ok(key), Ok(it)) if key.verify(message, &it).is_ok())
    }

    fn sha256(&self, parts: &[&[u8]]) -> [u8; 32] {
        hash::<Sha256>(parts).finalize().into()
    }

    fn sha384(&self, parts: &[&[u8]]) -> [u8; 48] {
        hash::<Sha384>(parts).finalize().into()
    }

    fn certificate_algorithm(&self) -> &'static dyn SignatureVerificationAlgorithm {
        ECDSA_P256_SHA256
    }

    fn p384_certificate_algorithm(&self) -> &'static dyn SignatureVerificationAlgorithm {
        ECDSA_P384_SHA384
    }

    fn amd_certificate_algorithms(&self) -> [&'static dyn SignatureVerificationAlgorithm; 2] {
        AMD_RSA_PSS
    }
}

impl ReceiptCrypto for RustCrypto {
    fn verify_ed25519(&self, key: &[u8; 32], message: &[u8], signature: &[u8; 64]) -> bool {
        let mut y = *key;
        // The highest bit is the sign of x.
        y[31] &= 0x7f;
        if y.iter().rev().ge(FIELD_PRIME.iter().rev()) {
            return false;
        }
        let signature = Signature::from_bytes(signature);
        VerifyingKey::from_bytes(key)
            .is_ok_and(|key| ed25519_dalek::Verifier::verify(&key, message, &signature).is_ok())
    }
}

fn hash<D: Digest>(parts: &[&[u8]]) -> D {
    parts.iter().fold(D::new(), |hash, part| hash.chain_update(part))
}
