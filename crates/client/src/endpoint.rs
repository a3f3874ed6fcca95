//! The address of an attested end.

use std::fmt;

use confide_http::{HttpUrl, Scheme, uri_host};

use crate::error::ClientError;

const WANTED: &str = "https://HOST[:PORT] without user, path, query or fragment";

/// Host and port of an attested end. The host is also the TLS server name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    host: String,
    port: u16,
}

impl Endpoint {
    /// Parses `https://HOST[:PORT]`.
    ///
    /// # Errors
    /// [`ClientError::Url`] for any other text.
    pub fn parse(text: &str) -> Result<Self, ClientError> {
        let bad = |got: String| ClientError::Url { url: text.into(), wanted: WANTED, got };
        let url = HttpUrl::parse(text).map_err(|error| bad(error.to_string()))?;
        if url.scheme() != Scheme::Https {
            return Err(bad(format!("scheme `{}`", url.scheme())));
        }
        if url.path() != "/" || url.query().is_some() {
            return Err(bad("a path or query".into()));
        }
        Ok(Self::new(url.host(), url.port()))
    }

    /// An endpoint of a host, without brackets around an IPv6 address, and a port.
    pub fn new(host: &str, port: u16) -> Self {
        Self { host: host.to_ascii_lowercase(), port }
    }

    /// The TLS server name, without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }
}

/// `HOST:PORT`, with brackets if the host is an IPv6 address.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", uri_host(&self.host), self.port)
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
            "https://h/?q",
            "https://127.1",
            "https://[::1",
        ] {
            assert!(matches!(Endpoint::parse(url), Err(ClientError::Url { .. })), "{url}");
        }
    }
}
