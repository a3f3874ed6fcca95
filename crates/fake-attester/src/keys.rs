//! P-256 keys from a seed, as signers of certificates (DER) and of quotes and JSON (raw r, s).

use p256::ecdsa::{DerSignature, Signature, SigningKey, signature::Signer};
use rcgen::{PKCS_ECDSA_P256_SHA256, PublicKeyData, SignatureAlgorithm};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

/// The P-256 keys of the simulation, each of which signs for one role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SimulatedKey {
    /// The key of Intel's simulated root.
    IntelRoot,
    /// The key of the CA of machines with several packages.
    PlatformCa,
    /// The key of the CA of machines with one package.
    ProcessorCa,
    /// The key that signs TCB info and QE identity.
    TcbSigner,
    /// The PCK of the machine with this number.
    Pck(u32),
    /// The attestation key of the machine with this number.
    AttestationKey(u32),
}

impl SimulatedKey {
    fn label(self) -> String {
        match self {
            Self::IntelRoot => "root".into(),
            Self::PlatformCa => "platform ca".into(),
            Self::ProcessorCa => "processor ca".into(),
            Self::TcbSigner => "tcb signer".into(),
            Self::Pck(platform) => numbered_name("pck", platform),
            Self::AttestationKey(platform) => numbered_name("attestation key", platform),
        }
    }
}

/// A name of something that each simulated platform has: the first platform's has no number.
pub(crate) fn numbered_name(name: &str, platform: u32) -> String {
    match platform {
        0 => name.into(),
        n => format!("{name} {n}"),
    }
}

/// A private key and its public key; [`SigningKey`] wipes itself on drop.
pub(crate) struct Key {
    private: SigningKey,
    /// The SEC 1 uncompressed point: 0x04, x, y.
    public: [u8; 65],
}

impl Key {
    /// The key of this name under `seed`.
    ///
    /// A hash that is not a valid scalar (chance below 2^-32) is skipped by counting on.
    pub(crate) fn derive(seed: &[u8; 32], name: SimulatedKey) -> Self {
        let private = (0..=u8::MAX).find_map(|counter| {
            let scalar = Zeroizing::new(<[u8; 32]>::from(
                Sha256::new()
                    .chain_update(b"confide SIMULATED key v1\0")
                    .chain_update(name.label())
                    .chain_update([0, counter])
                    .chain_update(seed)
                    .finalize(),
            ));
            SigningKey::from_slice(scalar.as_slice()).ok()
        });
        // 256 misses in a row have a chance below 2^-8192.
        let private = private.expect("one of 256 hashes is a valid scalar");
        let mut public = [0; 65];
        public.copy_from_slice(private.verifying_key().to_sec1_point(false).as_bytes());
        Self { private, public }
    }

    /// The coordinates x and y, 64 bytes, as quotes carry the attestation key.
    pub(crate) fn point(&self) -> &[u8] {
        &self.public[1..]
    }

    /// Signs by ECDSA over SHA-256: r and s, 32 bytes each, as quotes and PCS responses carry it.
    pub(crate) fn sign_raw(&self, message: &[u8]) -> [u8; 64] {
        let signature: Signature = self.private.sign(message);
        signature.to_bytes().into()
    }
}

impl PublicKeyData for Key {
    fn der_bytes(&self) -> &[u8] {
        &self.public
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}

impl rcgen::SigningKey for Key {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        let signature: DerSignature = self.private.sign(message);
        Ok(signature.as_bytes().to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_role_has_a_key_of_its_own() {
        let roles = [
            SimulatedKey::IntelRoot,
            SimulatedKey::PlatformCa,
            SimulatedKey::ProcessorCa,
            SimulatedKey::TcbSigner,
            SimulatedKey::Pck(0),
            SimulatedKey::Pck(1),
            SimulatedKey::AttestationKey(0),
            SimulatedKey::AttestationKey(1),
        ];
        let mut points: Vec<_> = roles.map(|role| Key::derive(&[7; 32], role).public).to_vec();
        points.sort();
        points.dedup();
        assert_eq!(points.len(), roles.len());
    }

    #[test]
    fn signatures_are_deterministic() {
        let (a, b) = (
            Key::derive(&[1; 32], SimulatedKey::Pck(0)),
            Key::derive(&[1; 32], SimulatedKey::Pck(0)),
        );
        assert_eq!(a.sign_raw(b"m"), b.sign_raw(b"m"));
        assert_ne!(a.sign_raw(b"m"), a.sign_raw(b"n"));
    }
}
