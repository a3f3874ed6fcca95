//! A TLS 1.3 provider for rustls in Rust alone, on the crates of RustCrypto and dalek.
//!
//! `tests/provider.rs` runs each suite and group against aws-lc-rs, as client and as server.

mod aead;
mod hash;
pub mod key_exchange;
pub mod signatures;

use std::sync::Arc;

use rustls::{
    CipherSuite, CipherSuiteCommon, SupportedCipherSuite, Tls13CipherSuite,
    crypto::{CryptoProvider, GetRandomFailed, KeyProvider, SecureRandom, tls13::HkdfUsingHmac},
    pki_types::PrivateKeyDer,
    sign::SigningKey,
};

use self::key_exchange::{SECP256R1, X25519, X25519_MLKEM768};

/// Records under one key before rustls asks for new keys (RFC 8446 section 5.5).
const GCM_RECORDS_MAX: u64 = 1 << 24;

/// The provider: suites and groups in the order of preference, the post-quantum hybrid first.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider {
        cipher_suites: vec![AES_128_GCM_SHA256, CHACHA20_POLY1305_SHA256, AES_256_GCM_SHA384],
        kx_groups: vec![X25519_MLKEM768, X25519, SECP256R1],
        signature_verification_algorithms: signatures::SUPPORTED,
        secure_random: &HostRandom,
        key_provider: &NoKeys,
    })
}

/// TLS_AES_128_GCM_SHA256.
pub static AES_128_GCM_SHA256: SupportedCipherSuite =
    SupportedCipherSuite::Tls13(&Tls13CipherSuite {
        common: CipherSuiteCommon {
            suite: CipherSuite::TLS13_AES_128_GCM_SHA256,
            hash_provider: &hash::SHA256,
            confidentiality_limit: GCM_RECORDS_MAX,
        },
        hkdf_provider: &HkdfUsingHmac(&hash::HMAC_SHA256),
        aead_alg: &aead::AES_128_GCM,
        quic: None,
    });

/// TLS_AES_256_GCM_SHA384.
pub static AES_256_GCM_SHA384: SupportedCipherSuite =
    SupportedCipherSuite::Tls13(&Tls13CipherSuite {
        common: CipherSuiteCommon {
            suite: CipherSuite::TLS13_AES_256_GCM_SHA384,
            hash_provider: &hash::SHA384,
            confidentiality_limit: GCM_RECORDS_MAX,
        },
        hkdf_provider: &HkdfUsingHmac(&hash::HMAC_SHA384),
        aead_alg: &aead::AES_256_GCM,
        quic: None,
    });

/// TLS_CHACHA20_POLY1305_SHA256.
pub static CHACHA20_POLY1305_SHA256: SupportedCipherSuite =
    SupportedCipherSuite::Tls13(&Tls13CipherSuite {
        common: CipherSuiteCommon {
            suite: CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
            hash_provider: &hash::SHA256,
            confidentiality_limit: u64::MAX,
        },
        hkdf_provider: &HkdfUsingHmac(&hash::HMAC_SHA256),
        aead_alg: &aead::CHACHA20_POLY1305,
        quic: None,
    });

/// Random numbers of the operating system, or of the page.
#[derive(Debug)]
struct HostRandom;

impl SecureRandom for HostRandom {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), GetRandomFailed> {
        getrandom::fill(bytes).map_err(|_| GetRandomFailed)
    }
}

/// A client without a key of its own.
#[derive(Debug)]
struct NoKeys;

impl KeyProvider for NoKeys {
    fn load_private_key(
        &self,
        _key: PrivateKeyDer<'static>,
    ) -> Result<Arc<dyn SigningKey>, rustls::Error> {
        Err(rustls::Error::General("this provider signs with no key".into()))
    }
}
