//! The key that the gateway itself presents to a model server.

use std::{fmt, path::Path};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header::AUTHORIZATION};
use zeroize::Zeroizing;

use crate::trusted_file::{TrustedFileError, read_trusted_file};

/// The largest number of bytes of a file with a key; keys of vendors have up to some 200.
const FILE_BYTES_MAX: u64 = 1024;

/// A key for a model server, erased from memory when it is dropped.
///
/// The gateway sends it instead of the client's key as `Authorization: Bearer KEY`.
#[derive(Clone)]
pub struct UpstreamKey(HeaderValue);

impl UpstreamKey {
    /// Reads the key from a file of one line, which only its owner may write.
    ///
    /// # Errors
    /// [`TrustedFileError`] if the file cannot be read, others may write to it, or it does not hold
    /// one line of visible ASCII characters.
    pub fn read(path: &Path) -> Result<Self, TrustedFileError> {
        let contents = Zeroizing::new(read_trusted_file(path, FILE_BYTES_MAX)?);
        Self::new(contents.trim_ascii()).ok_or_else(|| {
            TrustedFileError::content(
                path,
                "wanted one line with a key in visible ASCII characters",
            )
        })
    }

    /// Makes a key; `None` if it is empty or has other characters than visible ASCII.
    pub fn new(key: &[u8]) -> Option<Self> {
        if key.is_empty() || !key.iter().all(u8::is_ascii_graphic) {
            return None;
        }
        // The field's bytes are erased when the last request that holds them has ended.
        let field = Zeroizing::new([b"Bearer ", key].concat());
        let mut value = HeaderValue::from_maybe_shared(Bytes::from_owner(field)).ok()?;
        value.set_sensitive(true);
        Some(Self(value))
    }

    pub(crate) fn insert_into(&self, headers: &mut HeaderMap) {
        headers.insert(AUTHORIZATION, self.0.clone());
    }
}

impl fmt::Debug for UpstreamKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UpstreamKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_one_bearer_field_and_is_not_shown() {
        let key = UpstreamKey::new(b"sk-1").unwrap();
        let mut headers = HeaderMap::new();
        headers.append(AUTHORIZATION, HeaderValue::from_static("Bearer client"));
        key.insert_into(&mut headers);
        let values: Vec<_> = headers.get_all(AUTHORIZATION).iter().collect();
        assert_eq!(values, ["Bearer sk-1"]);
        assert!(!format!("{key:?} {headers:?}").contains("sk-1"));
    }

    #[test]
    fn what_is_not_one_word_is_refused() {
        for key in [&b""[..], b"two words", b"two\nlines", b"\xc3\xa9"] {
            assert!(UpstreamKey::new(key).is_none(), "{key:?}");
        }
    }
}
