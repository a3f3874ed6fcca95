//! P-384 keys from a seed.

use p384::ecdsa::{Signature, SigningKey, signature::Signer};
use sha2::{Digest, Sha384};
use zeroize::Zeroizing;

use crate::asn1;

/// A VCEK or VLEK; [`SigningKey`] wipes itself on drop.
pub(crate) struct ChipKey(SigningKey);

impl ChipKey {
    /// The key that `labels` name under `seed`.
    pub(crate) fn derive(seed: &[u8; 32], labels: &[&[u8]]) -> Self {
        let key = (0..=u8::MAX).find_map(|counter| {
            let mut hash = Sha384::new().chain_update(b"confide SIMULATED P-384 key v1\0");
            for label in labels {
                hash.update((label.len() as u64).to_be_bytes());
                hash.update(label);
            }
            let scalar: [u8; 48] =
                hash.chain_update([counter]).chain_update(seed).finalize().into();
            SigningKey::from_slice(Zeroizing::new(scalar).as_slice()).ok()
        });
        // The chance that none of the hashes is one is below 2^-190.
        Self(key.expect("one of 256 hashes is a valid scalar"))
    }

    /// The SubjectPublicKeyInfo.
    pub(crate) fn public_key_info(&self) -> Vec<u8> {
        let algorithm = asn1::sequence(&[
            &asn1::object_identifier("1.2.840.10045.2.1"),
            &asn1::object_identifier("1.3.132.0.34"),
        ]);
        let point = self.0.verifying_key().to_sec1_point(false);
        asn1::sequence(&[&algorithm, &asn1::bit_string(point.as_bytes())])
    }

    /// Signs by ECDSA over SHA-384 as reports hold it: r and s, little-endian, 72 bytes each.
    pub(crate) fn sign(&self, message: &[u8]) -> [u8; 144] {
        let signature: Signature = self.0.sign(message);
        let bytes: [u8; 96] = signature.to_bytes().into();
        let mut out = [0; 144];
        for (half, slot) in bytes.chunks(48).zip(out.chunks_mut(72)) {
            half.iter().rev().zip(slot).for_each(|(byte, slot)| *slot = *byte);
        }
        out
    }
}
