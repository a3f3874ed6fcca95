//! Keys in JSON.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::Deserialize;

use super::kind::{KEY_FILE_LENGTH_MAX, KeyKind};
use crate::error::SigmaError;

/// The members of the key itself; the caller checks others (`alg`, `kid`, `use`).
#[derive(Deserialize)]
struct Jwk {
    kty: String,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
    d: Option<serde::de::IgnoredAny>,
}

pub(super) fn from_jwk(bytes: &[u8]) -> Result<KeyKind, SigmaError> {
    if bytes.len() > KEY_FILE_LENGTH_MAX {
        let max = KEY_FILE_LENGTH_MAX;
        return Err(SigmaError::TooLong { what: "JWK", max, got: bytes.len() });
    }
    let malformed = || SigmaError::Malformed { what: "JWK" };
    let jwk: Jwk = serde_json::from_slice(bytes).map_err(|_| malformed())?;
    if jwk.d.is_some() {
        return Err(SigmaError::not_supported("JWK", "a private key; pass the public one"));
    }
    let field = |value: &Option<String>| {
        let text = value.as_ref().ok_or_else(malformed)?;
        URL_SAFE_NO_PAD.decode(text).map_err(|_| malformed())
    };
    let point = |length: usize| {
        let (x, y) = (field(&jwk.x)?, field(&jwk.y)?);
        match x.len() == length && y.len() == length {
            true => Ok([&[4], x.as_slice(), &y].concat()),
            false => Err(malformed()),
        }
    };
    match (jwk.kty.as_str(), jwk.crv.as_deref()) {
        ("RSA", _) => KeyKind::from_rsa_numbers(&field(&jwk.n)?, &field(&jwk.e)?),
        ("EC", Some("P-256")) => KeyKind::from_p256_point(&point(32)?),
        ("EC", Some("P-384")) => KeyKind::from_p384_point(&point(48)?),
        ("EC", Some(curve)) => Err(SigmaError::not_supported("curve", curve)),
        ("EC", None) => Err(malformed()),
        (kind, _) => Err(SigmaError::not_supported("key type", kind)),
    }
}
