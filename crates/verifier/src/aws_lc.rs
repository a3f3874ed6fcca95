//! Signature checks through aws-lc-rs, for servers and clients (feature `aws-lc`).

mod amd;

use alloc::boxed::Box;
use core::fmt;

use aws_lc_rs::{
    digest::{Context, SHA256, SHA384},
    signature::{
        ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ParsedPublicKey, UnparsedPublicKey,
    },
};
use rustls_pki_types::SignatureVerificationAlgorithm;

use crate::{
    crypto::{Crypto, P256Key, P384Key},
    memory::TagKey,
};

/// The aws-lc-rs provider.
#[derive(Clone, Copy, Debug, Default)]
pub struct AwsLc;

impl AwsLc {
    /// A secret for the tags of a memory of platforms, drawn now.
    ///
    /// # Panics
    ///
    /// Where the system has no random numbers; nothing is secret there.
    pub fn generate_tag_key() -> TagKey {
        let mut random = [0; 16];
        aws_lc_rs::rand::fill(&mut random).expect("the system has random numbers");
        TagKey::new(random)
    }
}

impl Crypto for AwsLc {
    fn verify_p256(&self, public_key: &[u8; 65], message: &[u8], signature: &[u8; 64]) -> bool {
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, public_key)
            .verify(message, signature)
            .is_ok()
    }

    fn prepare_p256(&self, public_key: &[u8; 65]) -> Option<Box<dyn P256Key>> {
        let key = ParsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, public_key).ok()?;
        Some(Box::new(Key(key)))
    }

    fn verify_p384(&self, public_key: &[u8; 97], message: &[u8], signature: &[u8; 96]) -> bool {
        UnparsedPublicKey::new(&ECDSA_P384_SHA384_FIXED, public_key)
            .verify(message, signature)
            .is_ok()
    }

    fn prepare_p384(&self, public_key: &[u8; 97]) -> Option<Box<dyn P384Key>> {
        let key = ParsedPublicKey::new(&ECDSA_P384_SHA384_FIXED, public_key).ok()?;
        Some(Box::new(Key(key)))
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

    fn amd_certificate_algorithms(&self) -> [&'static dyn SignatureVerificationAlgorithm; 2] {
        [&amd::WITH_TRAILER, &amd::WITHOUT_TRAILER]
    }
}

/// A key that has been parsed and found on the curve; saves one microsecond a signature.
struct Key(ParsedPublicKey);

impl P256Key for Key {
    fn verify(&self, message: &[u8], signature: &[u8; 64]) -> bool {
        self.0.verify_sig(message, signature).is_ok()
    }
}

impl P384Key for Key {
    fn verify(&self, message: &[u8], signature: &[u8; 96]) -> bool {
        self.0.verify_sig(message, signature).is_ok()
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}
