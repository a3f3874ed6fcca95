//! Addresses of services: https, or plain http on loopback.

use std::net::IpAddr;

use http::{Uri, uri::Authority};

use crate::CollateralError;

const WANTED: &str = "https://HOST[:PORT][/PATH] without user, query or fragment";

/// Where a service begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base {
    origin: String,
    host: String,
    path: String,
    plain: bool,
}

impl Base {
    /// Reads the address. A path that Intel's clients add by themselves is cut off, as are slashes
    /// at the end. `dangerous_plain_http` allows http to other machines.
    pub fn parse(url: &str, dangerous_plain_http: bool) -> Result<Self, CollateralError> {
        let bad = |got: &str| CollateralError::Address { wanted: WANTED, got: got.to_owned() };
        let uri: Uri = url.parse().map_err(|_| bad("text that is no address"))?;
        let authority = uri.authority().ok_or_else(|| bad("no host"))?;
        if authority.as_str().contains('@') {
            return Err(bad("a user name"));
        }
        if uri.query().is_some() || url.contains('#') {
            return Err(bad("a query or fragment"));
        }
        let plain = match uri.scheme_str() {
            Some("https") => false,
            Some("http") => true,
            _ => return Err(bad("another scheme")),
        };
        // `localhost` becomes a number, so that no resolver decides whether it is loopback.
        let host = match (plain, authority.host().to_ascii_lowercase()) {
            (true, name) if name == "localhost" => "127.0.0.1".to_owned(),
            (_, name) => name,
        };
        let port = port(authority).ok_or_else(|| bad("a port that is none: 1 to 65535"))?;
        let origin = format!("{}://{host}{port}", if plain { "http" } else { "https" });
        if plain && !dangerous_plain_http && !is_loopback(&host) {
            return Err(CollateralError::PlainHttp { url: origin });
        }
        let mut path = uri.path().trim_end_matches('/');
        for added in ["/sgx/certification/v4", "/tdx/certification/v4"] {
            path = path.strip_suffix(added).unwrap_or(path);
        }
        let path = path.trim_end_matches('/').to_owned();
        Ok(Self { origin, host: format!("{host}{port}"), path, plain })
    }

    /// The address of something below the base; `path` begins with a slash and may have a query.
    pub fn join(&self, path: &str) -> Result<Address, CollateralError> {
        let url = format!("{}{}{path}", self.origin, self.path);
        let uri = url.parse().map_err(|_| CollateralError::Address {
            wanted: "a path of letters, digits and marks",
            got: shown(&url).to_owned(),
        })?;
        Ok(Address { uri, shown: shown(&url).to_owned(), host: self.host.clone() })
    }

    /// The base itself, as text.
    pub fn url(&self) -> String {
        format!("{}{}", self.origin, self.path)
    }

    /// Host and port.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Whether TLS is used.
    pub fn is_tls(&self) -> bool {
        !self.plain
    }
}

/// One address to ask.
#[derive(Clone, Debug)]
pub struct Address {
    pub(crate) uri: Uri,
    pub(crate) shown: String,
    pub(crate) host: String,
}

/// `:PORT` as it is written, and nothing where there is none. `http` reads a port that is no port as
/// none, which would lead to another server than the one that was named.
fn port(authority: &Authority) -> Option<String> {
    let written = authority.as_str().strip_prefix(authority.host())?;
    if written.is_empty() {
        return Some(String::new());
    }
    let digits = written.strip_prefix(':')?;
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    let port = digits.parse::<u16>().ok().filter(|port| is_number && *port != 0)?;
    Some(format!(":{port}"))
}

fn shown(url: &str) -> &str {
    url.split('?').next().unwrap_or(url)
}

fn is_loopback(host: &str) -> bool {
    let number = host.trim_start_matches('[').trim_end_matches(']');
    number.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_http_is_for_loopback_only() {
        for good in ["http://127.0.0.1:8081", "http://localhost:80/", "http://[::1]:9/x"] {
            assert!(Base::parse(good, false).is_ok(), "{good}");
        }
        let far = Base::parse("http://pccs.example", false);
        assert!(matches!(far, Err(CollateralError::PlainHttp { .. })));
        let like = Base::parse("http://127.0.0.1.example", false);
        assert!(matches!(like, Err(CollateralError::PlainHttp { .. })));
        assert!(Base::parse("http://pccs.example", true).is_ok());
    }

    #[test]
    fn users_queries_and_other_schemes_are_refused() {
        for bad in
            ["https://a:b@c.example", "https://c.example?key=1", "ftp://c.example", "c.example", ""]
        {
            let refused = Base::parse(bad, true);
            assert!(matches!(refused, Err(CollateralError::Address { .. })), "{bad}");
        }
    }

    /// Issue: `https://host:99999` was taken for port 443.
    #[test]
    fn a_port_that_is_no_port_is_refused_and_not_taken_for_443() {
        for bad in ["99999", "65536", "0", "", "+443", "x", "443x", "-1"] {
            for host in ["c.example", "[::1]"] {
                let refused = Base::parse(&format!("https://{host}:{bad}"), false);
                assert!(matches!(refused, Err(CollateralError::Address { .. })), "{host}:{bad}");
            }
        }
        assert_eq!(Base::parse("https://c.example:0443", false).unwrap().host(), "c.example:443");
        assert_eq!(Base::parse("https://c.example", false).unwrap().host(), "c.example");
    }

    #[test]
    fn a_path_that_clients_add_is_cut_off_and_queries_are_not_shown() {
        let base = Base::parse("https://Pccs.example/x/sgx/certification/v4/", false).unwrap();
        let address = base.join("/tdx/certification/v4/tcb?fmspc=00").unwrap();
        assert_eq!(address.shown, "https://pccs.example/x/tdx/certification/v4/tcb");
        assert_eq!(address.uri.query(), Some("fmspc=00"));
    }
}
