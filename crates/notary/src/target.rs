//! The target of a request: a host, a port and a path.

use std::{fmt, net::IpAddr};

use confide_http::{HttpUrl, Scheme, uri_host};

use crate::request_error::RequestError;

const HTTPS_PORT: u16 = Scheme::Https.default_port();

/// The longest host name in bytes: RFC 1035 section 2.3.4, without the root's dot.
const HOST_BYTES_MAX: usize = 253;

/// The host, port and path to which a request is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchTarget {
    host: String,
    port: u16,
    path: String,
}

impl FetchTarget {
    /// Parses `https://HOST[:PORT][/PATH][?QUERY]`; a user or a fragment is refused.
    ///
    /// # Errors
    /// [`RequestError::Url`].
    pub fn parse(text: &str) -> Result<Self, RequestError> {
        let bad = |got: &str| RequestError::Url { got: got.into() };
        let url = HttpUrl::parse(text).map_err(|error| bad(&error.to_string()))?;
        if url.scheme() != Scheme::Https {
            return Err(bad("a scheme other than https"));
        }
        let host = normalise_host(url.host()).ok_or_else(|| bad("no host name or address"))?;
        Ok(Self { host, port: url.port(), path: url.path_and_query().to_string() })
    }

    /// The host in lower case; an IPv6 address is in its shortest form, without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port; 443 by default.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Path and query.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The value of the `host` field: with the port only if it is not 443.
    pub fn authority(&self) -> String {
        let host = uri_host(&self.host);
        match self.port {
            HTTPS_PORT => host.into_owned(),
            port => format!("{host}:{port}"),
        }
    }
}

/// The whole URL in its canonical spelling.
impl fmt::Display for FetchTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "https://{}{}", self.authority(), self.path)
    }
}

/// Returns the canonical spelling of a host name or address: lower case, without a dot at the end.
pub(crate) fn normalise_host(written: &str) -> Option<String> {
    if let Some(inner) = written.strip_prefix('[') {
        let address: std::net::Ipv6Addr = inner.strip_suffix(']')?.parse().ok()?;
        return Some(address.to_string());
    }
    let name = written.strip_suffix('.').unwrap_or(written).to_ascii_lowercase();
    if let Ok(address) = name.parse::<IpAddr>() {
        return Some(address.to_string());
    }
    // A name whose last label is a number would be read as an address by some resolvers.
    let last = name.rsplit('.').next()?;
    let labels_fit = name.split('.').all(is_label);
    let fits = name.len() <= HOST_BYTES_MAX
        && labels_fit
        && !last.starts_with(|c: char| c.is_ascii_digit());
    fits.then_some(name)
}

/// Whether a label conforms to RFC 1123 section 2.1; the underscores of some services are allowed.
fn is_label(label: &str) -> bool {
    let inside = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let ends = !label.starts_with('-') && !label.ends_with('-');
    (1..=63).contains(&label.len()) && ends && label.bytes().all(inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_host_port_and_path() {
        for (url, host, port, shown) in [
            ("https://Example.org", "example.org", 443, "https://example.org/"),
            ("https://example.org.:443/a?b=c", "example.org", 443, "https://example.org/a?b=c"),
            ("https://127.0.0.1:8443/v1", "127.0.0.1", 8443, "https://127.0.0.1:8443/v1"),
            ("https://[0:0::1]:1/", "::1", 1, "https://[::1]:1/"),
            ("https://h?q", "h", 443, "https://h/?q"),
        ] {
            let target = FetchTarget::parse(url).unwrap();
            assert_eq!((target.host(), target.port()), (host, port), "{url}");
            assert_eq!(target.to_string(), shown);
            assert_eq!(FetchTarget::parse(shown).unwrap(), target);
        }
    }

    #[test]
    fn other_urls_are_refused() {
        for url in [
            "",
            "http://h/",
            "h",
            "/path",
            "https://",
            "https:///path",
            "https://u@h/",
            "https://h#f",
            "https://h:/",
            "https://h:0",
            "https://h:99999",
            "https://h:+1",
            "https://-h/",
            "https://a..b/",
            "https://127.1/",
            "https://0x7f000001.0/",
            "https://2130706433/",
            "https://[::1",
            "https://[fe80::1%25eth0]/",
            "https://h/ x",
            "https://h/\u{e9}",
        ] {
            assert!(matches!(FetchTarget::parse(url), Err(RequestError::Url { .. })), "{url}");
        }
    }
}
