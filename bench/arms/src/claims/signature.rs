//! That a key signed a text.

use aws_lc_rs::{
    encoding::{AsDer, PublicKeyX509Der},
    rand::SystemRandom,
    rsa::KeySize,
    signature::{
        ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair,
        RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_SHA256, RsaKeyPair, UnparsedPublicKey,
        VerificationAlgorithm,
    },
};
use confide_arm_line::Outcome;
use confide_sigma::{HashFunction, PublicKey, SignatureProof};

use super::method::ClaimMethod;

const TEXT: [u8; 1024] = [0x2a; 1024];

/// A key, as it verifies and as a certificate holds it, and its signature of the text.
struct SignedText {
    key: Vec<u8>,
    spki: Vec<u8>,
    signature: Vec<u8>,
    algorithm: &'static dyn VerificationAlgorithm,
}

impl SignedText {
    fn rsa() -> Outcome<Self> {
        let failed = |_| "aws-lc-rs made no RSA signature".to_string();
        let pair = RsaKeyPair::generate(KeySize::Rsa2048).map_err(failed)?;
        let mut signature = vec![0; pair.public_modulus_len()];
        let random = SystemRandom::new();
        pair.sign(&RSA_PKCS1_SHA256, &random, &TEXT, &mut signature).map_err(failed)?;
        let spki: PublicKeyX509Der<'_> = pair.public_key().as_der().map_err(failed)?;
        Ok(Self {
            key: pair.public_key().as_ref().to_vec(),
            spki: spki.as_ref().to_vec(),
            signature,
            algorithm: &RSA_PKCS1_2048_8192_SHA256,
        })
    }

    fn ecdsa() -> Outcome<Self> {
        let failed = |_| "aws-lc-rs made no ECDSA signature".to_string();
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).map_err(failed)?;
        let signature = pair.sign(&SystemRandom::new(), &TEXT).map_err(failed)?;
        let spki: PublicKeyX509Der<'_> = pair.public_key().as_der().map_err(failed)?;
        Ok(Self {
            key: pair.public_key().as_ref().to_vec(),
            spki: spki.as_ref().to_vec(),
            signature: signature.as_ref().to_vec(),
            algorithm: &ECDSA_P256_SHA256_ASN1,
        })
    }
}

/// The claim that shows the signature.
pub(super) struct NativeSignature(SignedText);

impl NativeSignature {
    pub(super) fn rsa() -> Outcome<Self> {
        SignedText::rsa().map(Self)
    }

    pub(super) fn ecdsa() -> Outcome<Self> {
        SignedText::ecdsa().map(Self)
    }
}

impl ClaimMethod for NativeSignature {
    fn describe_disclosure(&self) -> &'static str {
        "nothing: the signature is shown, and can be passed on"
    }

    fn prove(&mut self) -> Outcome<Option<usize>> {
        Ok(None)
    }

    fn verify_claim(&mut self) -> Outcome {
        let SignedText { key, signature, algorithm, .. } = &self.0;
        let key = UnparsedPublicKey::new(*algorithm, key);
        key.verify(&TEXT, signature).map_err(|_| "a signature made here does not verify".into())
    }

    fn disclosed_bytes(&self) -> usize {
        self.0.signature.len()
    }
}

/// The claim that proves knowledge of the signature.
pub(super) struct SigmaSignatureProof {
    key: PublicKey,
    signature: Vec<u8>,
    rsa: bool,
    proof: Vec<u8>,
}

/// The context to which proofs are bound.
const CONTEXT: &[u8] = b"confide bench";

impl SigmaSignatureProof {
    pub(super) fn rsa() -> Outcome<Self> {
        Self::new(SignedText::rsa()?, true)
    }

    pub(super) fn ecdsa() -> Outcome<Self> {
        Self::new(SignedText::ecdsa()?, false)
    }

    fn new(signed: SignedText, rsa: bool) -> Outcome<Self> {
        let key = PublicKey::from_spki(&signed.spki)?;
        Ok(Self { key, signature: signed.signature, rsa, proof: Vec::new() })
    }
}

impl ClaimMethod for SigmaSignatureProof {
    fn describe_disclosure(&self) -> &'static str {
        if self.rsa {
            "the signature; key and digest are public (zero-knowledge: yes)"
        } else {
            "half of the signature; key, digest and R are public (zero-knowledge: yes)"
        }
    }

    fn prove(&mut self) -> Outcome<Option<usize>> {
        let make = if self.rsa { SignatureProof::prove_pkcs1 } else { SignatureProof::prove_ecdsa };
        let digest = HashFunction::Sha256.digest(&TEXT);
        let proof = make(&self.key, HashFunction::Sha256, &digest, &self.signature, CONTEXT);
        self.proof = proof?.to_bytes();
        Ok(Some(self.proof.len()))
    }

    fn verify_claim(&mut self) -> Outcome {
        let proof = SignatureProof::from_bytes(&self.proof);
        let held = proof.and_then(|proof| proof.verify(&self.key, &TEXT, CONTEXT));
        Ok(held?)
    }
}
