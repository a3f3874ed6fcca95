//! The least CPU time that the cryptography of one full handshake costs a server.

use aws_lc_rs::{
    agreement::{EphemeralPrivateKey, UnparsedPublicKey, X25519, agree_ephemeral},
    error::Unspecified,
    kem::{DecapsulationKey, EncapsulationKey, ML_KEM_768},
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair},
};
use rustix::time::{ClockId, clock_gettime};

use super::route::KeyExchangeGroup;

/// CPU time of one measurement of the floor, in nanoseconds: some 150 rounds, and little compared
/// with a slice.
const LOOK_NS: i64 = 10_000_000;

/// The floor's name in every row that has it.
pub(crate) fn floor_name(group: KeyExchangeGroup) -> &'static str {
    match group {
        KeyExchangeGroup::X25519 => {
            "P-256 sign + X25519 keygen + agree, aws-lc-rs, the server's core"
        }
        KeyExchangeGroup::X25519mlkem768 => {
            "P-256 sign + X25519 keygen + agree + ML-KEM-768 encapsulate, aws-lc-rs, the server's core"
        }
    }
}

/// Rounds in a CPU second of this core, now. `None` when the library refuses.
pub(crate) fn handshake_crypto_per_s(group: KeyExchangeGroup) -> Option<f64> {
    let random = SystemRandom::new();
    let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).ok()?;
    let peer = EphemeralPrivateKey::generate(&X25519, &random).ok()?.compute_public_key().ok()?;
    let peer_kem = match group {
        KeyExchangeGroup::X25519 => None,
        KeyExchangeGroup::X25519mlkem768 => Some(generate_kem_key().ok()?),
    };
    let (began, mut rounds) = (thread_cpu_ns(), 0_u32);
    loop {
        key.sign(&random, b"a hash of a handshake, 32 bytes.").ok()?;
        let own = EphemeralPrivateKey::generate(&X25519, &random).ok()?;
        own.compute_public_key().ok()?;
        let peer = UnparsedPublicKey::new(&X25519, peer.as_ref());
        agree_ephemeral(own, peer, (), |_secret| Ok(())).ok()?;
        if let Some(bytes) = &peer_kem {
            EncapsulationKey::new(&ML_KEM_768, bytes).ok()?.encapsulate().ok()?;
        }
        rounds += 1;
        let spent = thread_cpu_ns() - began;
        if spent >= LOOK_NS {
            return Some(f64::from(rounds) * 1e9 / spent as f64);
        }
    }
}

/// The bytes of a client's ML-KEM-768 key, as a ClientHello carries them.
fn generate_kem_key() -> Result<Vec<u8>, Unspecified> {
    let key = DecapsulationKey::generate(&ML_KEM_768)?.encapsulation_key()?;
    Ok(key.key_bytes()?.as_ref().to_vec())
}

fn thread_cpu_ns() -> i64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_floor_is_a_rate_with_either_group() {
        for group in [KeyExchangeGroup::X25519, KeyExchangeGroup::X25519mlkem768] {
            assert!(handshake_crypto_per_s(group).is_some_and(|rate| rate > 0.0), "{group:?}");
        }
    }
}
