//! Signature checks: ECDSA for TLS and certificates, and RSA-PSS as AMD's certificates use it.

use p256::ecdsa::signature::Verifier;
use rsa::{PublicKey, pkcs1::DecodeRsaPublicKey};
use rustls::{SignatureScheme, crypto::WebPkiSupportedAlgorithms};
use rustls_pki_types::{
    AlgorithmIdentifier, InvalidSignature, SignatureVerificationAlgorithm, alg_id,
};
use sha2::Sha384;

/// The algorithms with which a server may sign a handshake.
pub const SUPPORTED: WebPkiSupportedAlgorithms = WebPkiSupportedAlgorithms {
    all: &[ECDSA_P256_SHA256, ECDSA_P384_SHA384, ED25519],
    mapping: &[
        (SignatureScheme::ECDSA_NISTP256_SHA256, &[ECDSA_P256_SHA256]),
        (SignatureScheme::ECDSA_NISTP384_SHA384, &[ECDSA_P384_SHA384]),
        (SignatureScheme::ED25519, &[ED25519]),
    ],
};

/// ECDSA on P-256 with SHA-256, the signature in DER.
pub const ECDSA_P256_SHA256: &dyn SignatureVerificationAlgorithm = &EcdsaP256;
/// ECDSA on P-384 with SHA-384, the signature in DER.
pub const ECDSA_P384_SHA384: &dyn SignatureVerificationAlgorithm = &EcdsaP384;
/// Ed25519 (RFC 8032).
pub const ED25519: &dyn SignatureVerificationAlgorithm = &Ed25519;
/// RSASSA-PSS with SHA-384 in the two spellings of AMD, with the trailer field and without.
pub const AMD_RSA_PSS: [&dyn SignatureVerificationAlgorithm; 2] =
    [&AmdRsaPss(WITH_TRAILER), &AmdRsaPss(WITHOUT_TRAILER)];

#[derive(Debug)]
struct EcdsaP256;

impl SignatureVerificationAlgorithm for EcdsaP256 {
    fn verify_signature(
        &self,
        public_key: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), InvalidSignature> {
        let key = p256::ecdsa::VerifyingKey::from_sec1_bytes(public_key);
        let signature = p256::ecdsa::Signature::from_der(signature);
        verify(key, signature, message)
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        alg_id::ECDSA_P256
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        alg_id::ECDSA_SHA256
    }
}

#[derive(Debug)]
struct EcdsaP384;

impl SignatureVerificationAlgorithm for EcdsaP384 {
    fn verify_signature(
        &self,
        public_key: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), InvalidSignature> {
        let key = p384::ecdsa::VerifyingKey::from_sec1_bytes(public_key);
        let signature = p384::ecdsa::Signature::from_der(signature);
        verify(key, signature, message)
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        alg_id::ECDSA_P384
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        alg_id::ECDSA_SHA384
    }
}

#[derive(Debug)]
struct Ed25519;

impl SignatureVerificationAlgorithm for Ed25519 {
    fn verify_signature(
        &self,
        public_key: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), InvalidSignature> {
        let key = public_key.try_into().map_err(|_| InvalidSignature)?;
        let key = ed25519_dalek::VerifyingKey::from_bytes(key).map_err(|_| InvalidSignature)?;
        let signature = ed25519_dalek::Signature::from_slice(signature);
        let signature = signature.map_err(|_| InvalidSignature)?;
        key.verify_strict(message, &signature).map_err(|_| InvalidSignature)
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        alg_id::ED25519
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        alg_id::ED25519
    }
}

fn verify<K: Verifier<S>, S, E>(
    key: Result<K, E>,
    signature: Result<S, E>,
    message: &[u8],
) -> Result<(), InvalidSignature> {
    let key = key.map_err(|_| InvalidSignature)?;
    let signature = signature.map_err(|_| InvalidSignature)?;
    key.verify(message, &signature).map_err(|_| InvalidSignature)
}

/// The bytes of the salt and the fewest bytes of a modulus.
const SALT_BYTES: usize = 48;
const MODULUS_BYTES_MIN: usize = 256;

#[derive(Debug)]
struct AmdRsaPss(AlgorithmIdentifier);

impl SignatureVerificationAlgorithm for AmdRsaPss {
    fn verify_signature(
        &self,
        public_key: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), InvalidSignature> {
        let key = PublicKey::from_pkcs1_der(public_key).map_err(|_| InvalidSignature)?;
        let signature = rsa::pss::Signature::try_from(signature).map_err(|_| InvalidSignature)?;
        if rsa::traits::PublicKeyParts::size(&key) < MODULUS_BYTES_MIN {
            return Err(InvalidSignature);
        }
        rsa::pss::VerifyingKey::<Sha384>::new_with_salt_len(key, SALT_BYTES)
            .verify(message, &signature)
            .map_err(|_| InvalidSignature)
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        alg_id::RSA_ENCRYPTION
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        self.0
    }
}

/// rsassaPss with SHA-384, MGF1 with SHA-384, 48 bytes of salt, and trailer field 1 written out.
const WITH_TRAILER: AlgorithmIdentifier = AlgorithmIdentifier::from_slice(&[
    0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0a, 0x30, 0x39, 0xa0, 0x0f, 0x30,
    0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x02, 0x05, 0x00, 0xa1, 0x1c,
    0x30, 0x1a, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x08, 0x30, 0x0d, 0x06,
    0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x02, 0x05, 0x00, 0xa2, 0x03, 0x02, 0x01,
    0x30, 0xa3, 0x03, 0x02, 0x01, 0x01,
]);

/// The same with the trailer field left out, as DER has it.
const WITHOUT_TRAILER: AlgorithmIdentifier = AlgorithmIdentifier::from_slice(&[
    0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0a, 0x30, 0x34, 0xa0, 0x0f, 0x30,
    0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x02, 0x05, 0x00, 0xa1, 0x1c,
    0x30, 0x1a, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x08, 0x30, 0x0d, 0x06,
    0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x02, 0x05, 0x00, 0xa2, 0x03, 0x02, 0x01,
    0x30,
]);
