//! Signature checks of `confide-verifier` through aws-lc-rs, for servers and clients with std.

use aws_lc_rs::{
    digest::{Context, SHA256, SHA384},
    signature::{ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, UnparsedPublicKey},
};
use confide_verifier::{Crypto, SignatureVerificationAlgorithm};

/// The aws-lc-rs provider.
#[derive(Clone, Copy, Debug, Default)]
pub struct AwsLc;

impl Crypto for AwsLc {
    fn verify_p256(&self, public_key: &[u8; 65], message: &[u8], signature: &[u8; 64]) -> bool {
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, public_key)
            .verify(message, signature)
            .is_ok()
    }

    fn verify_p384(&self, public_key: &[u8; 97], message: &[u8], signature: &[u8; 96]) -> bool {
        UnparsedPublicKey::new(&ECDSA_P384_SHA384_FIXED, public_key)
            .verify(message, signature)
            .is_ok()
    }

    fn sha256(&self, parts: &[&[u8]]) -> [u8; 32] {
        let mut context = Context::new(&SHA256);
        for part in parts {
            context.update(part);
        }
        let mut digest = [0; 32];
        digest.copy_from_slice(context.finish().as_ref());
        digest
    }

    fn sha384(&self, parts: &[&[u8]]) -> [u8; 48] {
        let mut context = Context::new(&SHA384);
        for part in parts {
            context.update(part);
        }
        let mut digest = [0; 48];
        digest.copy_from_slice(context.finish().as_ref());
        digest
    }

    fn certificate_algorithm(&self) -> &'static dyn SignatureVerificationAlgorithm {
        webpki::aws_lc_rs::ECDSA_P256_SHA256
    }

    fn p384_certificate_algorithm(&self) -> &'static dyn SignatureVerificationAlgorithm {
        webpki::aws_lc_rs::ECDSA_P384_SHA384
    }
}
