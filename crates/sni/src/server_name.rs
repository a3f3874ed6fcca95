//! The name of a server as TLS clients send it.

use std::fmt;

/// The largest number of bytes of a name, and of one of its labels (RFC 1035 section 2.3.4).
const NAME_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;

/// A DNS name in lower case without a final dot (RFC 6066 section 3), never an IP address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServerName(String);

/// The reason why bytes are not a server name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServerNameError {
    /// The name is empty or too long.
    #[error("server name: wanted 1 to {NAME_BYTES_MAX} bytes, got {got}")]
    Length {
        /// The number of bytes.
        got: usize,
    },
    /// A label is empty, too long, or contains another character.
    #[error(
        "server name: wanted labels of 1 to {LABEL_BYTES_MAX} letters, digits, \"-\" and \"_\", joined by dots"
    )]
    Label,
    /// The last label has digits only, so the name is an IPv4 address.
    #[error("server name: wanted a DNS name, got an IP address")]
    Address,
}

impl ServerName {
    /// Checks a name and converts it to lower case.
    ///
    /// # Errors
    /// A [`ServerNameError`] if `name` is not a DNS name.
    pub fn parse(name: &[u8]) -> Result<Self, ServerNameError> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return Err(ServerNameError::Length { got: name.len() });
        }
        let is_label = |label: &[u8]| {
            (1..=LABEL_BYTES_MAX).contains(&label.len())
                && label
                    .iter()
                    .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
        };
        if !name.split(|byte| *byte == b'.').all(is_label) {
            return Err(ServerNameError::Label);
        }
        let last = name.rsplit(|byte| *byte == b'.').next().unwrap_or_default();
        if last.iter().all(u8::is_ascii_digit) {
            return Err(ServerNameError::Address);
        }
        let lower = name.iter().map(|byte| char::from(byte.to_ascii_lowercase())).collect();
        Ok(Self(lower))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name without its first label and dot, or `None` if it has one label only.
    pub fn parent(&self) -> Option<&str> {
        self.0.split_once('.').map(|(_, parent)| parent)
    }
}

impl fmt::Display for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compared_in_lower_case() {
        let name = ServerName::parse(b"VM-1.Example.ORG").unwrap();
        assert_eq!(name.as_str(), "vm-1.example.org");
        assert_eq!(name.parent(), Some("example.org"));
        assert_eq!(ServerName::parse(b"localhost").unwrap().parent(), None);
    }

    #[test]
    fn what_is_no_dns_name_is_refused() {
        for name in
            ["a..b", ".a", "a.", "a b", "a/b", "*.a", "\u{e4}.org", "a\0.org", "[::1]", "a:1"]
        {
            assert_eq!(ServerName::parse(name.as_bytes()), Err(ServerNameError::Label), "{name}");
        }
        assert_eq!(ServerName::parse(b""), Err(ServerNameError::Length { got: 0 }));
        assert_eq!(ServerName::parse(&[b'a'; 64]), Err(ServerNameError::Label));
        let long = "a.".repeat(127);
        assert_eq!(ServerName::parse(long.as_bytes()), Err(ServerNameError::Length { got: 254 }));
        assert_eq!(ServerName::parse(b"192.0.2.1"), Err(ServerNameError::Address));
    }
}
