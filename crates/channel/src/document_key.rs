//! Documents that a server signs with its TLS key, for verifiers that know it by its certificate.

use std::{fmt, sync::Arc};

use rustls::SignatureScheme;

use crate::{
    error::ChannelError,
    identity::{Identity, KeyIdentity},
};

/// The TLS key of a server and its certificate, as they were at one moment.
#[derive(Clone)]
pub struct DocumentKey(Arc<Identity>);

impl DocumentKey {
    pub(crate) fn new(identity: Arc<Identity>) -> Self {
        Self(identity)
    }

    /// The key and its expiry.
    pub fn key_identity(&self) -> KeyIdentity {
        self.0.key_identity()
    }

    /// The certificate of the key, in DER.
    ///
    /// # Errors
    /// [`ChannelError::Identity`] if there is none.
    pub fn certificate_der(&self) -> Result<&[u8], ChannelError> {
        let missing = || ChannelError::Identity { reason: "the TLS key has no certificate".into() };
        self.0.certificate().map(|certificate| &certificate[..]).ok_or_else(missing)
    }

    /// Signs a JSON object with ECDSA (P-256 and SHA-256). The signature is in DER.
    ///
    /// A client that has texts signed must not get a signature that means something in TLS. What
    /// TLS 1.3 and exported authenticators sign begins with 64 spaces (RFC 8446 section 4.4.3), and
    /// what is signed of a certificate begins with the byte 0x30. A text that begins with `{` is
    /// neither, and no other one is signed.
    ///
    /// # Errors
    /// [`ChannelError::Identity`] if the text begins otherwise, or the key cannot sign in this way.
    pub fn sign_document(&self, document: &str) -> Result<Vec<u8>, ChannelError> {
        let failed = |reason: &str| ChannelError::Identity { reason: reason.into() };
        if !document.starts_with('{') {
            return Err(failed("a TLS key signs JSON objects only"));
        }
        let schemes = [SignatureScheme::ECDSA_NISTP256_SHA256];
        let signer = self.0.certified.key.choose_scheme(&schemes);
        let signer = signer.ok_or_else(|| failed("the TLS key is not one of ECDSA on P-256"))?;
        signer.sign(document.as_bytes()).map_err(|error| failed(&error.to_string()))
    }
}

impl fmt::Debug for DocumentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DocumentKey").field(&self.key_identity()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};

    use super::*;
    use crate::{identity::IdentityOptions, options::Binding};

    #[test]
    fn a_tls_key_signs_json_objects_and_nothing_of_tls() {
        let options = IdentityOptions {
            attester: None,
            binding: Binding::None,
            config_digest: [0; 32],
            guarantee: "none".into(),
            names: vec!["localhost".into()],
            validity: Duration::from_secs(3600),
            weights: None,
        };
        let key = DocumentKey::new(Arc::new(Identity::generate(&options, 1_800_000_000).unwrap()));
        let spki = key.0.spki().unwrap();
        // The point follows 26 bytes that are the same for every key on P-256.
        let public_key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, &spki[26..]);
        let signature = key.sign_document("{\"signature\":\"\"}").unwrap();
        public_key.verify(b"{\"signature\":\"\"}", &signature).unwrap();
        assert!(public_key.verify(b"{\"signature\":\" \"}", &signature).is_err());
        let spaces = " ".repeat(64) + "TLS 1.3, server CertificateVerify\0";
        for text in ["", " {}", "0", &spaces] {
            assert!(key.sign_document(text).is_err(), "{text:?}");
        }
        assert!(key.certificate_der().unwrap().windows(spki.len()).any(|part| part == &spki[..]));
    }
}
