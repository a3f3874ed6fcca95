//! The address of an upstream model server.

use confide_http::{HttpUrl, Scheme, uri_host};
use http::{
    HeaderValue, Uri,
    uri::{Authority, PathAndQuery},
};

use crate::error::GatewayError;

const WANTED: &str = "http://HOST[:PORT][/PATH] without user, query or fragment";

/// The plain-HTTP address to which requests are proxied, and whether it is a loopback address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    authority: Authority,
    base_path: String,
    is_loopback: bool,
}

impl Upstream {
    /// Parses `http://HOST[:PORT][/PATH]`.
    ///
    /// `localhost` becomes `127.0.0.1`, so that no resolver decides whether it is loopback.
    ///
    /// # Errors
    /// [`GatewayError::UpstreamUrl`] for another form, [`GatewayError::UpstreamHttps`] for `https`,
    /// and [`GatewayError::UpstreamApiPath`] if the path ends with `/v1`.
    pub fn parse(text: &str) -> Result<Self, GatewayError> {
        let bad = |got: String| GatewayError::UpstreamUrl { url: text.into(), wanted: WANTED, got };
        let url = HttpUrl::parse(text).map_err(|error| bad(error.to_string()))?;
        if url.scheme() == Scheme::Https {
            return Err(GatewayError::UpstreamHttps { url: text.into() });
        }
        if url.query().is_some() {
            return Err(bad("a query".into()));
        }
        let base_path = url.path().trim_end_matches('/').to_owned();
        if let Some(base) = base_path.strip_suffix("/v1") {
            let port = url.explicit_port().map_or_else(String::new, |port| format!(":{port}"));
            let without = format!("http://{}{port}{base}", uri_host(url.host()));
            return Err(GatewayError::UpstreamApiPath { url: text.into(), without });
        }
        let url = url.with_numeric_localhost();
        let authority = url.authority().parse().map_err(|error| bad(format!("{error}")))?;
        Ok(Self { authority, base_path, is_loopback: url.is_loopback() })
    }

    /// Whether the host is a numeric loopback address, so that the bytes stay on this machine.
    pub fn is_loopback(&self) -> bool {
        self.is_loopback
    }

    /// The host and port.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The canonical form of the address: `http://HOST:PORT/PATH`, host in lower case.
    pub fn url(&self) -> String {
        format!("http://{}{}", self.authority, self.base_path)
    }

    pub(crate) fn host_header(&self) -> HeaderValue {
        // An authority contains only bytes that are valid in a header value.
        HeaderValue::from_str(self.authority.as_str())
            .unwrap_or_else(|_| HeaderValue::from_static("upstream"))
    }

    /// Converts a redirect to this upstream to a path at the gateway. The unchanged redirect would
    /// lead clients past the attested channel.
    pub(crate) fn path_of_redirect(&self, location: &HeaderValue) -> Option<HeaderValue> {
        let path = location.to_str().ok()?.strip_prefix(&self.url())?;
        path.starts_with('/').then(|| HeaderValue::from_str(path).ok())?
    }

    /// The request target of a path and query at this upstream.
    pub(crate) fn target_for(&self, requested: &PathAndQuery) -> Result<Uri, http::Error> {
        if self.base_path.is_empty() {
            return Ok(Uri::from(requested.clone()));
        }
        Ok(PathAndQuery::try_from(format!("{}{requested}", self.base_path))?.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_that_are_loopback_by_number_count_as_loopback() {
        for (url, wanted) in [
            ("http://127.0.0.1:8000", true),
            ("http://LOCALHOST:8000", true),
            ("http://[::1]:8000/base", true),
            ("http://localhost.example.org:8000", false),
            ("http://127.0.0.1.example.org", false),
            ("http://10.0.0.1:8000", false),
            ("http://0.0.0.0:8000", false),
        ] {
            assert_eq!(Upstream::parse(url).unwrap().is_loopback(), wanted, "{url}");
        }
    }

    #[test]
    fn an_upstream_is_written_in_one_way() {
        let one = Upstream::parse("http://LocalHost:80/").unwrap();
        let two = Upstream::parse("http://127.0.0.1").unwrap();
        assert_eq!(one, two);
        assert_eq!(one.url(), "http://127.0.0.1:80");
    }

    #[test]
    fn what_is_not_plain_http_to_a_host_is_refused() {
        for url in [
            "ftp://h",
            "http://",
            "h:80",
            "http://u@h",
            "http://h/?q",
            "http://h/#f",
            "http://h:99999",
            "http://h:x",
            "http://h:0",
            "http://h:",
            "http://h:+80",
            "http://127.1",
            "https://h:x",
        ] {
            let refused = Upstream::parse(url);
            assert!(matches!(refused, Err(GatewayError::UpstreamUrl { .. })), "{url}");
        }
    }

    #[test]
    fn the_address_that_openai_clients_are_given_is_refused_with_the_right_one() {
        for url in ["http://h:80/v1", "http://h:80/v1/"] {
            match Upstream::parse(url) {
                Err(GatewayError::UpstreamApiPath { without, .. }) => {
                    assert_eq!(without, "http://h:80");
                }
                other => panic!("{url}: {other:?}"),
            }
        }
        assert!(Upstream::parse("http://h:80/openai").is_ok());
        assert!(matches!(Upstream::parse("https://h"), Err(GatewayError::UpstreamHttps { .. })));
    }

    #[test]
    fn a_base_path_stands_before_the_path_of_the_request() {
        let upstream = Upstream::parse("http://127.0.0.1:1/base/").unwrap();
        let uri = upstream.target_for(&"/v1/models?a=b".parse().unwrap()).unwrap();
        assert_eq!(uri, "/base/v1/models?a=b");
    }
}
