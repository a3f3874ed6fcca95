//! The address of an attested end.

use std::fmt;

use http::{Uri, uri::Authority};

use crate::ClientError;

/// RFC 9110 section 4.2.2.
const HTTPS_PORT: u16 = 443;
const WANTED: &str = "https://HOST[:PORT] without user, path, query or fragment";

/// Host and port of an attested end. The host is also the name that TLS sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    host: String,
    port: u16,
}

impl Endpoint {
    /// Reads `https://HOST[:PORT]`.
    pub fn parse(url: &str) -> Result<Self, ClientError> {
        let bad = |got: String| ClientError::Url { url: url.into(), wanted: WANTED, got };
        let uri: Uri = url.parse().map_err(|error| bad(format!("{error}")))?;
        if uri.scheme_str() != Some("https") {
            return Err(bad(format!("scheme `{}`", uri.scheme_str().unwrap_or("none"))));
        }
        let authority = uri.authority().ok_or_else(|| bad("no host".into()))?;
        if authority.as_str().contains('@') {
            return Err(bad("a user name".into()));
        }
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() || url.contains('#') {
            return Err(bad("a path, query or fragment".into()));
        }
        let host = authority.host();
        let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
        let port = port(authority, HTTPS_PORT).ok_or_else(|| bad("no port".into()))?;
        Ok(Self::new(bare, port))
    }

    /// A host, without brackets around an IPv6 address, and a port.
    pub fn new(host: &str, port: u16) -> Self {
        Self { host: host.to_ascii_lowercase(), port }
    }

    /// The name that TLS sends, without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }
}

/// The port that is written, `default` where none is. `http` reads a port that is no port as none,
/// which would lead to another server than the one that was named.
fn port(authority: &Authority, default: u16) -> Option<u16> {
    match authority.as_str().strip_prefix(authority.host())? {
        "" => Some(default),
        written => {
            let digits = written.strip_prefix(':')?;
            let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
            digits.parse().ok().filter(|port| is_number && *port != 0)
        }
    }
}

/// `HOST:PORT`, with brackets where the host is an IPv6 address.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_and_a_port() {
        for (url, host, shown) in [
            ("https://Example.org", "example.org", "example.org:443"),
            ("https://127.0.0.1:8443/", "127.0.0.1", "127.0.0.1:8443"),
            ("https://[::1]:1", "::1", "[::1]:1"),
        ] {
            let endpoint = Endpoint::parse(url).unwrap();
            assert_eq!((endpoint.host(), endpoint.to_string().as_str()), (host, shown));
        }
    }

    #[test]
    fn other_addresses_are_refused() {
        for url in [
            "http://h",
            "h:1",
            "https://",
            "https://u@h",
            "https://h/v1",
            "https://h#f",
            "https://h:99999",
            "https://h:x",
            "https://h:0",
            "https://h:+443",
            "https://h:",
        ] {
            assert!(matches!(Endpoint::parse(url), Err(ClientError::Url { .. })), "{url}");
        }
    }
}
