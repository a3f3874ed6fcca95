//! The form of dstack's report, and of its signature over the digests of a request and its answer.

use std::fmt;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};

use crate::{error::ReceiptError, json::Json, keyset::Nonce};

const ED25519: &str = "ed25519";

/// The digests of a request's body and of its whole answer's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExchangeDigests {
    /// SHA-256 of the request as it arrived.
    pub request: [u8; 32],
    /// SHA-256 of the answer as it left, with the lines that frame the events of a stream.
    pub response: [u8; 32],
}

impl ExchangeDigests {
    /// The text that is signed: both digests in lower-case hexadecimal, with a colon in between.
    pub fn to_text(&self) -> String {
        format!("{}:{}", hex::encode(self.request), hex::encode(self.response))
    }
}

/// An Ed25519 key pair that signs such texts and nothing else. The private key stays in the
/// cryptographic library.
pub struct DstackKey {
    pair: Ed25519KeyPair,
    address: [u8; 32],
}

impl DstackKey {
    /// Generates a key pair.
    ///
    /// # Errors
    /// [`ReceiptError::Signing`] if the system has no randomness.
    pub fn generate() -> Result<Self, ReceiptError> {
        let pair = Ed25519KeyPair::generate().map_err(|_| ReceiptError::Signing)?;
        let address = pair.public_key().as_ref().try_into().map_err(|_| ReceiptError::Signing)?;
        Ok(Self { pair, address })
    }

    /// The signing address, which for Ed25519 is the public key (RFC 8032).
    pub fn address(&self) -> &[u8; 32] {
        &self.address
    }

    /// The document with the signed text of an exchange.
    pub fn sign(&self, exchange: &ExchangeDigests) -> String {
        let text = exchange.to_text();
        let signature = self.pair.sign(text.as_bytes());
        Json::object([
            ("signature", Json::from(hex::encode(signature.as_ref()))),
            ("signing_address", hex::encode(self.address).into()),
            ("signing_algo", ED25519.into()),
            ("text", text.into()),
        ])
        .to_canonical()
    }
}

impl fmt::Debug for DstackKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = hex::encode(self.address);
        f.debug_struct("DstackKey").field("address", &address).finish_non_exhaustive()
    }
}

/// The content of a report in dstack's form. It has no event log and no composition, because a
/// gateway knows neither.
#[derive(Clone, Copy, Debug)]
pub struct DstackReport<'a> {
    /// The address of the key that signs texts.
    pub signing_address: &'a [u8; 32],
    /// SHA-256 of the TLS key's `SubjectPublicKeyInfo`, if the report names it.
    pub spki_sha256: Option<&'a [u8; 32]>,
    /// The verifier's challenge.
    pub nonce: &'a Nonce,
    /// The TDX quote over [`dstack_report_data`](crate::dstack_report_data) of the above.
    pub quote: &'a [u8],
    /// Whether software made the quote that only imitates a TEE.
    pub is_simulated: bool,
}

impl DstackReport<'_> {
    /// The document. The list of all attestations holds this one, because there is one gateway.
    pub fn to_json(&self) -> String {
        let address = hex::encode(self.signing_address);
        let mut members = vec![
            ("signing_address", Json::from(address.as_str())),
            ("signing_algo", ED25519.into()),
            ("signing_public_key", address.into()),
            ("request_nonce", hex::encode(self.nonce).into()),
            ("intel_quote", hex::encode(self.quote).into()),
        ];
        if let Some(spki) = self.spki_sha256 {
            members.push(("tls_cert_fingerprint", hex::encode(spki).into()));
        }
        if self.is_simulated {
            members.push(("simulated", true.into()));
        }
        let attestation = Json::object(members.clone());
        members.push(("all_attestations", Json::Array(vec![attestation])));
        Json::object(members).to_canonical()
    }
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::signature::{ED25519 as RFC_8032, UnparsedPublicKey};

    use super::*;

    fn parse(document: &str) -> Json {
        Json::parse(document.as_bytes(), 4096).unwrap()
    }

    #[test]
    fn a_signature_is_of_the_text_that_it_comes_with() {
        let key = DstackKey::generate().unwrap();
        let exchange = ExchangeDigests { request: [0xab; 32], response: [1; 32] };
        let document = parse(&key.sign(&exchange));
        let text = document.get_text("text").unwrap();
        assert_eq!(text, format!("{}:{}", "ab".repeat(32), "01".repeat(32)));
        assert_eq!(document.get_text("signing_algo"), Some("ed25519"));
        let address = hex::decode(document.get_text("signing_address").unwrap()).unwrap();
        assert_eq!(address, key.address());
        let signature = hex::decode(document.get_text("signature").unwrap()).unwrap();
        let public_key = UnparsedPublicKey::new(&RFC_8032, address);
        public_key.verify(text.as_bytes(), &signature).unwrap();
        for changed in [text.replacen('a', "b", 1), text.replacen('1', "2", 1), format!("{text}\n")]
        {
            assert!(public_key.verify(changed.as_bytes(), &signature).is_err(), "{changed:?}");
        }
        let other = DstackKey::generate().unwrap();
        let other = UnparsedPublicKey::new(&RFC_8032, other.address());
        assert!(other.verify(text.as_bytes(), &signature).is_err());
    }

    #[test]
    fn a_report_states_what_is_known_and_no_more() {
        let report = DstackReport {
            signing_address: &[1; 32],
            spki_sha256: Some(&[2; 32]),
            nonce: &[3; 32],
            quote: &[4, 5],
            is_simulated: false,
        };
        let document = parse(&report.to_json());
        let names: Vec<_> = document.as_object().unwrap().keys().map(String::as_str).collect();
        let wanted = [
            "all_attestations",
            "intel_quote",
            "request_nonce",
            "signing_address",
            "signing_algo",
            "signing_public_key",
            "tls_cert_fingerprint",
        ];
        assert_eq!(names, wanted);
        for (name, wanted) in [
            ("intel_quote", "0405".to_owned()),
            ("request_nonce", "03".repeat(32)),
            ("signing_address", "01".repeat(32)),
            ("signing_public_key", "01".repeat(32)),
            ("tls_cert_fingerprint", "02".repeat(32)),
        ] {
            assert_eq!(document.get_text(name), Some(wanted.as_str()), "{name}");
        }
        let Some(Json::Array(all)) = document.get("all_attestations") else { panic!("no list") };
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].get("intel_quote"), document.get("intel_quote"));
        let bare = DstackReport { spki_sha256: None, is_simulated: true, ..report };
        let document = parse(&bare.to_json());
        assert_eq!(document.get("tls_cert_fingerprint"), None);
        assert_eq!(document.get("simulated"), Some(&Json::Bool(true)));
    }
}
