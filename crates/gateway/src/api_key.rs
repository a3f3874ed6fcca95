//! API keys as clients present them, and their digests, by which the gateway knows them.
//!
//! A key has 256 random bits, so nobody can find it by trying: its plain SHA-256 reveals nothing,
//! and neither a salt nor a slow hash would add anything. The gateway stores digests alone.

use std::{
    fmt,
    hash::{Hash, Hasher},
};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{HeaderMap, HeaderName, header::AUTHORIZATION};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// The field in which Anthropic's clients send their key.
const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");
/// The field in which clients of Azure's services send their key.
const API_KEY: HeaderName = HeaderName::from_static("api-key");
/// The largest number of bytes of a presented key. Those of `confide gateway key new` have 46.
const KEY_BYTES_MAX: usize = 256;
/// The beginning of a new key, by which scanners for leaked secrets recognise it.
const KEY_PREFIX: &str = "ck-";
/// The number of random bytes of a new key.
pub const API_KEY_RANDOM_BYTES: usize = 32;

/// The SHA-256 of an API key. Comparisons take the same time wherever two digests differ.
#[derive(Clone, Copy)]
pub struct ApiKeyDigest(pub(crate) [u8; 32]);

impl ApiKeyDigest {
    /// Computes the digest of a key.
    pub fn of_key(key: &[u8]) -> Self {
        Self(Sha256::digest(key).into())
    }

    /// The digest as 64 hexadecimal digits, as the key file holds it.
    pub fn to_hex(self) -> String {
        hex::encode(self.0)
    }
}

impl fmt::Debug for ApiKeyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKeyDigest(..)")
    }
}

impl PartialEq for ApiKeyDigest {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for ApiKeyDigest {}

impl Hash for ApiKeyDigest {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

/// Formats a new API key: `ck-` and 43 characters of base64url.
pub fn format_api_key(random: &[u8; API_KEY_RANDOM_BYTES]) -> Zeroizing<String> {
    let mut key = Zeroizing::new(String::with_capacity(KEY_PREFIX.len() + 44));
    key.push_str(KEY_PREFIX);
    URL_SAFE_NO_PAD.encode_string(random, &mut key);
    key
}

/// A request has several keys, so that the gateway and a server behind it could choose differently.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SeveralKeys;

/// Removes the key from a request's fields and returns its digest; `None` if there is no key, or
/// the field has another form than `Bearer KEY`.
pub(crate) fn take_api_key(headers: &mut HeaderMap) -> Result<Option<ApiKeyDigest>, SeveralKeys> {
    let found = find_api_key(headers);
    headers.remove(AUTHORIZATION);
    headers.remove(X_API_KEY);
    found
}

/// The digest of the key in a request's fields; `None` if there is no key, or the field has another
/// form than `Bearer KEY`.
pub(crate) fn find_api_key(headers: &HeaderMap) -> Result<Option<ApiKeyDigest>, SeveralKeys> {
    let mut values = headers.get_all(AUTHORIZATION).iter().chain(headers.get_all(X_API_KEY));
    let is_single = values.next().is_none() || values.next().is_none();
    let bearer = headers.get(AUTHORIZATION).and_then(|value| strip_bearer(value.as_bytes()));
    let key = bearer.or_else(|| headers.get(X_API_KEY).map(|value| value.as_bytes()));
    // The key is hashed where it was received, so there is no copy to erase.
    let digest =
        key.filter(|key| !key.is_empty() && key.len() <= KEY_BYTES_MAX).map(ApiKeyDigest::of_key);
    if is_single { Ok(digest) } else { Err(SeveralKeys) }
}

/// The digest of whatever a request presents as its credential, in order to recognise the same one
/// again: of its API key, or of all fields that could hold one in any other form.
pub(crate) fn find_credential(headers: &HeaderMap) -> Option<ApiKeyDigest> {
    if let Ok(Some(key)) = find_api_key(headers) {
        return Some(key);
    }
    let mut digest = Sha256::new();
    let mut is_empty = true;
    for name in [AUTHORIZATION, X_API_KEY, API_KEY] {
        for value in headers.get_all(&name) {
            is_empty = false;
            digest.update(name.as_str());
            digest.update((value.len() as u64).to_be_bytes());
            digest.update(value.as_bytes());
        }
    }
    (!is_empty).then(|| ApiKeyDigest(digest.finalize().into()))
}

/// The key of `Bearer KEY` (RFC 6750 section 2.1); the scheme is not case-sensitive.
fn strip_bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, key) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| key.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(fields: &[(&'static str, &str)]) -> Result<Option<String>, SeveralKeys> {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, value.parse().unwrap());
        }
        let taken = take_api_key(&mut headers);
        assert!(headers.is_empty(), "a key is left: {headers:?}");
        taken.map(|digest| digest.map(ApiKeyDigest::to_hex))
    }

    #[test]
    fn a_credential_of_any_form_is_recognised_again() {
        let find = |fields: &[(&'static str, &str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in fields {
                headers.append(*name, value.parse().unwrap());
            }
            find_credential(&headers)
        };
        assert_eq!(find(&[("content-type", "a")]), None);
        assert_eq!(find(&[("authorization", "Bearer k")]), find(&[("x-api-key", "k")]));
        let long = format!("Bearer {}", "k".repeat(1000));
        let forms: [&[(&'static str, &str)]; 7] = [
            &[("authorization", "Bearer k")],
            &[("authorization", "Basic k")],
            &[("authorization", &long)],
            &[("api-key", "k")],
            &[("authorization", "Bearer k"), ("x-api-key", "l")],
            &[("authorization", "Bearer l"), ("x-api-key", "k")],
            &[("authorization", "Bearer k"), ("authorization", "Bearer l")],
        ];
        for (index, form) in forms.iter().enumerate() {
            assert!(find(form).is_some() && find(form) == find(form), "{form:?}");
            assert!(forms[..index].iter().all(|other| find(other) != find(form)), "{form:?}");
        }
    }

    #[test]
    fn a_new_key_is_43_characters_of_base64url_after_a_prefix() {
        let key = format_api_key(&[0xff; 32]);
        assert_eq!(key.as_str(), "ck-__________________________________________8");
        assert_eq!(key.len(), 46);
    }

    #[test]
    fn a_key_is_read_from_either_field_and_removed() {
        let digest = ApiKeyDigest::of_key(b"ck-abc").to_hex();
        for fields in [
            [("authorization", "Bearer ck-abc")],
            [("authorization", "bearer  ck-abc ")],
            [("x-api-key", "ck-abc")],
        ] {
            assert_eq!(take(&fields), Ok(Some(digest.clone())), "{fields:?}");
        }
    }

    #[test]
    fn what_is_no_key_gives_none() {
        let long = format!("Bearer {}", "k".repeat(KEY_BYTES_MAX + 1));
        for value in ["", "Bearer", "Bearer ", "Basic ck-abc", "ck-abc", long.as_str()] {
            assert_eq!(take(&[("authorization", value)]), Ok(None), "{value}");
        }
        assert_eq!(take(&[]), Ok(None));
        assert_eq!(take(&[("x-api-key", "")]), Ok(None));
    }

    #[test]
    fn two_keys_are_refused_and_removed() {
        for fields in [
            [("authorization", "Bearer a"), ("authorization", "Bearer a")],
            [("authorization", "Bearer a"), ("x-api-key", "a")],
            [("authorization", "Basic a"), ("x-api-key", "a")],
            [("x-api-key", "a"), ("x-api-key", "b")],
        ] {
            assert_eq!(take(&fields), Err(SeveralKeys), "{fields:?}");
        }
    }
}
