//! Certificates in PEM.

use base64::{Engine, engine::general_purpose::STANDARD};

/// A certificate in PEM (RFC 7468).
pub(crate) fn encode_certificate(der: &[u8]) -> String {
    let base64 = STANDARD.encode(der);
    let mut pem = String::from("-----BEGIN CERTIFICATE-----\n");
    for line in base64.as_bytes().chunks(64) {
        pem.extend(line.iter().map(|byte| char::from(*byte)));
        pem.push('\n');
    }
    pem.push_str("-----END CERTIFICATE-----\n");
    pem
}
