//! NVIDIA's RIM service, and OCSP.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::kds::der_length;

/// The keys of the service's JSON that are read; it has others.
#[derive(Deserialize)]
struct RimAnswer {
    id: Option<String>,
    rim: String,
    sha256: Option<String>,
}

/// Parses the RIM in an answer to `/v1/rim/{id}`: XML with an enveloped signature.
///
/// The hash comes from the service too, so that it detects only accidental damage.
pub(crate) fn read_rim(id: &str, body: &[u8]) -> Result<Vec<u8>, String> {
    let wire: RimAnswer = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    if wire.id.as_deref().is_some_and(|got| got != id) {
        return Err(format!("the identifier of the RIM is not {id}"));
    }
    let rim = STANDARD.decode(wire.rim.as_bytes()).map_err(|_| "the RIM is not base64")?;
    if let Some(wanted) = wire.sha256 {
        let hash = |bytes: &[u8]| hex::encode(Sha256::digest(bytes));
        // NVIDIA does not document whether the hash covers the RIM or its base64.
        let wanted = wanted.to_ascii_lowercase();
        if wanted != hash(&rim) && wanted != hash(wire.rim.as_bytes()) {
            return Err("the RIM's SHA-256 is not the one in the answer".into());
        }
    }
    Ok(rim)
}

/// Checks that an OCSP answer is complete and its status `successful` (RFC 6960 section 4.2.1).
pub(crate) fn check_ocsp(body: &[u8]) -> Result<(), String> {
    if der_length(body) != Some(body.len()) {
        return Err("not a complete DER sequence".into());
    }
    let content = match body[1] {
        0x82 => &body[4..],
        0x81 => &body[3..],
        _ => &body[2..],
    };
    match content {
        [0x0a, 1, 0, ..] => Ok(()),
        [0x0a, 1, status, ..] => Err(format!("OCSP status {status}, wanted 0")),
        _ => Err("no OCSP status".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rim_comes_out_of_its_base64_if_name_and_hash_fit() {
        let hash = hex::encode(Sha256::digest(b"<rim/>"));
        let answer = |id: &str, hash: &str| {
            let rim = STANDARD.encode(b"<rim/>");
            format!("{{\"id\":\"{id}\",\"rim\":\"{rim}\",\"sha256\":\"{hash}\",\"more\":1}}")
        };
        let read_it = |text: String| read_rim("NV_GPU", text.as_bytes());
        assert_eq!(read_it(answer("NV_GPU", &hash)).unwrap(), b"<rim/>");
        assert!(read_it(answer("NV_OTHER", &hash)).is_err());
        assert!(read_it(answer("NV_GPU", &hash.replace(&hash[..1], "x"))).is_err());
    }

    #[test]
    fn an_ocsp_answer_must_be_successful_and_whole() {
        assert!(check_ocsp(&[0x30, 3, 0x0a, 1, 0]).is_ok());
        assert!(check_ocsp(&[0x30, 3, 0x0a, 1, 6]).is_err());
        assert!(check_ocsp(&[0x30, 3, 0x0a, 1]).is_err());
        assert!(check_ocsp(b"").is_err());
    }
}
