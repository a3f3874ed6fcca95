//! PEM with line feeds on every platform: some of these bytes are part of quotes.

use base64::{Engine, engine::general_purpose::STANDARD};

/// Columns of a line (RFC 7468 section 2).
const COLUMNS: usize = 64;

pub(crate) fn encode_certificate(der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let mut pem = String::from("-----BEGIN CERTIFICATE-----\n");
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(COLUMNS));
        pem += line;
        pem.push('\n');
        rest = after;
    }
    pem + "-----END CERTIFICATE-----\n"
}
