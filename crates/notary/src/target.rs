//! What a URL names: a host, a port and a path on it.

use std::{fmt, net::IpAddr};

use http::Uri;

use crate::{RequestError, limits::URL_BYTES_MAX};

/// RFC 9110 section 4.2.2.
const HTTPS_PORT: u16 = 443;

/// RFC 1035 section 2.3.4, without the root's dot.
const HOST_BYTES_MAX: usize = 253;

/// Host, port and path of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    host: String,
    port: u16,
    path: String,
}

impl Target {
    /// Reads `https://HOST[:PORT][/PATH][?QUERY]`. No user, no fragment.
    pub fn parse(url: &str) -> Result<Self, RequestError> {
        let bad = |got: &str| RequestError::Url { got: got.into() };
        if url.len() > URL_BYTES_MAX {
            return Err(bad("more than 8192 bytes"));
        }
        if !url.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(bad("a character that is not written in a URL"));
        }
        if url.contains('#') {
            return Err(bad("a fragment"));
        }
        let uri: Uri = url.parse().map_err(|_| bad("no URL"))?;
        if uri.scheme_str() != Some("https") {
            return Err(bad("another scheme"));
        }
        let authority = uri.authority().ok_or_else(|| bad("no host"))?;
        if authority.as_str().contains('@') {
            return Err(bad("a user name"));
        }
        let written = authority.host();
        // `http` reads a port that is no port as none, which would lead to another server.
        let port = match &authority.as_str()[written.len()..] {
            "" => HTTPS_PORT,
            port => port
                .strip_prefix(':')
                .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
                .and_then(|digits| digits.parse().ok())
                .filter(|port| *port != 0)
                .ok_or_else(|| bad("no port"))?,
        };
        let host = host(written).ok_or_else(|| bad("no host name or address"))?;
        // Its own spelling of an empty path is a slash.
        let path = uri.path_and_query().map_or_else(|| "/".into(), ToString::to_string);
        Ok(Self { host, port, path })
    }

    /// Lower case; an IPv6 address stands in its shortest form, without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port, 443 where none was written.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Path and query.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// What the `host` field holds: the port stands only where it is not 443.
    pub fn authority(&self) -> String {
        let host = match self.host.contains(':') {
            true => format!("[{}]", self.host),
            false => self.host.clone(),
        };
        match self.port {
            HTTPS_PORT => host,
            port => format!("{host}:{port}"),
        }
    }
}

/// The whole address, in one spelling.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "https://{}{}", self.authority(), self.path)
    }
}

/// One spelling of a host name or address: lower case, no dot at the end.
pub(crate) fn host(written: &str) -> Option<String> {
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

/// RFC 1123 section 2.1; the underscore of some services is let through.
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
            let target = Target::parse(url).unwrap();
            assert_eq!((target.host(), target.port()), (host, port), "{url}");
            assert_eq!(target.to_string(), shown);
            assert_eq!(Target::parse(shown).unwrap(), target);
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
            assert!(matches!(Target::parse(url), Err(RequestError::Url { .. })), "{url}");
        }
    }
}
