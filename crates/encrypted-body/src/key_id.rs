//! The identifier of a public key, by which a request names the key that it is encrypted to.

use std::fmt;

use aws_lc_rs::digest::{SHA256, digest};

use crate::public_key::BodyPublicKey;

const PREFIX: &str = "body-";
const ID_BYTES: usize = 8;

/// The first 8 bytes of the SHA-256 of a serialised public key. In text they follow `body-` as 16
/// lower-case hexadecimal digits, as in `key_id` of a keyset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BodyKeyId([u8; ID_BYTES]);

impl BodyKeyId {
    /// Parses the text form; `None` for any other text.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let digits = text.strip_prefix(PREFIX.as_bytes())?;
        let mut id = [0; ID_BYTES];
        hex::decode_to_slice(digits, &mut id).ok()?;
        let is_canonical = !digits.iter().any(u8::is_ascii_uppercase);
        is_canonical.then_some(Self(id))
    }
}

impl fmt::Display for BodyKeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", hex::encode(self.0))
    }
}

impl BodyPublicKey {
    /// The identifier of the key in a keyset, which tells the keys of many servers apart.
    pub fn key_id(&self) -> BodyKeyId {
        let mut id = [0; ID_BYTES];
        id.copy_from_slice(&digest(&SHA256, self.as_bytes()).as_ref()[..ID_BYTES]);
        BodyKeyId(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{kem::BodyKem, key::RecipientKey};

    #[test]
    fn an_identifier_is_read_as_it_is_written() {
        let key = RecipientKey::generate(BodyKem::X25519).unwrap();
        let id = key.public_key().key_id();
        let text = id.to_string();
        assert_eq!(BodyKeyId::parse(text.as_bytes()), Some(id));
        assert!(text.starts_with(&format!("body-{:02x}", key.public_key().ohttp_key_id())));
        for other in ["", "body-", "body-0123456789ABCDEF", "body-0123", "0123456789abcdef"] {
            assert_eq!(BodyKeyId::parse(other.as_bytes()), None, "{other}");
        }
        assert_eq!(BodyKeyId::parse(format!("{text}0").as_bytes()), None);
    }
}
