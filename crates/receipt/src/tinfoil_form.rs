//! The form of Tinfoil's attestation document, version 3, without a GPU.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::Serialize;

use crate::keyset::Nonce;

const FORMAT: &str = "https://tinfoil.sh/predicate/attestation/v3";

/// The kind of the TEE in the words of this form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TinfoilPlatform {
    /// The report is a TDX quote.
    Tdx,
    /// The report is an SEV-SNP report.
    SevSnp,
}

/// The content of a document.
#[derive(Clone, Copy, Debug)]
pub struct TinfoilDocument<'a> {
    /// SHA-256 of the `SubjectPublicKeyInfo` of the TLS key, which is that of the certificate.
    pub spki_sha256: &'a [u8; 32],
    /// The X25519 key to which clients encrypt bodies.
    pub hpke_key: &'a [u8; 32],
    /// The verifier's challenge.
    pub nonce: &'a Nonce,
    /// The kind of the report.
    pub platform: TinfoilPlatform,
    /// The quote or report over [`tinfoil_report_data`](crate::tinfoil_report_data) of the above.
    pub report: &'a [u8],
    /// The certificate of the TLS key, in PEM.
    pub certificate_pem: &'a str,
}

impl TinfoilDocument<'_> {
    /// The document with the signature that `sign` makes: ECDSA in DER, by the certificate's key,
    /// over the document with an empty text in the signature's place.
    ///
    /// # Errors
    /// The error of `sign`.
    pub fn to_json<E>(&self, sign: impl FnOnce(&str) -> Result<Vec<u8>, E>) -> Result<String, E> {
        let signature = sign(&self.write(""))?;
        Ok(self.write(&STANDARD.encode(signature)))
    }

    fn write(&self, signature: &str) -> String {
        let platform = match self.platform {
            TinfoilPlatform::Tdx => "tdx",
            TinfoilPlatform::SevSnp => "sev-snp",
        };
        let document = WireDocument {
            format: FORMAT,
            report_data: WireReportData {
                tls_key_fp: hex::encode(self.spki_sha256),
                hpke_key: hex::encode(self.hpke_key),
                nonce: hex::encode(self.nonce),
            },
            cpu: WireCpu { platform, report: STANDARD.encode(self.report) },
            certificate: self.certificate_pem,
            signature,
        };
        serde_json::to_string(&document).expect("texts alone have a JSON")
    }
}

/// The members in the order in which Tinfoil's verifiers write them anew to check the signature.
#[derive(Serialize)]
struct WireDocument<'a> {
    format: &'a str,
    report_data: WireReportData,
    cpu: WireCpu,
    certificate: &'a str,
    signature: &'a str,
}

#[derive(Serialize)]
struct WireReportData {
    tls_key_fp: String,
    hpke_key: String,
    nonce: String,
}

#[derive(Serialize)]
struct WireCpu {
    platform: &'static str,
    report: String,
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    #[test]
    fn the_signature_is_over_the_document_with_an_empty_one() {
        let document = TinfoilDocument {
            spki_sha256: &[1; 32],
            hpke_key: &[2; 32],
            nonce: &[3; 32],
            platform: TinfoilPlatform::SevSnp,
            report: &[4, 5],
            certificate_pem: "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n",
        };
        let mut covered = String::new();
        let sign = |text: &str| {
            covered = text.to_owned();
            Ok::<_, Infallible>(vec![0x30, 0])
        };
        let Ok(text) = document.to_json(sign);
        let (one, two, three) = ("01".repeat(32), "02".repeat(32), "03".repeat(32));
        let wanted = format!(
            "{{\"format\":\"https://tinfoil.sh/predicate/attestation/v3\",\"report_data\":{{\
             \"tls_key_fp\":\"{one}\",\"hpke_key\":\"{two}\",\"nonce\":\"{three}\"}},\
             \"cpu\":{{\"platform\":\"sev-snp\",\"report\":\"BAU=\"}},\
             \"certificate\":\"-----BEGIN CERTIFICATE-----\\nAA==\\n-----END CERTIFICATE-----\\n\",\
             \"signature\":\"MAA=\"}}"
        );
        assert_eq!(text, wanted);
        assert_eq!(covered, wanted.replace("MAA=", ""));
    }
}
