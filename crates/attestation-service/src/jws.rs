//! JSON Web Signatures with ES256 (RFC 7515, RFC 7518 section 3.4), and the key as a JWK.

use aws_lc_rs::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair},
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::error::ServiceError;

/// The key that signs results.
pub struct SigningKey {
    pair: EcdsaKeyPair,
    random: SystemRandom,
    kid: String,
}

impl SigningKey {
    /// Generates a key, which exists only in this process.
    ///
    /// # Errors
    /// [`ServiceError::SigningKey`] if the operating system returns no random bytes.
    pub fn generate() -> Result<Self, ServiceError> {
        let made = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING);
        Self::from_key_pair(made.map_err(|_| ServiceError::SigningKey { wanted: "random bytes" })?)
    }

    /// A key from PKCS#8 in DER, which several instances of a fleet can share.
    ///
    /// # Errors
    /// [`ServiceError::SigningKey`] if the bytes are not a P-256 key in PKCS#8.
    pub fn from_pkcs8(der: &Zeroizing<Vec<u8>>) -> Result<Self, ServiceError> {
        let read = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der);
        Self::from_key_pair(
            read.map_err(|_| ServiceError::SigningKey { wanted: "P-256, PKCS#8 in DER" })?,
        )
    }

    fn from_key_pair(pair: EcdsaKeyPair) -> Result<Self, ServiceError> {
        let point = pair.public_key().as_ref();
        if point.len() != 65 || point[0] != 4 {
            return Err(ServiceError::SigningKey { wanted: "an uncompressed P-256 point" });
        }
        let (x, y) = (base64url(&point[1..33]), base64url(&point[33..]));
        // RFC 7638 section 3: the required members only, in this order, without white space.
        let members = format!(r#"{{"crv":"P-256","kty":"EC","x":"{x}","y":"{y}"}}"#);
        let kid = base64url(&Sha256::digest(members));
        Ok(Self { pair, random: SystemRandom::new(), kid })
    }

    /// The thumbprint of the public key (RFC 7638), which is `kid` in a token.
    pub fn kid(&self) -> &str {
        &self.kid
    }

    /// SHA-256 of the DER SubjectPublicKeyInfo, which is `pubkey-hash` in claims.
    pub fn spki_hash(&self) -> [u8; 32] {
        let digest = Sha256::new().chain_update(P256_SPKI_PREFIX);
        digest.chain_update(self.pair.public_key().as_ref()).finalize().into()
    }

    pub(crate) fn jwk(&self) -> Value {
        let point = self.pair.public_key().as_ref();
        json!({
            "kty": "EC",
            "crv": "P-256",
            "alg": "ES256",
            "use": "sig",
            "kid": self.kid,
            "x": base64url(&point[1..33]),
            "y": base64url(&point[33..]),
        })
    }

    /// Signs `claims` and returns the token in compact serialisation.
    pub(crate) fn sign(&self, claims: &Value) -> Option<String> {
        let header = json!({ "alg": "ES256", "typ": "eat+jwt", "kid": self.kid });
        let mut token = base64url(header.to_string().as_bytes());
        token.push('.');
        token += &base64url(claims.to_string().as_bytes());
        let signature = self.pair.sign(&self.random, token.as_bytes()).ok()?;
        token.push('.');
        token += &base64url(signature.as_ref());
        Some(token)
    }
}

/// The DER SubjectPublicKeyInfo of a P-256 key without the 65 bytes of its point (RFC 5480).
const P256_SPKI_PREFIX: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a,
    0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

fn base64url(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};

    use super::*;

    #[test]
    fn a_token_verifies_under_the_published_key_and_an_altered_one_does_not() {
        let key = SigningKey::generate().unwrap();
        let token = key.sign(&json!({ "iat": 1 })).unwrap();
        let (signed, signature) = token.rsplit_once('.').unwrap();
        let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
        let jwk = key.jwk();
        let coordinate = |name: &str| URL_SAFE_NO_PAD.decode(jwk[name].as_str().unwrap()).unwrap();
        let point = [&[4][..], &coordinate("x"), &coordinate("y")].concat();
        let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point);
        public.verify(signed.as_bytes(), &signature).unwrap();
        assert!(public.verify(b"e30.e30", &signature).is_err());
        let header = URL_SAFE_NO_PAD.decode(signed.split('.').next().unwrap()).unwrap();
        let header: Value = serde_json::from_slice(&header).unwrap();
        assert_eq!((&header["alg"], &header["kid"]), (&json!("ES256"), &jwk["kid"]));
    }

    #[test]
    fn a_key_of_another_kind_is_refused() {
        let wrong = Zeroizing::new(vec![0x30, 0]);
        assert!(matches!(SigningKey::from_pkcs8(&wrong), Err(ServiceError::SigningKey { .. })));
    }
}
