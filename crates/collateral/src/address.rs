//! The addresses of services: https, or plain http on loopback.

use confide_http::{HttpUrl, Scheme, uri_host};
use http::Uri;

use crate::error::CollateralError;

const WANTED: &str = "https://HOST[:PORT][/PATH] without user, query or fragment";

/// The base URL of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseUrl {
    origin: String,
    host: String,
    path: String,
    plain: bool,
}

impl BaseUrl {
    /// Parses an address. A path that Intel's clients add by themselves is cut off, as are slashes
    /// at the end. `dangerous_plain_http` allows http to other machines.
    ///
    /// # Errors
    /// [`CollateralError::Address`]; [`CollateralError::PlainHttp`] if the address is http to
    /// another machine and `dangerous_plain_http` is not set.
    pub fn parse(text: &str, dangerous_plain_http: bool) -> Result<Self, CollateralError> {
        let bad = |got: String| CollateralError::Address { wanted: WANTED, got };
        let url = HttpUrl::parse(text).map_err(|error| bad(error.to_string()))?;
        if url.query().is_some() {
            return Err(bad("a query".into()));
        }
        let plain = url.scheme() == Scheme::Http;
        let url = if plain { url.with_numeric_localhost() } else { url };
        let port = url.explicit_port().map_or_else(String::new, |port| format!(":{port}"));
        let host = format!("{}{port}", uri_host(url.host()));
        let origin = format!("{}://{host}", url.scheme());
        if plain && !dangerous_plain_http && !url.is_loopback() {
            return Err(CollateralError::PlainHttp { url: origin });
        }
        let mut path = url.path().trim_end_matches('/');
        for added in ["/sgx/certification/v4", "/tdx/certification/v4"] {
            path = path.strip_suffix(added).unwrap_or(path);
        }
        let path = path.trim_end_matches('/').to_owned();
        Ok(Self { origin, host, path, plain })
    }

    /// The address of a path below the base; `path` begins with a slash and may have a query.
    ///
    /// # Errors
    /// [`CollateralError::Address`] if the result is not a valid address.
    pub fn join(&self, path: &str) -> Result<Address, CollateralError> {
        let url = format!("{}{}{path}", self.origin, self.path);
        let uri = url.parse().map_err(|_| CollateralError::Address {
            wanted: "a path of characters that a URL may have",
            got: without_query(&url).to_owned(),
        })?;
        Ok(Address { uri, shown: without_query(&url).to_owned(), host: self.host.clone() })
    }

    /// The base URL as text.
    pub fn url(&self) -> String {
        format!("{}{}", self.origin, self.path)
    }

    /// The host and the port.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Whether the service is reached over TLS.
    pub fn is_tls(&self) -> bool {
        !self.plain
    }
}

/// One address below a base URL, for a request and for the log.
#[derive(Clone, Debug)]
pub struct Address {
    pub(crate) uri: Uri,
    pub(crate) shown: String,
    pub(crate) host: String,
}

fn without_query(url: &str) -> &str {
    url.split('?').next().unwrap_or(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_http_is_for_loopback_only() {
        for good in ["http://127.0.0.1:8081", "http://localhost:80/", "http://[::1]:9/x"] {
            assert!(BaseUrl::parse(good, false).is_ok(), "{good}");
        }
        let far = BaseUrl::parse("http://pccs.example", false);
        assert!(matches!(far, Err(CollateralError::PlainHttp { .. })));
        let like = BaseUrl::parse("http://127.0.0.1.example", false);
        assert!(matches!(like, Err(CollateralError::PlainHttp { .. })));
        assert!(BaseUrl::parse("http://pccs.example", true).is_ok());
    }

    #[test]
    fn users_queries_and_other_schemes_are_refused() {
        for bad in [
            "https://a:b@c.example",
            "https://c.example?key=1",
            "ftp://c.example",
            "c.example",
            "",
            "https://c.example/#f",
            "https://127.1",
        ] {
            let refused = BaseUrl::parse(bad, true);
            assert!(matches!(refused, Err(CollateralError::Address { .. })), "{bad}");
        }
    }

    /// Regression: `https://host:99999` was taken for port 443.
    #[test]
    fn a_port_that_is_no_port_is_refused_and_not_taken_for_443() {
        for bad in ["99999", "65536", "0", "", "+443", "x", "443x", "-1"] {
            for host in ["c.example", "[::1]"] {
                let refused = BaseUrl::parse(&format!("https://{host}:{bad}"), false);
                assert!(matches!(refused, Err(CollateralError::Address { .. })), "{host}:{bad}");
            }
        }
        assert_eq!(
            BaseUrl::parse("https://c.example:0443", false).unwrap().host(),
            "c.example:443"
        );
        assert_eq!(BaseUrl::parse("https://c.example", false).unwrap().host(), "c.example");
    }

    #[test]
    fn a_path_that_clients_add_is_cut_off_and_queries_are_not_shown() {
        let base = BaseUrl::parse("https://Pccs.example/x/sgx/certification/v4/", false).unwrap();
        let address = base.join("/tdx/certification/v4/tcb?fmspc=00").unwrap();
        assert_eq!(address.shown, "https://pccs.example/x/tdx/certification/v4/tcb");
        assert_eq!(address.uri.query(), Some("fmspc=00"));
    }
}
