//! P-384 keys from a seed, as signers of certificates (DER) and of reports (raw r, s).

use p384::ecdsa::{DerSignature, Signature, SigningKey, signature::Signer};
use rcgen::{PKCS_ECDSA_P384_SHA384, PublicKeyData, SignatureAlgorithm};
use sha2::{Digest, Sha384};
use zeroize::Zeroizing;

use super::options::GpuOptions;

/// A private key and its public key; [`SigningKey`] wipes itself on drop.
pub(super) struct GpuKey {
    private: SigningKey,
    /// The SEC 1 uncompressed point: 0x04, x, y.
    pub(super) public: [u8; 97],
}

impl GpuKey {
    /// The key with this name of the GPU with these options.
    pub(super) fn from_options(options: &GpuOptions, label: &str) -> Self {
        Self::derive(&options.seed, label)
    }

    /// The key of `label` under `seed`. A hash that is not a valid scalar (chance below 2^-190) is
    /// skipped by counting on.
    fn derive(seed: &[u8; 32], label: &str) -> Self {
        let private = (0..=u8::MAX).find_map(|counter| {
            let scalar = Zeroizing::new(<[u8; 48]>::from(
                Sha384::new()
                    .chain_update(b"confide SIMULATED GPU key v1\0")
                    .chain_update(label.as_bytes())
                    .chain_update([0, counter])
                    .chain_update(seed)
                    .finalize(),
            ));
            SigningKey::from_slice(scalar.as_slice()).ok()
        });
        // 256 misses in a row do not happen.
        let private = private.expect("one of 256 hashes is a valid scalar");
        let mut public = [0; 97];
        public.copy_from_slice(private.verifying_key().to_sec1_point(false).as_bytes());
        Self { private, public }
    }

    /// Signs by ECDSA over SHA-384: r and s, 48 bytes each.
    pub(super) fn sign_raw(&self, message: &[u8]) -> [u8; 96] {
        let signature: Signature = self.private.sign(message);
        signature.to_bytes().into()
    }

    /// Signs by ECDSA over SHA-384, in DER.
    pub(super) fn sign_der(&self, message: &[u8]) -> Vec<u8> {
        let signature: DerSignature = self.private.sign(message);
        signature.as_bytes().to_vec()
    }
}

impl PublicKeyData for GpuKey {
    fn der_bytes(&self) -> &[u8] {
        &self.public
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ECDSA_P384_SHA384
    }
}

impl rcgen::SigningKey for GpuKey {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        Ok(self.sign_der(message))
    }
}
